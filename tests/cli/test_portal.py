"""``airflow tony portal rebuild``: the portal's list, made again from what jobs have left on the store."""

from __future__ import annotations

import json
from typing import Any

import pytest
from airflow.models.task_state_store import TaskStateStoreModel
from airflow.utils.session import create_session
from sqlalchemy import delete, select

from tests.cli.conftest import Tony
from tests.hooks.jobs import ended, job
from tests.operators.conftest import described, training
from tests.operators.jobs import DAG_ID
from tests.operators.trainings import RUN_ID, Training
from tony_provider.cluster.records.summary import DETAILS_KEY, JOB_KEY, JOBS_KEY
from tony_provider.cluster.submission.preparation import SubmissionRequest
from tony_provider.portal.stored_jobs import StoredJobs

__all__ = ["described", "training"]


@pytest.fixture(autouse=True)
def empty(airflow_db: None) -> None:
    with create_session() as session:
        session.execute(delete(TaskStateStoreModel))


def listed() -> list[dict[str, Any]]:
    """The portal's list, without what no reader sees."""
    with create_session() as session:
        rows = StoredJobs(session, frozenset({DAG_ID, "payroll"})).rows()
    return sorted(rows, key=lambda row: str(row["application_id"]))


def values() -> dict[str, Any]:
    with create_session() as session:
        return {row.key: json.loads(row.value) for row in session.scalars(select(TaskStateStoreModel))}


@pytest.mark.long
def test_the_list_is_what_it_was_before_airflow_discarded_it(training: Training, tony: Tony) -> None:
    training.retried(training.mended.touch)
    before, kept = listed(), values()
    assert [row["verdict"] for row in before] == ["FAILED", "SUCCEEDED"]
    training.lose_state()
    assert listed() == []

    done = tony("portal", "rebuild", "-o", "json")
    assert done.code == 0, done.error
    assert [row["outcome"] for row in json.loads(done.out)] == ["listed", "listed"]
    assert [row["parameters"] for row in before] == [{"code": "0"}] * 2  # params of the run, which only its task knows
    before = [{**row, "parameters": {}} for row in before]
    assert listed() == before
    again = values()
    assert again.pop(JOBS_KEY) == kept.pop(JOBS_KEY)
    failed = DETAILS_KEY + before[0]["application_id"]
    again[failed]["fingerprint"] = kept[failed]["fingerprint"]  # its checkpoint chain is another one's since
    for key in again:
        kept[key] |= {name: {} for name in ("parameters", "parameter_sources") if name in kept[key]}
    assert again.items() <= kept.items()  # the application's id is not for the portal

    assert "0 listed, 2 listed before, 0 left out" in tony("portal", "rebuild").out
    assert listed() == before


@pytest.mark.long
def test_a_summary_without_an_end_gets_it(training: Training, tony: Tony) -> None:
    training.mended.touch()
    training.again()
    (application_id,) = training.applications
    with create_session() as session:
        row = session.scalars(
            select(TaskStateStoreModel).where(TaskStateStoreModel.key == JOB_KEY + application_id)
        ).one()
        row.value = json.dumps({**json.loads(row.value), "verdict": None})
    assert [row["state"] for row in listed()] == ["LOST"]
    assert "1 listed, 0 listed before" in tony("portal", "rebuild").out
    assert [row["state"] for row in listed()] == ["SUCCEEDED"]


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        ({}, "no task of a DAG submitted this job"),
        ({"dag_id": "payroll", "run_id": RUN_ID, "task_id": "train"}, "its labels name another training"),
        (
            {"dag_id": DAG_ID, "run_id": "a run that was deleted", "task_id": "train"},
            "has no run a run that was deleted",
        ),
    ],
)
def test_what_no_task_of_airflows_has_submitted_is_left_out(
    training: Training, tony: Tony, labels: dict[str, str], why: str
) -> None:
    """A job can write its own labels, and so name another DAG's, whose readers would see it."""
    hook = training.hook
    own = hook.identity(dag_id=DAG_ID, run_id=labels.get("run_id", RUN_ID), task_id="train")
    application_id = hook.submit(SubmissionRequest(job("true"), own, labels=labels)).application_id
    ended(hook, application_id)
    done = tony("portal", "rebuild", "-o", "json")
    (row,) = json.loads(done.out)
    assert why in row["outcome"]
    assert listed() == []


def test_airflow_without_the_portal_says_so(older_airflow: None, tony: Tony) -> None:
    done = tony("portal", "rebuild")
    assert done.code == 1
    assert "The portal needs Airflow 3.3 or newer, and this is Airflow 3.0.6" in done.error
