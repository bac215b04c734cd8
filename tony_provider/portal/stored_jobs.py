"""Read job summaries from Airflow's task state store, check them, and add each job's state from its task instance.

The portal and the command that rebuilds its list use these rows. A row of a damaged summary lists its problems.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeGuard

import attrs
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from sqlalchemy import and_, case, func, select
from sqlalchemy.orm import Session, synonym
from sqlalchemy.sql.elements import ColumnElement

from tony_provider.cluster.records.summary import DETAILS_KEY, JOB_KEY, JobSummary, plain_of, read_summary
from tony_provider.compat import PORTAL
from tony_provider.runtime.jobspec.problems import shown
from tony_provider.runtime.protocol.status import FinalStatus

if TYPE_CHECKING or PORTAL.is_here:
    from airflow.models.task_state_store import TaskStateStoreModel

    Stored = TaskStateStoreModel
else:
    PORTAL.refuse("The portal")

if not hasattr(Stored, "map_index"):  # Airflow 3.4 renames the column to region_index, but may keep the former name
    Stored.map_index = synonym("region_index")

Row = dict[str, Any]

RUNNING = "RUNNING"  # its task waits for it
UNSEEN = "UNSEEN"  # its task will run again and then report the job's state
UNWATCHED = "UNWATCHED"  # its task does not wait for its end
LOST = "LOST"  # its end is unknown and no task waits for it: the task was ended or cleared, or its worker died
# States of a task instance that waits for its job, or that will run again.
_WAITING = ("running", "deferred")
_TO_COME = ("scheduled", "queued", "restarting", "up_for_retry", "up_for_reschedule")  # for days if no slot is free

_GB, _HOUR = 2**30, 3600.0
_HELD = {"memory_gb_hours": ("memory_bytes", _GB), "vcore_hours": ("vcores", 1), "gpu_hours": ("gpus", 1)}
_VERDICTS = frozenset(each.value for each in FinalStatus)
_NUMBER: tuple[type, ...] = (int, float)
_MOST = 1 << 63
# Types of the members of these fields.
_MEMBERS: dict[str, tuple[type, ...]] = {
    "times": (*_NUMBER, type(None)),
    "metrics": (*_NUMBER, str),
    "warnings": (str,),
}
# Default value of each field, for a damaged summary, and its types.
_FIELDS: dict[str, tuple[Any, tuple[type, ...]]] = {
    "application_dir": ("", (str,)),
    "try_number": (1, (int,)),
    "watched": (True, (bool,)),
    "run_date": (None, (str,)),
    "tony_conn_id": ("", (str,)),
    "proxy_user": (None, (str,)),
    "user": ("", (str,)),
    "queue": ("", (str,)),
    "name": ("", (str,)),
    "framework": ("", (str,)),
    "verdict": (None, (str,)),
    "reason": ("", (str,)),
    "failure_kind": (None, (str,)),
    "failed_task": (None, (str,)),
    "failed_node": (None, (str,)),
    "submitted_ms": (0, _NUMBER),
    "finished_ms": (None, _NUMBER),
    "times": ({}, (dict,)),
    "step": (None, _NUMBER),
    "total_steps": (None, _NUMBER),
    "steps_per_second": (None, (int, float, str)),
    "restarts": (0, _NUMBER),
    "resumed_step": (None, _NUMBER),
    "checkpoint_step": (None, _NUMBER),
    "metrics": ({}, (dict,)),
    "warnings": ([], (list,)),
    "version": (1, (int,)),
}


def row_of(columns: Mapping[str, Any], key: str, value: str) -> Row:
    """Return the row of a stored summary, with the DAG, run and task from the database ``columns``.

    A field that ``value`` lacks, or has in a wrong form, gets its default; wrong forms are listed in ``problems``. The
    ``state`` is the verdict, or None without a verdict.
    """
    plain, problems = plain_of(value)
    row: Row = {"application_id": key.removeprefix(JOB_KEY), **columns}
    for name, (default, types) in _FIELDS.items():
        found = plain.get(name)
        if found is not None and (type(found) not in types or (type(found) is not str and not _is_sound(name, found))):
            problems.append(f"{name} is no {types[0].__name__}, or none that can be")
            found = None
        row[name] = default if found is None else found
    if row["verdict"] is not None and row["verdict"] not in _VERDICTS:
        problems.append(f"the verdict {shown(row['verdict'])} is not known to this release")
    row["state"], row["task_state"] = row["verdict"], None
    row["duration_s"] = (row["finished_ms"] - row["submitted_ms"]) / 1000 if row["finished_ms"] else None
    row["waiting_s"] = _waiting(row["times"])
    row.update(_hours(plain.get("use")))
    row["problems"] = problems
    return row


def with_state(row: Row, task_state: str | None, *, is_newest: bool) -> Row:
    """Return the row of a job without a verdict, with the state that follows from its task instance.

    ``task_state`` is None if the task instance does not exist. ``is_newest`` means that the task instance has started
    no newer application.
    """
    if not row["watched"]:
        state = UNWATCHED
    elif is_newest and task_state in (*_WAITING, *_TO_COME):
        state = RUNNING if task_state in _WAITING else UNSEEN
    else:
        state = LOST
    return {**row, "state": state, "task_state": task_state}


def _waiting(times: Mapping[str, Any]) -> float | None:
    """Return seconds in the queue and in waiting for containers, or None if neither is known."""
    queue, allocation = times.get("queue"), times.get("allocation")
    if not _is_number(queue) and not allocation:
        return None
    return sum((float(each) for each in (queue, allocation) if _is_number(each)), 0.0)


def _hours(use: Any) -> dict[str, float | None]:
    """Return the resource hours that the job's containers held, used or not."""
    found: dict[str, float | None] = dict.fromkeys(_HELD)
    for each in use if isinstance(use, list) else []:
        seconds = each.get("container_seconds") if isinstance(each, dict) else None
        if not _is_number(seconds):
            continue
        for name, (field, unit) in _HELD.items():
            held = each.get(field, 0)
            if _is_number(held):
                found[name] = (found[name] or 0.0) + seconds * held / unit / _HOUR
    return found


def _is_sound(name: str, value: Any) -> bool:
    """Return whether a value of the right type is usable for calculations and display."""
    if name in _MEMBERS:
        members = value.values() if isinstance(value, dict) else value
        return all(type(each) in _MEMBERS[name] for each in members)
    if name.endswith("_ms"):
        return _is_number(value) and 0 <= value < _MOST  # also excludes NaN
    return type(value) is not int or _is_bearable(value)


def _is_number(value: Any) -> TypeGuard[float]:
    return type(value) is float or (type(value) is int and _is_bearable(value))


def _is_bearable(value: int) -> bool:
    """Return whether the integer fits in 64 bits, so that calculations with it work."""
    return -_MOST < value < _MOST


_MOST_ROWS = 50_000  # cached rows
BATCH = 500  # rows in one query

COLUMNS = (Stored.dag_id, Stored.run_id, Stored.task_id, Stored.map_index)
# Columns that show whether a cached row is current. The other columns are read only if it is not.
HEAD = (Stored.id, Stored.updated_at)
_LONGEST = 256 << 10  # characters of a value; ours are below 60 KiB, but any task can store longer ones
VALUE = case((func.length(Stored.value) <= _LONGEST, Stored.value), else_="")
IS_JOB = Stored.key.startswith(JOB_KEY, autoescape=True)


class RowCache:
    """Thread-safe cache of at most 50,000 rows by database id; drops the row that was added first."""

    def __init__(self) -> None:
        self._rows: dict[int, tuple[datetime, Row]] = {}
        self._lock = threading.Lock()

    def rows(self, session: Session, heads: Sequence[Any]) -> dict[int, Row]:
        """Return rows by database id for ``heads``, at most BATCH rows of HEAD. Rows deleted meanwhile are left out."""
        found = {each.id: row for each in heads if (row := self._get(each)) is not None}
        wanted = [each.id for each in heads if each.id not in found]
        if wanted:
            query = select(*HEAD, Stored.key, *COLUMNS, VALUE.label("kept")).where(Stored.id.in_(wanted))
            found |= {each.id: self._row(each) for each in session.execute(query)}
        return found

    def read_ahead(self) -> Iterator[None]:
        """Fill the cache with the newest rows. Each step reads one batch in its own session."""
        older: list[Any] = []
        for _ in range(0, _MOST_ROWS, BATCH):
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
            while len(self._rows) >= _MOST_ROWS:
                del self._rows[next(iter(self._rows))]
            self._rows[head.id] = head.updated_at, row


ROW_CACHE = RowCache()

# Fields of a summary that come from the row, because its values are from database columns or checked.
_REQUIRED = ("application_id", "application_dir", "dag_id", "run_id", "task_id", "map_index")
_INSTANCE = and_(
    TaskInstance.dag_id == Stored.dag_id,
    TaskInstance.task_id == Stored.task_id,
    TaskInstance.run_id == Stored.run_id,
    TaskInstance.map_index == Stored.map_index,
)


@attrs.frozen
class StoredJobs:
    """The jobs of some DAGs, for one request."""

    session: Session
    dags: frozenset[str]  # jobs of other DAGs are hidden

    def rows(
        self,
        *,
        dag_id: str | None = None,
        task_id: str | None = None,
        run_id: str | None = None,
        map_index: int | None = None,
    ) -> list[Row]:
        """Return all jobs that match the arguments, unordered, each with its ``state``."""
        wanted = {"dag_id": dag_id, "run_id": run_id, "task_id": task_id, "map_index": map_index}
        given = {name: value for name, value in wanted.items() if value is not None}
        if any(isinstance(each, str) and "\0" in each for each in given.values()):  # no database has such names
            return []
        return self._rows(IS_JOB, *(column == given[column.key] for column in COLUMNS if column.key in given))

    def row(self, application_id: str) -> Row | None:
        """Return the job with this id, or None if these DAGs have none.

        If several tasks claim the job, the first one wins, because the real owner stores its claim at the start.
        """
        found = self._rows(Stored.key == JOB_KEY + application_id) if "\0" not in application_id else []
        if not found:
            return None
        # The state depends on what else the task instance has started.
        row = next((row for row in self.siblings(found[0]) if row["application_id"] == application_id), None)
        if row is not None and len(found) > 1:
            others = ", ".join(f"{each['task_id']} of {each['dag_id']}" for each in found[1:4])
            row = {**row, "problems": [*row["problems"], f"other tasks say that it is theirs, too: {others}"]}
        return row

    def siblings(self, row: Row) -> list[Row]:
        """Return all jobs of the row's task instance, including the row, newest first."""
        found = self.rows(**{column.key: row[column.key] for column in COLUMNS})
        return sorted(found, key=lambda each: each["submitted_ms"], reverse=True)

    def summary(self, row: Row) -> tuple[JobSummary, list[str]]:
        """Return the whole summary of a row, and the problems with reading it."""
        keys = [JOB_KEY + row["application_id"], DETAILS_KEY + row["application_id"]]
        where = [column == row[column.key] for column in COLUMNS]
        query = select(Stored.key, VALUE).where(Stored.key.in_(keys), *where)
        found: dict[str, str] = dict(self.session.execute(query).all())
        parts = [plain_of(found.get(key)) for key in keys]
        own = {name: row[name] for name in _REQUIRED}
        summary, problems = read_summary({**parts[0][0], **parts[1][0], **own})
        return summary, [*parts[0][1], *parts[1][1], *problems]

    def _rows(self, *where: ColumnElement[bool]) -> list[Row]:
        # The query selects the DAGs, so that response times reveal nothing about other DAGs. Each thread reads the
        # newest jobs first, so that it can use rows that another thread has just parsed.
        query = select(*HEAD).where(Stored.dag_id.in_(self.dags), *where).order_by(Stored.id.desc())
        found: dict[int, Row] = {}
        # small batches, so that the garbage collector frees them early
        for heads in self.session.execute(query).partitions(BATCH):
            found |= ROW_CACHE.rows(self.session, heads)
        self._add_states(found)
        return [found[row_id] for row_id in sorted(found)]

    def _add_states(self, found: dict[int, Row]) -> None:
        """Add the states of jobs without a verdict, from their task instances.

        One query reads these few jobs again together with their task instances. With two queries the second could find
        that a task has ended, although the first found no verdict. Joining all jobs is slow until the database has
        analyzed its tables (PostgreSQL 15: 0.44 s for 10,000 jobs, 0.02 s without the join).
        """
        newest = _newest(found.values())
        unended = [row_id for row_id, row in found.items() if row["state"] is None]
        for start in range(0, len(unended), BATCH):
            some = unended[start : start + BATCH]
            query = select(*HEAD, TaskInstance.state).select_from(Stored).outerjoin(TaskInstance, _INSTANCE)
            heads = self.session.execute(query.where(Stored.id.in_(some))).all()
            rows = ROW_CACHE.rows(self.session, heads)
            for each in heads:
                if (row := rows.get(each.id)) is not None:
                    found[each.id] = row if row["state"] is not None else _with_state(row, each.state, newest)
            for row_id in set(some) - set(rows):  # deleted meanwhile
                del found[row_id]


def _instance(row: Row) -> tuple[Any, ...]:
    return row["dag_id"], row["run_id"], row["task_id"], row["map_index"]


def _newest(rows: Iterable[Row]) -> dict[tuple[Any, ...], float]:
    """Return the submission time of the newest application of each task instance."""
    found: dict[tuple[Any, ...], float] = {}
    for row in rows:
        key = _instance(row)
        if row["submitted_ms"] >= found.get(key, 0.0):
            found[key] = row["submitted_ms"]
    return found


def _with_state(row: Row, task_state: str | None, newest: dict[tuple[Any, ...], float]) -> Row:
    return with_state(row, task_state, is_newest=newest[_instance(row)] == row["submitted_ms"])
