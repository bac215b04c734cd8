"""Many tasks that submit at once: `python -m benchmarks.airflow_side.submitting_tasks CLUSTER TASKS MASTER_MEMORY`.

Each is a process of its own, forked from one that has loaded what Airflow has loaded when a task begins. At a sign all
load what the operator needs; when they have it, at the next one, all submit. Prints a line of JSON for each (``Task``
of ``benchmarks.airflow_submissions``).
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
import uuid
from multiprocessing.context import ForkProcess
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import airflow.sdk.execution_time.task_runner  # noqa: F401

import tony_provider.operators.tony  # noqa: F401
from tests.hadoop.cluster import HadoopCluster

_SECONDS = 300.0  # for all of them


def main() -> None:
    cluster, number, master_memory = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    context = multiprocessing.get_context("fork")
    told: Queue[dict[str, Any]] = context.Queue()
    ready = context.Barrier(number)
    arguments = (Path(cluster), master_memory, ready, told)
    tasks: list[ForkProcess] = [context.Process(target=submit, args=arguments) for _ in range(number)]
    for task in tasks:
        task.start()
    for _ in tasks:
        print(json.dumps(told.get(timeout=_SECONDS)), flush=True)
    for task in tasks:
        task.join()


def submit(cluster: Path, master_memory: str, ready: Barrier, told: Queue[dict[str, Any]]) -> None:
    """Of one task, all that it does."""
    ready.wait(_SECONDS)
    processor = time.process_time()
    from tony_provider.cluster.submission.preparation import SubmissionRequest
    from tony_provider.operators import training_try  # noqa: F401
    from tony_provider.runtime.parsing.parse import parse_job

    loaded = time.process_time() - processor
    from benchmarks.launchers.http_requests import count_requests
    from benchmarks.launchers.memory import Memory
    from tests.jobs.places import YarnPlace

    hook = YarnPlace(cluster=HadoopCluster.load(cluster)).hook()
    requests = count_requests()
    ready.wait(_SECONDS)
    began, processor = time.time(), time.process_time()
    tasks = {"worker": {"command": "true", "memory": "128MiB"}}
    job = parse_job({"framework": "standalone", "am": {"memory": master_memory}, "tasks": tasks})
    hook.expect_servers()
    identity = hook.identity(dag_id="bench", run_id=uuid.uuid4().hex, task_id="submit")
    assert hook.previous_application(identity) is None
    application_id = hook.submit(SubmissionRequest(job, identity)).application_id
    ended, processor = time.time(), time.process_time() - processor
    memory = Memory.of([os.getpid()])
    hook.close()
    told.put(
        {
            "application_id": application_id,
            "job_dir": hook.layout.job_dir(identity),
            "began": began,
            "ended": ended,
            "loaded": loaded,
            "processor": processor,
            "resident": memory.resident,
            "proportional": memory.proportional,
            "requests": requests,
        }
    )


if __name__ == "__main__":
    main()
