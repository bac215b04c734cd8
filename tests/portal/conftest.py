from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Protocol

import pytest
from airflow.api_fastapi.app import create_app, get_auth_manager, purge_cached_app
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from fastapi import FastAPI
from starlette.testclient import TestClient

from tests.cli.test_suspend import COMMAND
from tests.hooks.jobs import ended, job, running
from tests.operators.conftest import local
from tests.portal import stored
from tony_provider.cluster.records.summary import REFUSAL_KEY
from tony_provider.cluster.submission.preparation import SubmissionRequest
from tony_provider.hooks.job import TonyJob
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.common.clock import epoch_ms
from tony_provider.runtime.protocol.status import FinalStatus

__all__ = ["local"]


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
            "parameters": {"lr": {0: "0.1", 1: "1e-2", 3: "auto"}[number], **({"seed": "7"} if number else {})},
            "parameter_sources": {"lr": "program", "seed": "command"},
            "model_dir": f"hdfs://n/models/{number}",
            "returned": '{"accuracy": 0.5}',
        }
        stored.add(runs[f"clicks-{number}"], stored.summary(number, metrics={"loss": 1.0 / (number + 1)}, **details))
    failed: dict[str, Any] = {
        "verdict": FinalStatus.FAILED,
        "cause": "ValueError: <i>secret</i> data",
        "reason": "worker:0 <b>died</b>\nits last words",
        "warnings": ["worker:1 ended\nits printed text"],
        "user": "bob",
    }
    date = {"run_id": stored.run_id(0), "run_date": stored.day(0).isoformat()}
    stored.add(runs["digits-0"], stored.summary(100, "digits", **date, **failed))
    stored.add_refusal(runs["digits-0"], 0, "digits", "the job specification has one problem:\n  tasks: missing")
    stored.add_values([stored.value(runs["clicks-0"], stored.summary(0), REFUSAL_KEY, '{"text": 3}')])
    return runs


@pytest.fixture(scope="package")
def dag_run(api_server: FastAPI) -> int:
    stored.add_dag("ordered")
    return stored.add_runs("ordered", 1)[0]


@pytest.fixture
def running_job(local: TonyHook, dag_run: int, request: pytest.FixtureRequest) -> Iterator[TonyJob]:
    """A job of the DAG ordered that can have up to two workers; Airflow's database has its task as running."""
    task_id = request.node.name.partition("[")[0]
    which = local.identity(dag_id="ordered", run_id=stored.run_id(0), task_id=task_id)
    specification = job(COMMAND, {"max_instances": 2}, framework="generic", timeouts={"grace": "2s"})
    submitted = local.submit(SubmissionRequest(specification, which, labels={"dag_id": "ordered"}))
    found = local.job(submitted.application_id, which)
    about = {"application_id": found.application_id, "application_dir": found.directory, "task_id": task_id}
    stored.add(dag_run, stored.summary(0, "ordered", verdict=None, submitted_ms=epoch_ms(), finished_ms=None, **about))
    stored.add_instance("ordered", 0, "running", task_id=task_id, try_number=1, max_tries=2)
    running(local, which, found.application_id)
    yield found
    local.kill(found.application_id, "the test is over")
    ended(local, found.application_id)
