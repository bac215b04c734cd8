"""Jobs that change while a list of them is read."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from airflow.models.task_state_store import TaskStateStoreModel
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from sqlalchemy import delete, event, update

from tests.portal import stored
from tony_provider.cluster.records.summary import DETAILS_KEY, JOB_KEY, in_parts
from tony_provider.portal.stored_jobs import StoredJobs

DAG = "ending"
ID = stored.application_id(7)


@pytest.fixture(scope="module")
def run(airflow_db: None) -> int:
    stored.add_dag(DAG)
    run = stored.add_runs(DAG, 1)[0]
    stored.add_instance(DAG, 0, "running")
    return run


@pytest.fixture(autouse=True)
def runs(run: int) -> Iterator[None]:
    """One job, which runs."""
    stored.add(run, _summary(verdict=None, finished_ms=None))
    yield
    with create_session() as session:
        session.execute(delete(TaskStateStoreModel).where(TaskStateStoreModel.dag_id == DAG))


def _summary(**more: Any) -> Any:
    return stored.summary(0, DAG, application_id=ID, **more)


def _ends() -> None:
    with create_session() as session:
        value = json.dumps(in_parts(_summary())[0])
        values = update(TaskStateStoreModel).where(TaskStateStoreModel.key == JOB_KEY + ID)
        session.execute(values.values(value=value, updated_at=datetime.now(UTC)))
        session.execute(update(TaskInstance).where(TaskInstance.dag_id == DAG).values(state="success"))


def _is_forgotten() -> None:
    with create_session() as session:
        keys = (JOB_KEY + ID, DETAILS_KEY + ID)
        session.execute(delete(TaskStateStoreModel).where(TaskStateStoreModel.key.in_(keys)))


@contextmanager
def _before_states_are_read(what: Callable[[], None]) -> Iterator[None]:
    """It happens when the database is about to be asked for the states of tasks."""
    from airflow.settings import engine

    happened: list[str] = []

    def look(_: Any, __: Any, statement: str, *___: Any) -> None:
        if statement.startswith("SELECT") and "JOIN task_instance" in statement and not happened:
            happened.append(statement)
            what()

    event.listen(engine, "before_cursor_execute", look)
    try:
        yield
    finally:
        event.remove(engine, "before_cursor_execute", look)
    assert happened


@pytest.mark.parametrize(
    ("what", "states"),
    [
        pytest.param(lambda: None, ["RUNNING"], id="nothing happens"),
        pytest.param(_ends, ["SUCCEEDED"], id="it ends"),
        pytest.param(_is_forgotten, [], id="it is forgotten"),
    ],
)
def test_a_job_that_ends_while_it_is_read_is_not_lost(what: Callable[[], None], states: list[str]) -> None:
    with create_session(scoped=False) as session, _before_states_are_read(what):
        rows = StoredJobs(session, frozenset({DAG})).rows()
    assert [row["state"] for row in rows] == states


def test_the_module_loads_after_another_has_resolved_the_types_of_a_summary() -> None:
    lines = (
        "import attrs",
        "from tony_provider.cluster.records.summary import JobSummary",
        "attrs.resolve_types(JobSummary)",
        "import tony_provider.portal.stored_jobs",
    )
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True)


def test_what_is_longer_than_any_summary_is_left_in_the_database() -> None:
    """Seen: 7 MB that anybody's task may store took the API server 139 s; a thousand times 30 MB would fill it."""
    long = json.dumps({"use": [{"container_seconds": 1, "vcores": 1}] * 200_000})
    with create_session() as session:
        session.execute(update(TaskStateStoreModel).where(TaskStateStoreModel.dag_id == DAG).values(value=long))
    with create_session(scoped=False) as session:
        jobs = StoredJobs(session, frozenset({DAG}))
        row = jobs.row(ID)
        assert row is not None
        assert row["problems"] == ["the summary is damaged: it is empty, or exceeds the size limit"]
        assert jobs.summary(row)[0].use == []
