"""What `airflow tony check` says of a job that could run."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tony_provider.cli.submit import describe_plan
from tony_provider.cluster.checks import job_checks
from tony_provider.cluster.checks.job_checks import Amount, InputSizes, input_sizes
from tony_provider.runtime.inputs.shards import InputShard
from tony_provider.runtime.parsing.parse import parse_job
from tony_provider.runtime.storage import LocalStorage


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
                "worker": {"command": "x", "instances": 4, "max_instances": 6, "processes": 2},
                "helper": {"command": "x", "max_instances": 3, "grow": "spare"},
                "chief": {"command": "x"},
                "export": {"command": "x", "role": "once", "after": {"worker": "succeeded"}},
            },
        }
    )
    assert list(describe_plan(job, {"clicks": InputSizes(Amount(2, 3 << 20)), "sales": InputSizes(Amount(9, 1))})) == [
        "prepare: 1 container; begins at once",
        "worker: 4 containers, may be resized to 6, 2 processes in each, ranks 1 to 8; "
        "begins when prepare has succeeded",
        "helper: 1 container, may be resized to 3, and uses spare capacity of the queue, rank 9; "
        "begins when prepare has succeeded",
        "chief: 1 container, rank 0; begins when prepare has succeeded",
        "export: 1 container; begins when prepare has succeeded and worker has succeeded",
        "input clicks: 2 shards (3 MiB); one shard at a time, to the next free task; read by worker, helper, chief",
        "input sales: 9 shards (1 B); one shard at a time, to the next free task, in pieces of 64 MiB; "
        "read by worker, helper, chief",
    ]


def test_windows() -> None:
    windows = {"zone": "Europe/Berlin", "open": ["Mon-Thu 22:00-06:00", "Sat-Sun"]}
    job = parse_job({"framework": "pytorch", "tasks": {"worker": {"command": "x"}}, "windows": windows})
    assert list(describe_plan(job, {}))[1:] == [
        "windows: Mon-Thu 22:00-06:00, Sat-Sun (Europe/Berlin); suspended outside of these hours"
    ]


def test_as_they_come() -> None:
    job = parse_job(
        {
            "framework": "standalone",
            "start": "first-come",
            "inputs": {"days": "/days"},
            "outputs": {"scores": "/scores", "logs": {"path": "/logs", "commit": "task"}},
            "tasks": {
                "lookup": {"command": "x", "role": "sidecar", "ready": {"port": 0}},
                "scorer": {"command": "x", "instances": 200, "after": {"lookup": "ready"}},
            },
        }
    )
    assert list(describe_plan(job, {"days": "the store is away"})) == [
        "lookup: 1 container; each begins at once, as soon as its container is granted",
        "scorer: 200 containers, ranks 0 to 199; each begins when lookup is ready, as soon as its container is granted",
        "input days: size unknown (the store is away); a part for each task; read by scorer",
        "output scores: /scores, all at once when the job has succeeded; written by scorer",
        "output logs: /logs, each task's part when it has succeeded; written by scorer",
    ]


def look(tmp_path: Path, seconds: float = 60.0, **inputs: object) -> dict[str, InputSizes | str]:
    job = parse_job(
        {"framework": "standalone", "inputs": inputs, "tasks": {"worker": {"command": "x", "instances": 2}}}
    )
    return input_sizes(job, LocalStorage(), f"file://{tmp_path}", seconds)


def test_how_much_the_inputs_hold(tmp_path: Path) -> None:
    for number in (1, 2, 3, 10):
        (tmp_path / f"{number:02}").write_bytes(b"x" * number)
    every = str(tmp_path / "*")
    found = look(
        tmp_path, parts=every, queued={"paths": [every], "deal": "queue"}, none=str(tmp_path / "no"), other="s4://b/x"
    )
    assert found["parts"] == InputSizes(Amount(4, 16), Amount(3, 6), Amount(1, 10))
    assert found["queued"] == InputSizes(Amount(4, 16))
    assert "correct the path" in str(found["none"])
    assert "s4" in str(found["other"])


def test_a_store_that_does_not_answer_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()

    def hang(*args: object) -> Iterator[InputShard]:
        over.wait(60)
        yield from ()

    monkeypatch.setattr(job_checks, "find_shards", hang)
    assert look(tmp_path, 0.1, slow=str(tmp_path)) == {"slow": "its store was not read within 0.1 s"}
    over.set()
