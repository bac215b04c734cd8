"""A YARN and an Airflow for the portal: with users who log in, and of whom one may read a single DAG."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.e2e.airflow import Airflow
from tests.e2e.installation import LOCAL
from tests.e2e.rest import Rest
from tests.e2e.runs import Run
from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.settings import Settings
from tests.jobs.places import YarnPlace
from tests.portal.per_dag_auth_manager import PORTAL_DAGS
from tests.waiting import until
from tony_provider.hooks.tony import TonyHook

REPOSITORY = Path(__file__).resolve().parents[2]
DAGS = Path(__file__).parent / "dags"
READER, OTHER = "grace", "heidi"  # who reads all DAGs of jobs, and who reads the mapped one
VIEWER = "peggy"  # reads the DAGs portal_acted and portal_corrected, and may not edit them
ACTED_ON = ("portal_acted", "portal_corrected")
SETTINGS = Settings(node_vcores=16)  # with 8, masters of waiting jobs could take all of them


@dataclass(frozen=True)
class Site:
    hadoop: HadoopCluster
    airflow: Airflow
    place: YarnPlace

    @cached_property
    def rest(self) -> Rest:
        return self.airflow.rest

    @cached_property
    def hook(self) -> TonyHook:
        return self.place.hook()

    def rest_of(self, user: str) -> Rest:
        return Rest(self.airflow.url, (user, user))

    def trigger(self, dag_id: str) -> Run:
        made = self.rest.call("POST", f"/dags/{dag_id}/dagRuns", {"logical_date": None})
        return Run(self.rest, dag_id, made["dag_run_id"])

    def applications(self) -> dict[str, dict[str, Any]]:
        """Return the ResourceManager's applications by id, without those of the DAGs that the browser test acts on."""
        url = f"{self.hadoop.rm_webapp[0]}/ws/v1/cluster/apps"
        found = self.hadoop.client("alice").get_json(url)["apps"] or {}
        return {each["id"]: each for each in found.get("app", []) if not each["name"].startswith(ACTED_ON)}


@contextmanager
def site(root: Path, *, keep: bool) -> Iterator[Site]:
    """All of it, below ``root``; nothing runs afterwards, unless it is kept for the next. Raises ClusterError and
    AirflowError.
    """
    hadoop = HadoopCluster(root / "hadoop", SETTINGS)
    place = YarnPlace(extra={"autoscaling": True}, cluster=hadoop)  # one job is too large
    try:
        hadoop.start()
        airflow = _airflow(root / "airflow", place)
        try:
            airflow.start()
            _open_dags(airflow.rest)
            yield Site(hadoop, airflow, place)
        finally:
            if not keep:
                airflow.stop()
    finally:
        place.close()
        if not keep:
            hadoop.stop()


def _airflow(home: Path, place: YarnPlace) -> Airflow:
    home.mkdir(parents=True, exist_ok=True)
    passwords = home / "passwords.json"
    passwords.write_text(json.dumps({user: user for user in (READER, OTHER, VIEWER)}))
    manager = "tests.portal.per_dag_auth_manager.PerDagAuthManager"
    environment = {
        "PYTHONPATH": str(REPOSITORY),  # of the auth manager
        # Four dozen tasks at once are slow to begin on a small machine, and none is to be taken for lost.
        "AIRFLOW__CORE__PARALLELISM": "4",
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "300",
        "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "300",
        "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "300",
        "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "300",
        "AIRFLOW__CORE__AUTH_MANAGER": manager,
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{READER}:admin,{OTHER}:admin,{VIEWER}:admin",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
    }
    bundle = {"name": "portal", "classpath": LOCAL, "kwargs": {"path": str(DAGS), "refresh_interval": 300}}
    connection = {**place.connection, "extra": {**place.connection["extra"], **place.extra}}
    return Airflow(home, [bundle], connection, environment, (READER, READER))


def _open_dags(rest: Rest) -> None:
    def known() -> set[str]:
        return {each["dag_id"] for each in rest.call("GET", "/dags", limit=100)["dags"]}

    def errors() -> list[str]:
        return [each["stack_trace"] for each in rest.call("GET", "/importErrors")["import_errors"]]

    until(lambda: known() >= PORTAL_DAGS, lambda: f"the DAGs; there are {known()}; {errors()}")
    for dag_id in sorted(PORTAL_DAGS):
        rest.call("PATCH", f"/dags/{dag_id}", {"is_paused": False})
