"""The table of Airflow's database with the state of tasks, for the portal and the command that rebuilds its list."""

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

if not hasattr(Stored, "map_index"):  # Airflow 3.4 calls the column region_index, also where it keeps the former name
    Stored.map_index = synonym("region_index")

Row = dict[str, Any]

RUNNING = "RUNNING"  # its task waits for it
UNSEEN = "UNSEEN"  # its task is to run again, and will say then what became of it
UNWATCHED = "UNWATCHED"  # its task does not wait for its end
LOST = "LOST"  # nobody has seen its end, nor waits for it: its task was ended or cleared, or its worker died
# States of a task instance.
_WAITING = ("running", "deferred")
_TO_COME = ("scheduled", "queued", "restarting", "up_for_retry", "up_for_reschedule")  # for days, where no slot is free

_GB, _HOUR = 2**30, 3600.0
_HELD = {"memory_gb_hours": ("memory_bytes", _GB), "vcore_hours": ("vcores", 1), "gpu_hours": ("gpus", 1)}
_VERDICTS = frozenset(each.value for each in FinalStatus)
_NUMBER: tuple[type, ...] = (int, float)
_MOST = 1 << 63
# What the parts of these fields are.
_MEMBERS: dict[str, tuple[type, ...]] = {
    "times": (*_NUMBER, type(None)),
    "metrics": (*_NUMBER, str),
    "warnings": (str,),
}
# What a field of a damaged summary is taken for, and what its type is otherwise.
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
    """The row of a stored summary. Where it comes from is what ``columns`` of the database say, and nothing else.

    What ``value`` lacks or has in another form than it should is left out, and told in ``problems``. Its ``state`` is
    the verdict, if there is one.
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
    """The row of a job without a verdict, with its state by that of its task instance: ``task_state``, None for none.

    ``is_newest``: the task instance has started no other application since.
    """
    if not row["watched"]:
        state = UNWATCHED
    elif is_newest and task_state in (*_WAITING, *_TO_COME):
        state = RUNNING if task_state in _WAITING else UNSEEN
    else:
        state = LOST
    return {**row, "state": state, "task_state": task_state}


def _waiting(times: Mapping[str, Any]) -> float | None:
    """None where nothing says how long it was in the queue, nor that it waited for containers."""
    queue, allocation = times.get("queue"), times.get("allocation")
    if not _is_number(queue) and not allocation:
        return None
    return sum((float(each) for each in (queue, allocation) if _is_number(each)), 0.0)


def _hours(use: Any) -> dict[str, float | None]:
    """What its containers held, whether it was used or not."""
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
    """Whether a value of the right type is one that can be calculated with and shown."""
    if name in _MEMBERS:
        members = value.values() if isinstance(value, dict) else value
        return all(type(each) in _MEMBERS[name] for each in members)
    if name.endswith("_ms"):
        return _is_number(value) and 0 <= value < _MOST  # nor NaN
    return type(value) is not int or _is_bearable(value)


def _is_number(value: Any) -> TypeGuard[float]:
    return type(value) is float or (type(value) is int and _is_bearable(value))


def _is_bearable(value: int) -> bool:
    """False for a whole number that is too large to be calculated with."""
    return -_MOST < value < _MOST


_MOST_ROWS = 50_000  # rows
BATCH = 500  # rows that are read at a time

COLUMNS = (Stored.dag_id, Stored.run_id, Stored.task_id, Stored.map_index)
# What of a stored summary tells whether its row is kept; the rest is read where it is not.
HEAD = (Stored.id, Stored.updated_at)
_LONGEST = 256 << 10  # of a value; ours are below 60 KiB, and anybody's task may store what it likes
VALUE = case((func.length(Stored.value) <= _LONGEST, Stored.value), else_="")
IS_JOB = Stored.key.startswith(JOB_KEY, autoescape=True)


class RowCache:
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
            found |= ROW_CACHE.rows(self.session, heads)
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
            rows = ROW_CACHE.rows(self.session, heads)
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
