"""Read and write the table of Airflow's database from which the portal lists jobs."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import attrs
from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session
from sqlalchemy import select
from sqlalchemy.orm import Session

from tony_provider.cluster.records.summary import DETAILS_KEY, JOB_KEY, JOBS_KEY, JobSummary, in_parts, plain_of
from tony_provider.operators.job_summaries import KEPT
from tony_provider.operators.try_state import TaskInstanceInfo
from tony_provider.portal.stored_jobs import Stored
from tony_provider.run_dates import known_run_date


@attrs.frozen
class KeptInstance:
    """The rows of Airflow's database about the jobs of a task instance."""

    dag_run_id: int
    run_date: str | None  # ISO 8601; None if unknown
    run: TaskInstanceInfo

    def knows_end_of(self, application_id: str) -> bool:
        with create_session() as session:
            found = self._find(session, JOB_KEY + application_id)
            return found is not None and plain_of(found.value)[0].get("verdict") is not None

    def write(self, summary: JobSummary) -> None:
        """Write the summary as a task does: in two rows, and with its application ID in the task instance's list."""
        first, details = in_parts(summary)
        with create_session() as session:
            self._put(session, DETAILS_KEY + summary.application_id, details)
            self._put(session, JOB_KEY + summary.application_id, first)
            found = self._find(session, JOBS_KEY)
            listed = json.loads(found.value) if found else []
            others = [each for each in listed if each != summary.application_id]
            self._put(session, JOBS_KEY, [*others, summary.application_id][-KEPT:])

    def _find(self, session: Session, key: str) -> Stored | None:
        mine = Stored.dag_run_id == self.dag_run_id, Stored.task_id == self.run.task_id
        query = select(Stored).where(*mine, Stored.map_index == self.run.map_index, Stored.key == key)
        return session.scalars(query).one_or_none()

    def _put(self, session: Session, key: str, value: Any) -> None:
        text = json.dumps(value)
        found = self._find(session, key)
        if found is None:
            whose = attrs.asdict(self.run, filter=attrs.filters.exclude("try_number", "bundle_version"))
            session.add(Stored(**whose, dag_run_id=self.dag_run_id, key=key, value=text))
        else:
            found.value, found.updated_at, found.expires_at = text, datetime.now(UTC), None


def kept_instance(run: TaskInstanceInfo) -> KeptInstance | None:
    """Return the rows of a task instance, or None if Airflow does not know its run."""
    with create_session() as session:
        query = select(DagRun).where(DagRun.dag_id == run.dag_id, DagRun.run_id == run.run_id)
        found = session.scalars(query).one_or_none()
        if found is None:
            return None
        date = known_run_date(found)
        return KeptInstance(int(found.id), date.isoformat() if date is not None else None, run)
