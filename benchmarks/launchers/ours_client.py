"""A worker of Airflow's, as far as it starts trainings: `python -m benchmarks.launchers.ours_client CLUSTER`.

For each job it does what an operator's first try does (``operators/training_try.py``), with a hook of its own, whose
connections are new: Airflow has a process for each task. The imports are done before, as in Airflow's.
"""

from __future__ import annotations

import json
import shlex
import sys
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import attrs

from benchmarks.launchers.busy_store import BusyStore
from benchmarks.launchers.http_requests import count_requests
from tests.hadoop.cluster import HadoopCluster
from tests.jobs.places import YarnPlace
from tony_provider import configuration
from tony_provider.cluster.submission.preparation import SubmissionRequest
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.parsing.parse import parse_job
from tony_provider.runtime.protocol.status import JobState
from tony_provider.watching.job_watch import JobWatch, Looker, WatchLimits, wait_in_worker
from tony_provider.watching.kill_switch import KillSwitch


def main() -> None:
    place = YarnPlace(cluster=HadoopCluster.load(Path(sys.argv[1])))
    requests = count_requests()
    tell({"ready": True})
    for line in sys.stdin:
        run(place.hook(), json.loads(line), requests)
    place.close()


def run(hook: TonyHook, order: dict[str, Any], requests: Counter[str]) -> None:
    store = BusyStore()
    before = Counter(requests)
    began = time.time()
    job = parse_job(
        {
            "framework": "standalone",
            "name": "trivial",
            "am": {"memory": f"{order['master_memory']}MiB"},
            "tasks": {
                "worker": {
                    "command": shlex.join(order["words"]),
                    "instances": order["tasks"],
                    "memory": f"{order['memory']}MiB",
                }
            },
        }
    )
    hook.expect_servers()
    hook.__dict__["opened"] = attrs.evolve(hook.opened, storage=store.watching(hook.storage()))
    identity = hook.identity(dag_id="bench", run_id=uuid.uuid4().hex, task_id="launch")
    assert hook.previous_application(identity) is None
    submitted_job = hook.submit(SubmissionRequest(job, identity))
    submitted = time.time()
    application_id = submitted_job.application_id
    told = {"application_id": application_id, "began": began, "submitted": submitted, "store": store.seconds()}
    tell({**told, "requests": requests - before})
    before = Counter(requests)
    watch = JobWatch(application_id, WatchLimits(), lambda _: None)
    looker = Looker(submitted_job, watch, lambda _: None)
    result = wait_in_worker(looker, KillSwitch(), configuration.poll_interval(), lambda: None)
    ended = time.time()
    assert result.status is not None, result
    assert result.status.state is JobState.SUCCEEDED, result
    tell({"at": ended, "requests": requests - before})
    hook.close()


def tell(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main()
