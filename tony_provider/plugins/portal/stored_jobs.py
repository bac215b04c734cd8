"""The summaries in Airflow's database: one query for all that somebody may read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs
from airflow.models.taskinstance import TaskInstance
from sqlalchemy import and_, select
from sqlalchemy.orm import Session
from sqlalchemy.sql.elements import ColumnElement

from tony_provider.airflow_versions.task_state_table import Stored
from tony_provider.cluster.history.job_summary import JobSummary
from tony_provider.cluster.history.summary_parts import DETAILS_KEY, JOB_KEY, plain_of, read_summary
from tony_provider.plugins.portal.job_row import Row, with_state
from tony_provider.plugins.portal.row_memory import BATCH, COLUMNS, HEAD, IS_JOB, MEMORY, VALUE

# Of a summary, as the row has them: from the database's columns, and checked.
_REQUIRED = ("application_id", "application_dir", "dag_id", "run_id", "task_id", "map_index")
_INSTANCE = and_(
    TaskInstance.dag_id == Stored.dag_id,
    TaskInstance.task_id == Stored.task_id,
    TaskInstance.run_id == Stored.run_id,
    TaskInstance.map_index == Stored.map_index,
)


@attrs.frozen
class StoredJobs:
    """The jobs of some DAGs, as one request sees them."""

    session: Session
    dags: frozenset[str]  # all others do not exist

    def rows(
        self,
        *,
        dag_id: str | None = None,
        task_id: str | None = None,
        run_id: str | None = None,
        map_index: int | None = None,
    ) -> list[Row]:
        """All jobs that are like this, each with its ``state``; in no order."""
        wanted = {"dag_id": dag_id, "run_id": run_id, "task_id": task_id, "map_index": map_index}
        given = {name: value for name, value in wanted.items() if value is not None}
        if any(isinstance(each, str) and "\0" in each for each in given.values()):  # no database has such names
            return []
        return self._rows(IS_JOB, *(column == given[column.key] for column in COLUMNS if column.key in given))

    def row(self, application_id: str) -> Row | None:
        """The job with this id; None when there is none in these DAGs.

        Where several tasks say that it is theirs it is that of the first: whoever starts a job says so at once.
        """
        found = self._rows(Stored.key == JOB_KEY + application_id) if "\0" not in application_id else []
        if not found:
            return None
        # Which state it has depends on what else its task has started.
        row = next((row for row in self.siblings(found[0]) if row["application_id"] == application_id), None)
        if row is not None and len(found) > 1:
            others = ", ".join(f"{each['task_id']} of {each['dag_id']}" for each in found[1:4])
            row = {**row, "problems": [*row["problems"], f"other tasks say that it is theirs, too: {others}"]}
        return row

    def siblings(self, row: Row) -> list[Row]:
        """The jobs of one's task instance, itself among them, newest first."""
        found = self.rows(**{column.key: row[column.key] for column in COLUMNS})
        return sorted(found, key=lambda each: each["submitted_ms"], reverse=True)

    def summary(self, row: Row) -> tuple[JobSummary, list[str]]:
        """The whole summary of a row, and what of it could not be read."""
        keys = [JOB_KEY + row["application_id"], DETAILS_KEY + row["application_id"]]
        where = [column == row[column.key] for column in COLUMNS]
        query = select(Stored.key, VALUE).where(Stored.key.in_(keys), *where)
        found: dict[str, str] = dict(self.session.execute(query).all())
        parts = [plain_of(found.get(key)) for key in keys]
        own = {name: row[name] for name in _REQUIRED}
        summary, problems = read_summary({**parts[0][0], **parts[1][0], **own})
        return summary, [*parts[0][1], *parts[1][1], *problems]

    def _rows(self, *where: ColumnElement[bool]) -> list[Row]:
        # Asked of the database, so that the time that it takes tells nobody what there is of other DAGs. The newest
        # first, in each thread: what another thread has parsed shortly before is not parsed again.
        query = select(*HEAD).where(Stored.dag_id.in_(self.dags), *where).order_by(Stored.id.desc())
        found: dict[int, Row] = {}
        for heads in self.session.execute(query).partitions(BATCH):  # garbage that dies young
            found |= MEMORY.rows(self.session, heads)
        self._add_states(found)
        return [found[row_id] for row_id in sorted(found)]

    def _add_states(self, found: dict[int, Row]) -> None:
        """To those without a verdict, by their task instances.

        These few are read once more, each with its task instance: of two queries the second might find the end of a
        task whose job had none in the first. Joining all of them is slow where the database has not yet counted its
        tables (PostgreSQL 15: 0.44 s of 10,000 jobs, and 0.02 s without).
        """
        newest = _newest(found.values())
        unended = [row_id for row_id, row in found.items() if row["state"] is None]
        for start in range(0, len(unended), BATCH):
            some = unended[start : start + BATCH]
            query = select(*HEAD, TaskInstance.state).select_from(Stored).outerjoin(TaskInstance, _INSTANCE)
            heads = self.session.execute(query.where(Stored.id.in_(some))).all()
            rows = MEMORY.rows(self.session, heads)
            for each in heads:
                if (row := rows.get(each.id)) is not None:
                    found[each.id] = row if row["state"] is not None else _with_state(row, each.state, newest)
            for row_id in set(some) - set(rows):  # deleted meanwhile
                del found[row_id]


def _instance(row: Row) -> tuple[Any, ...]:
    return row["dag_id"], row["run_id"], row["task_id"], row["map_index"]


def _newest(rows: Iterable[Row]) -> dict[tuple[Any, ...], float]:
    """When each task instance has submitted its newest application."""
    found: dict[tuple[Any, ...], float] = {}
    for row in rows:
        key = _instance(row)
        if row["submitted_ms"] >= found.get(key, 0.0):
            found[key] = row["submitted_ms"]
    return found


def _with_state(row: Row, task_state: str | None, newest: dict[tuple[Any, ...], float]) -> Row:
    return with_state(row, task_state, is_newest=newest[_instance(row)] == row["submitted_ms"])
