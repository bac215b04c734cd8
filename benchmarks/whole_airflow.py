"""The same through a whole Airflow: from the end of an application until its task resumes."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from benchmarks.standin_cluster import StandInProcess, application_id
from tests.e2e.airflow import Airflow
from tests.waiting import until

DAGS = Path(__file__).parent / "dags"
TASKS = 21
TIMEOUT = 600.0  # seconds, for all tasks to start on a busy machine
PAUSE = 2.0  # seconds between two ends
_BUNDLE = "airflow.dag_processing.bundles.local.LocalDagBundle"


def latencies(home: Path, cluster: StandInProcess, tasks: int) -> list[float]:
    """Seconds, of each task."""
    environment = {"PYTHONPATH": os.pathsep.join([str(DAGS.parents[1]), os.environ.get("PYTHONPATH", "")])}
    environment["BENCH_TASKS"] = str(tasks)  # the DAG reads it
    bundles = [{"name": "bench", "classpath": _BUNDLE, "kwargs": {"path": str(DAGS), "refresh_interval": 300}}]
    airflow = Airflow(home, bundles, cluster.connection, environment=environment)
    airflow.start()
    try:
        return _measured(airflow, cluster, tasks)
    finally:
        airflow.stop()


def _measured(airflow: Airflow, cluster: StandInProcess, tasks: int) -> list[float]:
    rest = airflow.rest

    def states() -> list[str]:
        found = rest.call("GET", f"{run}/taskInstances", limit=tasks)["task_instances"]
        return [str(each["state"]) for each in found]

    def are(state: str) -> bool:
        found = states()
        return len(found) == tasks and set(found) == {state}

    until(lambda: rest.call("GET", "/dags")["total_entries"] == 1, "the DAG", TIMEOUT)
    rest.call("PATCH", "/dags/deferred", {"is_paused": False})
    run_id: Any = rest.call("POST", "/dags/deferred/dagRuns", {"logical_date": None, "conf": {}})["dag_run_id"]
    run = f"/dags/deferred/dagRuns/{run_id}"
    until(lambda: are("deferred"), lambda: f"all tasks to be deferred; they are {states()}", TIMEOUT)
    ended = []
    for number in range(tasks):
        ended.append(time.time())
        cluster.ask(f"/finish/{application_id(number)}")
        time.sleep(PAUSE)
    until(lambda: are("success"), lambda: f"all tasks to succeed; they are {states()}", TIMEOUT)
    resumed = [
        rest.call("GET", f"{run}/taskInstances/wait/xcomEntries/return_value", map_index=number)["value"]
        for number in range(tasks)
    ]
    return [float(at) - end for at, end in zip(resumed, ended, strict=True)]
