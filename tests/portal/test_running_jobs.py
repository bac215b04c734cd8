"""The list of jobs while a real job runs: figures and states from its newest status, with few reads of the store."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.test_suspend import reached
from tests.hooks.jobs import SECONDS
from tests.portal import stored
from tests.portal.conftest import As
from tests.waiting import until
from tony_provider.cluster.training import results
from tony_provider.hooks.job import TonyJob
from tony_provider.hooks.tony import TonyHook
from tony_provider.portal import store_jobs
from tony_provider.runtime.protocol.status import JobStatus
from tony_provider.runtime.storage.base import Storage


def listed(client: As, job: TonyJob, query: str = "") -> dict[str, Any] | None:
    answer = client("rita").get(f"/tony/api/jobs?{query}")
    assert answer.status_code == 200, answer.text
    return next((each for each in answer.json()["jobs"] if each["application_id"] == job.application_id), None)


def seen(client: As, job: TonyJob, query: str = "") -> dict[str, Any]:
    return until(lambda: listed(client, job, query), f"{job} with {query!r} in the list", SECONDS)


def test_the_list_shows_a_running_and_a_suspended_job_as_they_are(
    client: As, running_job: TonyJob, local: TonyHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_jobs, "INTERVAL", 0.2)
    which = running_job.training
    row = until(lambda: _with_figures(listed(client, running_job)), "the figures of a running job", SECONDS)
    assert (row["state"], row["verdict"], row["restarts"]) == ("RUNNING", None, 0)
    assert 0 < row["duration_s"] < SECONDS

    assert running_job.suspend("seen")["suspended_within"] > 0
    reached(local, which, running_job.application_id, "SUSPENDED")
    row = seen(client, running_job, "verdict=SUSPENDED")
    assert row["checkpoint_step"] == 7
    assert seen(client, running_job, "text=suspended")["state"] == "SUSPENDED"
    assert listed(client, running_job, "verdict=RUNNING") is None
    assert client("rita").get(f"/tony/api/jobs/{running_job.application_id}").json()["state"] == "SUSPENDED"

    running_job.resume("seen")
    assert seen(client, running_job, "verdict=RUNNING")["state"] == "RUNNING"


def test_many_users_cause_one_read_of_the_store_per_interval(
    client: As, running_job: TonyJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []
    read = results.job_status

    def counted(storage: Storage, application_dir: str, **how: bool) -> JobStatus | None:
        reads.append(application_dir)
        return read(storage, application_dir, **how)

    monkeypatch.setattr(results, "job_status", counted)
    until(lambda: _with_figures(listed(client, running_job)), "the figures of a running job", SECONDS)
    for _ in range(20):
        assert listed(client, running_job)
    assert reads.count(running_job.directory) == 1


def test_a_summary_with_the_id_of_another_dags_job_gets_none_of_its_figures(
    client: As, running_job: TonyJob, dag_run: int
) -> None:
    """Any task can store such a summary."""
    until(lambda: _with_figures(listed(client, running_job)), "the figures of a running job", SECONDS)
    about = {"application_id": running_job.application_id, "application_dir": running_job.directory}
    forged = stored.summary(0, "ordered", verdict=None, finished_ms=None, task_id="thief", **about)
    stored.add(dag_run, forged)
    stored.add_instance("ordered", 0, "running", task_id="thief", try_number=1, max_tries=0)
    rows = client("rita").get("/tony/api/jobs?task_id=thief").json()["jobs"]
    assert [row["checkpoint_step"] for row in rows] == [None]
    assert store_jobs._key(rows[0]) != store_jobs._key(listed(client, running_job) or {})


def _with_figures(row: dict[str, Any] | None) -> dict[str, Any] | None:
    return row if row and row["memory_gb_hours"] else None
