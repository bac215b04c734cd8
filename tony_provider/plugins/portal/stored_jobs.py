"""The summaries in Airflow's database: one query for all that somebody may read, parsed once and then remembered.

Many a list is asked for again every few seconds, and its jobs have ended long ago: what is parsed of a row is kept in
this process until the row changes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

import attrs
from airflow.models.task_state_store import TaskStateStoreModel as Stored
from airflow.models.taskinstance import TaskInstance
from sqlalchemy import Select, and_, select
from sqlalchemy.orm import Session

from tony_provider.cluster.history.job_summary import JobSummary
from tony_provider.cluster.history.summary_parts import DETAILS_KEY, JOB_KEY, plain_of, read_summary
from tony_provider.plugins.portal.job_row import Row, row_of, with_state

_REMEMBERED = 50_000  # rows, at most
_BATCH = 500  # rows whose values are asked for by their ids

# Of a summary, as the row has them: from the database's columns, and checked.
_REQUIRED = ("application_id", "application_dir", "dag_id", "run_id", "task_id", "map_index")
_COLUMNS = (Stored.dag_id, Stored.run_id, Stored.task_id, Stored.map_index)
_INSTANCE = and_(
    TaskInstance.dag_id == Stored.dag_id,
    TaskInstance.task_id == Stored.task_id,
    TaskInstance.run_id == Stored.run_id,
    TaskInstance.map_index == Stored.map_index,
)


class _Memory:
    """The rows that were parsed, by their ids in the database. Safe with threads."""

    def __init__(self) -> None:
        self._rows: dict[int, tuple[datetime, Row]] = {}
        self._lock = threading.Lock()

    def get(self, row_id: int, updated_at: datetime) -> Row | None:
        found = self._rows.get(row_id)
        return found[1] if found is not None and found[0] == updated_at else None

    def put(self, row_id: int, updated_at: datetime, row: Row) -> None:
        with self._lock:
            self._rows.pop(row_id, None)
            while len(self._rows) >= _REMEMBERED:
                del self._rows[next(iter(self._rows))]
            self._rows[row_id] = updated_at, row

    def clear(self) -> None:
        with self._lock:
            self._rows.clear()


_memory = _Memory()


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
        given = zip(_COLUMNS, (dag_id, run_id, task_id, map_index), strict=True)
        conditions = [column == value for column, value in given if value is not None]
        return self._rows(select().where(Stored.key.startswith(JOB_KEY, autoescape=True), *conditions))

    def row(self, application_id: str) -> Row | None:
        """The job with this id; None when there is none in these DAGs."""
        found = self._rows(select().where(Stored.key == JOB_KEY + application_id))
        if not found:
            return None
        # Which state it has depends on what else its task has started.
        first = max(found, key=lambda row: row["submitted_ms"])
        return next((row for row in self.siblings(first) if row["application_id"] == application_id), None)

    def siblings(self, row: Row) -> list[Row]:
        """The jobs of one's task instance, itself among them, newest first."""
        found = self.rows(**{column.key: row[column.key] for column in _COLUMNS})
        return sorted(found, key=lambda each: each["submitted_ms"], reverse=True)

    def summary(self, row: Row) -> tuple[JobSummary, list[str]]:
        """The whole summary of a row, and what of it could not be read."""
        keys = [JOB_KEY + row["application_id"], DETAILS_KEY + row["application_id"]]
        where = [column == row[column.key] for column in _COLUMNS]
        found = dict(self.session.execute(select(Stored.key, Stored.value).where(Stored.key.in_(keys), *where)).all())
        parts = [plain_of(found.get(key)) for key in keys]
        own = {name: row[name] for name in _REQUIRED}
        summary, problems = read_summary({**parts[0][0], **parts[1][0], **own})
        return summary, [*parts[0][1], *parts[1][1], *problems]

    def _rows(self, where: Select[Any]) -> list[Row]:
        query = where.add_columns(Stored.id, Stored.updated_at, Stored.key, TaskInstance.state, *_COLUMNS)
        query = query.select_from(Stored).outerjoin(TaskInstance, _INSTANCE)
        found = [each for each in self.session.execute(query) if each.dag_id in self.dags]
        parsed = {each.id: _memory.get(each.id, each.updated_at) for each in found}
        unknown = {each.id: each for each in found if parsed[each.id] is None}
        for row_id, value in self._values(unknown):
            each = unknown[row_id]
            columns = {column.key: getattr(each, column.key) for column in _COLUMNS}
            parsed[row_id] = new = row_of(columns, each.key, value)
            _memory.put(row_id, each.updated_at, new)
        rows = [(row, each.state) for each in found if (row := parsed[each.id]) is not None]
        newest = _newest(row for row, _ in rows)
        return [row if row["state"] is not None else _open(row, state, newest) for row, state in rows]

    def _values(self, row_ids: Iterable[int]) -> Iterator[tuple[int, str]]:
        ids = list(row_ids)
        for start in range(0, len(ids), _BATCH):
            some = Stored.id.in_(ids[start : start + _BATCH])
            found = self.session.execute(select(Stored.id, Stored.value).where(some))
            yield from ((each.id, each.value) for each in found)


def _instance(row: Row) -> tuple[Any, ...]:
    return row["dag_id"], row["run_id"], row["task_id"], row["map_index"]


def _newest(rows: Iterable[Row]) -> dict[tuple[Any, ...], float]:
    """When each task instance has submitted its newest application."""
    found: dict[tuple[Any, ...], float] = {}
    for row in rows:
        key = _instance(row)
        if row["submitted_ms"] >= found.get(key, 0):
            found[key] = row["submitted_ms"]
    return found


def _open(row: Row, task_state: str | None, newest: dict[tuple[Any, ...], float]) -> Row:
    return with_state(row, task_state, is_newest=newest[_instance(row)] == row["submitted_ms"])
