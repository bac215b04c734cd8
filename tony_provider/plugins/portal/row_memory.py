"""The rows of the summaries: parsed once, and then kept in this process until they change in the database.

Many a list is asked for again every few seconds, and its jobs have ended long ago.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from airflow.utils.session import create_session
from sqlalchemy import case, func, select
from sqlalchemy.orm import Session

from tony_provider.airflow_versions.task_state_table import Stored
from tony_provider.cluster.history.summary_parts import JOB_KEY
from tony_provider.plugins.portal.job_row import Row, row_of

_MOST = 50_000  # rows
BATCH = 500  # rows that are read at a time

COLUMNS = (Stored.dag_id, Stored.run_id, Stored.task_id, Stored.map_index)
# What of a stored summary tells whether its row is kept; the rest is read where it is not.
HEAD = (Stored.id, Stored.updated_at)
_LONGEST = 256 << 10  # of a value; ours are below 60 KiB, and anybody's task may store what it likes
VALUE = case((func.length(Stored.value) <= _LONGEST, Stored.value), else_="")
IS_JOB = Stored.key.startswith(JOB_KEY, autoescape=True)


class RowMemory:
    """At most 50,000 rows by their ids in the database, those that came last. Safe with threads."""

    def __init__(self) -> None:
        self._rows: dict[int, tuple[datetime, Row]] = {}
        self._lock = threading.Lock()

    def rows(self, session: Session, heads: Sequence[Any]) -> dict[int, Row]:
        """By their ids in the database. ``heads``: of HEAD, at most BATCH. Without those deleted meanwhile."""
        found = {each.id: row for each in heads if (row := self._get(each)) is not None}
        wanted = [each.id for each in heads if each.id not in found]
        if wanted:
            query = select(*HEAD, Stored.key, *COLUMNS, VALUE.label("kept")).where(Stored.id.in_(wanted))
            found |= {each.id: self._row(each) for each in session.execute(query)}
        return found

    def read_ahead(self) -> Iterator[None]:
        """Reads the newest rows, as many as are kept: some more at each step, each with a session of its own."""
        older: list[Any] = []
        for _ in range(0, _MOST, BATCH):
            with create_session(scoped=False) as session:
                query = select(*HEAD).where(IS_JOB, *older).order_by(Stored.id.desc()).limit(BATCH)
                heads = session.execute(query).all()
                self.rows(session, heads)
            if not heads:
                return
            older = [Stored.id < heads[-1].id]
            yield

    def clear(self) -> None:
        with self._lock:
            self._rows.clear()

    def _get(self, head: Any) -> Row | None:
        found = self._rows.get(head.id)
        return found[1] if found is not None and found[0] == head.updated_at else None

    def _row(self, stored: Any) -> Row:
        row = self._get(stored)
        if row is None:
            row = row_of({column.key: getattr(stored, column.key) for column in COLUMNS}, stored.key, stored.kept)
            self._put(stored, row)
        return row

    def _put(self, head: Any, row: Row) -> None:
        with self._lock:
            self._rows.pop(head.id, None)
            while len(self._rows) >= _MOST:
                del self._rows[next(iter(self._rows))]
            self._rows[head.id] = head.updated_at, row


MEMORY = RowMemory()
