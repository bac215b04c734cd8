from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Protocol

import pytest
from airflow.api_fastapi.app import create_app, get_auth_manager, purge_cached_app
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from fastapi import FastAPI
from starlette.testclient import TestClient

from tests.portal import stored
from tony_provider.runtime.protocol.status import FinalStatus


class As(Protocol):
    """Gives a client of Airflow's API server that has logged in as this user."""

    def __call__(self, user: str | None) -> TestClient: ...


@pytest.fixture(scope="package")
def api_server(airflow_db: None) -> Iterator[FastAPI]:
    """Airflow's own app, with the plugin as Airflow finds it."""
    with pytest.MonkeyPatch.context() as patch:
        name = "tests.portal.per_dag_auth_manager.PerDagAuthManager"
        patch.setenv("AIRFLOW__CORE__AUTH_MANAGER", name)
        patch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")
        purge_cached_app()
        yield create_app(apps="core")
        purge_cached_app()


@pytest.fixture(scope="package")
def client(api_server: FastAPI) -> As:
    @cache
    def client(user: str | None) -> TestClient:
        headers = {}
        if user is not None:
            token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username=user, role="viewer"))
            headers["Authorization"] = f"Bearer {token}"
        return TestClient(api_server, headers=headers, raise_server_exceptions=False)

    return client


@pytest.fixture(scope="package")
def jobs(api_server: FastAPI) -> dict[str, Any]:
    """Two DAGs with jobs: clicks, of days 0 to 3 but for day 2, and digits, of day 0."""
    runs: dict[str, Any] = {}
    for dag_id, days in (("clicks", range(4)), ("digits", range(1))):
        stored.add_dag(dag_id)
        for number, dag_run_id in enumerate(stored.add_runs(dag_id, len(days))):
            runs[f"{dag_id}-{number}"] = dag_run_id
            stored.add_instance(dag_id, number, "success")
    for number in (0, 1, 3):
        details: dict[str, Any] = {
            "curves": [stored.curve("loss")],
            "fingerprint": {"tasks.worker.command": str(number), "env.A": "a"},
        }
        stored.add(runs[f"clicks-{number}"], stored.summary(number, metrics={"loss": 1.0 / (number + 1)}, **details))
    failed: dict[str, Any] = {
        "verdict": FinalStatus.FAILED,
        "reason": "worker:0 <b>died</b>\nits last words",
        "user": "bob",
    }
    date = {"run_id": stored.run_id(0), "run_date": stored.day(0).isoformat()}
    stored.add(runs["digits-0"], stored.summary(100, "digits", **date, **failed))
    return runs
