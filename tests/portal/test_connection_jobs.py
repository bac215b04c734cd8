"""The portal's pages of real jobs that `airflow tony submit` has submitted, for users who may read the connection."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Tony, tony
from tests.hooks.jobs import SECONDS, ended
from tests.portal.conftest import As
from tests.waiting import until
from tony_provider.hooks.job import TonyJob
from tony_provider.hooks.tony import TonyHook
from tony_provider.portal import store_jobs

__all__ = ["tony"]

JOB = """
framework: standalone
tasks:
  worker: {memory: 256MiB, command: "echo hello; exec sleep $SLEEP"}
timeouts: {grace: 2s}
"""
CONNECTION = "conn_id=tony_default"


@pytest.fixture
def submit(tony: Tony, local: TonyHook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, float], str]:
    monkeypatch.setattr(store_jobs, "INTERVAL", 0.2)
    monkeypatch.setattr(store_jobs, "CONNECTION_LISTINGS", listings := store_jobs.ConnectionListings())
    monkeypatch.setattr("tony_provider.portal.api.CONNECTION_LISTINGS", listings)  # the store differs from test to test
    file = tmp_path / "greeting.tony.yaml"
    file.write_text(JOB)

    def submit(run_id: str, seconds: float) -> str:
        done = tony("submit", str(file), "--run-id", run_id, "--set", f"tasks.worker.env.SLEEP={seconds}")
        assert done.code == 0, done.error
        return next(word for word in done.out.split() if word.startswith("application_"))

    return submit


def listed(client: As, user: str, query: str = "") -> dict[str, Any]:
    answer = client(user).get(f"/tony/api/jobs?{CONNECTION}&{query}")
    assert answer.status_code == 200, answer.text
    assert answer.json()["problem"] is None
    return {each["application_id"]: each for each in answer.json()["jobs"]}


def test_jobs_without_a_dag_are_listed_through_their_connection(
    client: As, submit: Callable[[str, float], str], local: TonyHook
) -> None:
    first = submit("one", 0)
    ended(local, first)
    second = submit("two", 600)
    rows = until(lambda: _running(listed(client, "peggy"), second), "both jobs in the list", SECONDS)
    assert set(rows) == {first, second}
    assert (rows[first]["state"], rows[first]["run_id"], rows[first]["task_id"]) == ("SUCCEEDED", "one", "greeting")
    assert rows[second]["duration_s"] > 0
    assert set(listed(client, "peggy", "verdict=RUNNING")) == {second}

    for path in ("", "/history", "/specification", "/live", "/logs", "/logs/worker:0"):
        answer = client("peggy").get(f"/tony/api/jobs/{first}{path}?{CONNECTION}")
        assert answer.status_code == 200, answer.text
    assert "hello" in answer.text
    assert client("peggy").get(f"/tony/api/jobs/{second}?{CONNECTION}").json()["previous"] == first
    assert client("peggy").get(f"/tony/api/compare?ids={first},{second}&{CONNECTION}").json()["missing"] == []
    assert client("peggy").get(f"/tony/api/jobs/{first}").status_code == 404  # it has no DAG

    refused = client("peggy").get(f"/tony/api/jobs/{second}/actions?{CONNECTION}").json()
    assert refused["reason"].endswith("Airflow does not permit you to edit the connection tony_default.")
    token = client("rita").get(f"/tony/api/jobs/{second}/actions?{CONNECTION}").json()["token"]
    stop = f"/tony/api/jobs/{second}/actions/stop?{CONNECTION}"
    assert client("peggy").post(stop, json={"token": token}).status_code == 403
    assert client("rita").post(stop, json={"token": token, "grace": 1}).status_code == 200
    assert "the Airflow user rita" in ended(local, second).diagnostics


def test_a_job_with_an_unreadable_record_does_not_hide_the_others(
    client: As, submit: Callable[[str, float], str], local: TonyHook, tmp_path: Path
) -> None:
    bad, good = submit("bad", 0), submit("good", 0)
    ended(local, bad)
    ended(local, good)
    (result,) = tmp_path.rglob(f"{bad}/result.json")
    result.write_text('{"application_id": 3}')
    until(lambda: good in listed(client, "peggy"), "the other job", SECONDS)
    assert bad not in listed(client, "peggy")


def test_a_connection_that_a_user_may_not_read_does_not_exist(client: As, submit: Callable[[str, float], str]) -> None:
    application_id = submit("three", 0)
    for path in ("/jobs", f"/jobs/{application_id}", f"/jobs/{application_id}/live", f"/compare?ids={application_id}"):
        sign = "&" if "?" in path else "?"
        for user, conn_id in (("alice", "tony_default"), ("peggy", "secret_cluster"), ("peggy", "%00")):
            answer = client(user).get(f"/tony/api{path}{sign}conn_id={conn_id}")
            assert (answer.status_code, answer.json()["detail"]) == (404, "No such connection")
    assert client("peggy").get("/tony/api/connections").json() == {"connections": ["tony_default"]}
    assert client("alice").get("/tony/api/connections").json() == {"connections": []}


def test_a_job_of_a_dag_is_not_read_through_its_connection(
    client: As, submit: Callable[[str, float], str], running_job: TonyJob
) -> None:
    application_id = submit("four", 0)
    until(lambda: application_id in listed(client, "peggy"), "the job without a DAG", SECONDS)
    assert running_job.application_id not in listed(client, "peggy")
    assert client("peggy").get(f"/tony/api/jobs/{running_job.application_id}?{CONNECTION}").status_code == 404


def test_a_store_that_cannot_be_read_is_named(client: As, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tony_provider.portal.api.CONNECTION_LISTINGS", store_jobs.ConnectionListings())
    monkeypatch.setenv("AIRFLOW_CONN_TONY_DEFAULT", "nonsense://")
    answer = client("peggy").get(f"/tony/api/jobs?{CONNECTION}").json()
    assert (answer["jobs"], "tony_default" in answer["problem"]) == ([], True)


def _running(rows: dict[str, Any], application_id: str) -> dict[str, Any] | None:
    return rows if application_id in rows and rows[application_id]["state"] == "RUNNING" else None
