"""What `airflow tony check` says of a job that could run."""

from __future__ import annotations

from tony_provider.cli.job_plan import plan
from tony_provider.runtime.parsing.parse import parse_job


def test_one_type_after_the_other() -> None:
    job = parse_job(
        {
            "framework": "pytorch",
            "inputs": {
                "clicks": {"paths": ["/clicks"], "deal": "queue"},
                "sales": {"paths": ["/sales"], "deal": "queue", "format": "parquet", "split_size": "64MiB"},
            },
            "tasks": {
                "prepare": {"command": "x"},
                "worker": {"command": "x", "instances": 4, "processes": 2},
                "chief": {"command": "x"},
                "export": {"command": "x", "role": "once", "after": {"worker": "succeeded"}},
            },
        }
    )
    assert list(plan(job)) == [
        "prepare: 1 container; begins at once",
        "worker: 4 containers, 2 processes in each, ranks 1 to 8; begins when prepare has succeeded",
        "chief: 1 container, rank 0; begins when prepare has succeeded",
        "export: 1 container; begins when prepare has succeeded and worker has succeeded",
        "input clicks: one shard after the other, to whoever is free; read by worker, chief",
        "input sales: one shard after the other, to whoever is free, in pieces of 64 MiB; read by worker, chief",
    ]


def test_as_they_come() -> None:
    job = parse_job(
        {
            "framework": "standalone",
            "start": "first-come",
            "inputs": {"days": "/days"},
            "tasks": {
                "lookup": {"command": "x", "role": "sidecar", "ready": {"port": 0}},
                "scorer": {"command": "x", "instances": 200, "after": {"lookup": "ready"}},
            },
        }
    )
    assert list(plan(job)) == [
        "lookup: 1 container; each begins at once, as soon as its container is there",
        "scorer: 200 containers, ranks 0 to 199; each begins when lookup is ready, as soon as its container is there",
        "input days: a part for each task; read by scorer",
    ]
