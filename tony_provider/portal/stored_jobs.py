"""The portal's job lists: read summaries from Airflow's task state store, check them, filter them and sort them.

Each job gets the state of its task instance. The module also finds a job's previous run, and arranges a DAG's jobs by
date, with the dates of the schedule that have no run. The portal and the command that rebuilds its list use these rows.
A row of a damaged summary lists the summary's problems.
"""

from __future__ import annotations

import math
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from datetime import UTC, datetime
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, TypeGuard

import attrs
from airflow.models.dagrun import DagRun
from airflow.models.serialized_dag import SerializedDagModel
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from sqlalchemy import and_, case, func, select
from sqlalchemy.orm import Session, synonym
from sqlalchemy.sql.elements import ColumnElement

from tony_provider.advice.case import ranked
from tony_provider.cluster.records.summary import (
    DETAILS,
    DETAILS_KEY,
    JOB_KEY,
    REFUSAL_KEY,
    JobSummary,
    Refusal,
    plain_of,
    read_summary,
)
from tony_provider.compat import PORTAL
from tony_provider.run_dates import known_run_date, run_date
from tony_provider.runtime.common.codec import CodecError, from_plain
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

SUSPENDED = "SUSPENDED"  # no end is known, and the newest status says that all containers are released
RUNNING = "RUNNING"  # no end is known, and the task waits for the job
UNSEEN = "UNSEEN"  # no end is known, but the task will run again and then report the job's state
UNWATCHED = "UNWATCHED"  # no end is known, because the task does not wait for it
LOST = "LOST"  # its end is unknown and no task waits for it: the task was ended or cleared, or its worker died
# States of a task instance that waits for its job, or that will run again.
_WAITING = ("running", "deferred")
_TO_COME = ("scheduled", "queued", "restarting", "up_for_retry", "up_for_reschedule")  # for days if no slot is free

_GB, _HOUR = 2**30, 3600.0
_HELD = {"memory_gb_hours": ("memory_bytes", _GB), "vcore_hours": ("vcores", 1), "gpu_hours": ("gpus", 1)}
_VERDICTS = frozenset(each.value for each in FinalStatus)
_NUMBER: tuple[type, ...] = (int, float)
_MOST = 1 << 63
# Allowed types of the members of mappings and lists in these fields.
_MEMBERS: dict[str, tuple[type, ...]] = {
    "times": (*_NUMBER, type(None)),
    "metrics": (*_NUMBER, str),
    "parameters": (str,),
    "warnings": (str,),
}
# Allowed types in a row of the table, by the type of the field in JobSummary.
_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("str", "FinalStatus"), (str,)),
    **dict.fromkeys(("dict", "TimeUse"), (dict,)),
    "bool": (bool,),
    "int": _NUMBER,
    "float": (*_NUMBER, str),
    "list": (list,),
}
# Fields of a row: the value if the summary lacks a field or has it in a wrong form, and the allowed types.
_DEFAULTS = {
    **attrs.asdict(JobSummary(application_id="", application_dir="", dag_id="", run_id="", task_id="")),
    "times": {},  # unknown, not times of 0 s
    "tony_conn_id": "",  # unknown, not the default connection
}
_LEFT_OUT = {"application_id", "dag_id", "run_id", "task_id", "map_index"}  # the row has them from its key and columns
_LEFT_OUT |= {"use", *DETAILS}  # the row does not show them as they are
_KINDS = {
    # ``field.type`` is text only until another module resolves the types of the class.
    field.name: _TYPES[JobSummary.__annotations__[field.name].partition("[")[0].partition(" ")[0]]
    for field in attrs.fields(JobSummary)
    if field.name not in _LEFT_OUT
} | dict.fromkeys(("try_number", "version"), (int,))


def row_of(columns: Mapping[str, Any], key: str, value: str) -> Row:
    """Return the row of a stored summary, with the DAG, run and task from the database ``columns``.

    A field that ``value`` lacks, or has in a wrong form, gets its default; fields in a wrong form are listed in
    ``problems``. The ``state`` is the verdict, or None without a verdict.
    """
    plain, problems = plain_of(value)
    row: Row = {"application_id": key.removeprefix(JOB_KEY), **columns}
    for name, types in _KINDS.items():
        found = plain.get(name)
        if found is not None and (type(found) not in types or (type(found) is not str and not _is_sound(name, found))):
            problems.append(f"{name} is not a valid {types[0].__name__}")
            found = None
        row[name] = _DEFAULTS[name] if found is None else found
    if row["verdict"] is not None and row["verdict"] not in _VERDICTS:
        problems.append(f"the verdict {shown(row['verdict'])} is not known to this release")
    row["state"], row["task_state"] = row["verdict"], None
    row["duration_s"] = (row["finished_ms"] - row["submitted_ms"]) / 1000 if row["finished_ms"] else None
    row["waiting_s"] = waiting_of(row["times"])
    row.update(hours_of(plain.get("use")))
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


def waiting_of(times: Mapping[str, Any]) -> float | None:
    """Return the seconds that the job waited in the queue and for containers, or None if neither is known."""
    queue, allocation = times.get("queue"), times.get("allocation")
    if not _is_number(queue) and not allocation:
        return None
    return sum((float(each) for each in (queue, allocation) if _is_number(each)), 0.0)


def hours_of(use: Any) -> dict[str, float | None]:
    """Return the hours of memory, vcores and GPUs that the job's containers reserved, even if it did not use them."""
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
        if wanted := [each.id for each in heads if each.id not in found]:
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

# Fields of a summary that are taken from its row, because the row has checked values, or values from database columns.
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

    problem: ClassVar[str] = ""  # see ``ConnectionJobs``

    def close(self) -> None:
        """Free the database connection, before a wait for the store."""
        self.session.close()

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

        If several tasks have stored a summary of the job, the first one wins: the task that really started the job
        stores its summary at the start.
        """
        found = self._rows(Stored.key == JOB_KEY + application_id) if "\0" not in application_id else []
        if not found:
            return None
        # The state also depends on the other applications that the task instance has started.
        row = next((row for row in self.siblings(found[0]) if row["application_id"] == application_id), None)
        if row is not None and len(found) > 1:
            others = ", ".join(f"{each['task_id']} of {each['dag_id']}" for each in found[1:4])
            row = {**row, "problems": [*row["problems"], f"other tasks also claim this job: {others}"]}
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

    def refusal(self, dag_id: str, run_id: str, task_id: str, map_index: int) -> Refusal | None:
        """Return why the newest job of a task instance was refused, or None."""
        wanted = zip(COLUMNS, (dag_id, run_id, task_id, map_index), strict=True)
        query = select(VALUE).where(Stored.key == REFUSAL_KEY, *(column == value for column, value in wanted))
        plain = plain_of(self.session.scalar(query))[0] if dag_id in self.dags and "\0" not in run_id + task_id else {}
        try:
            return from_plain(plain, Refusal)
        except CodecError:  # there is none, or another program has written it
            return None

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

        One query reads these few jobs again together with their task instances. With two queries, a task could end
        between them, and its job would look lost. Joining all jobs is slow until the database has analyzed its tables
        (PostgreSQL 15: 0.44 s for 10,000 jobs, 0.02 s without the join).
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
                    is_newest = newest[_instance(row)] == row["submitted_ms"]
                    found[each.id] = row if row["state"] else with_state(row, each.state, is_newest=is_newest)
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


_SEARCHED = (
    "application_id",
    "name",
    "dag_id",
    "task_id",
    "run_id",
    "user",
    "queue",
    "framework",
    "state",
    "cause",
    "reason",
    "failure_kind",
    "failed_task",
    "failed_node",
)
# The row field by which each order of the API sorts.
ORDERS = {
    "submitted": "submitted_ms",
    "finished": "finished_ms",
    "date": "run_date",
    "dag": "dag_id",
    "task": "task_id",
    "run": "run_id",
    "try": "try_number",
    "name": "name",
    "user": "user",
    "queue": "queue",
    "state": "state",
    "step": "step",
    "restarts": "restarts",
    "duration": "duration_s",
    "waiting": "waiting_s",
    "memory": "memory_gb_hours",
    "vcores": "vcore_hours",
    "gpus": "gpu_hours",
}


@attrs.frozen(kw_only=True)
class JobFilter:
    """Conditions of a job list. An empty field matches all jobs."""

    user: str = ""
    verdict: str = ""  # comma-separated states
    text: str = ""  # words that must each occur in one of ``_SEARCHED``, ignoring case
    after: datetime | None = None  # submitted at this time or later
    before: datetime | None = None  # submitted before this time
    date_after: datetime | None = None  # run date at this time or later; excludes jobs without a run date
    date_before: datetime | None = None  # run date before this time

    def chosen(self, rows: Iterable[Row]) -> list[Row]:
        states = {each.strip().upper() for each in self.verdict.split(",") if each.strip()}
        words = set(self.text.casefold().split())  # a URL may repeat a word thousands of times
        return [
            row
            for row in rows
            if (not self.user or row["user"] == self.user)
            and (not states or row["state"] in states)
            and _is_between(row["submitted_ms"], self.after, self.before)
            and _is_between(_date_ms(row), self.date_after, self.date_before)
            and (not words or _has(row, words))
        ]


_COLUMNS = {"metric": "metrics", "param": "parameters"}  # row field of each kind of column
_MOST_COLUMNS = 500
COLUMN = "(metric|param):.+"  # pattern of a column: the name of a metric or parameter


def columns_of(rows: Sequence[Row]) -> list[str]:
    """Return the columns in which any of the rows has a value, at most ``_MOST_COLUMNS`` of each kind."""
    columns: list[str] = []
    for kind, field in _COLUMNS.items():
        used = Counter(name for row in rows for name in row[field]).most_common(_MOST_COLUMNS)
        columns += [f"{kind}:{name}" for name in ranked(name for name, _ in used)]
    return columns


def with_columns(row: Row, columns: Iterable[str]) -> Row:
    """Return the row with the values of ``columns`` instead of all its metrics and parameters."""
    found = {column: value for column in columns if (value := _in_column(row, column)) is not None}
    return {name: value for name, value in row.items() if name not in _COLUMNS.values()} | {"columns": found}


def _in_column(row: Row, column: str) -> Any:
    kind, _, name = column.partition(":")
    return row[_COLUMNS[kind]].get(name)


def ordered(rows: Sequence[Row], order: str) -> list[Row]:
    """Sort rows by the field or column of ``order``, descending after a minus.

    In a column, numbers come before other texts. Rows without a value come last. Raises KeyError for an unknown order.
    """
    name, down = order.removeprefix("-"), order.startswith("-")
    values = [_number_or_text(_in_column(row, name)) if name not in ORDERS else row[ORDERS[name]] for row in rows]
    keyed = list(zip(values, map(itemgetter("submitted_ms", "application_id"), rows), rows, strict=True))
    known = [each for each in keyed if each[0] is not None]
    known.sort(key=lambda each: (isinstance(each[0], str) != down, *each[:2]), reverse=down)
    return [row for *_, row in known] + [row for value, _, row in keyed if value is None]


def _number_or_text(value: Any) -> Any:
    """Return a value as a number if possible, and None for NaN, which has no order."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return value
    return None if math.isnan(number) else number


def _has(row: Row, words: Set[str]) -> bool:
    text = "\n".join(str(row[field]) for field in _SEARCHED if row[field]).casefold()
    return all(word in text for word in words)


def _is_between(epoch_ms: float | None, after: datetime | None, before: datetime | None) -> bool:
    """Return whether the time is in [``after``, ``before``)."""
    if after is None and before is None:
        return True
    if epoch_ms is None:
        return False
    return (after is None or epoch_ms >= _epoch_ms(after)) and (before is None or epoch_ms < _epoch_ms(before))


def _date_ms(row: Row) -> float | None:
    try:
        return _epoch_ms(datetime.fromisoformat(row["run_date"]))
    except (TypeError, ValueError):  # no run date, or a damaged summary
        return None


def _epoch_ms(time: datetime) -> float:
    """Return epoch milliseconds; a time without a zone is UTC."""
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000


def previous_of(row: Row, rows: Iterable[Row]) -> str | None:
    """Return the ID of the newest application of the run before ``row``'s run, or None for the first run.

    Runs are ordered by run date if ``row`` has one, otherwise by submission. ``rows`` are the jobs of the same task.
    """
    mine = (row["dag_id"], row["task_id"], row["map_index"])
    others = [
        each
        for each in rows
        if (each["dag_id"], each["task_id"], each["map_index"]) == mine and each["run_id"] != row["run_id"]
    ]
    key = "submitted_ms" if row["run_date"] is None else "run_date"
    earlier = [each for each in others if each[key] not in (None, "") and each[key] < row[key]]
    newest = max(earlier, key=lambda each: (each[key], each["submitted_ms"]), default=None)
    return newest["application_id"] if newest else None


def describe_retries(session: Session, row: Row) -> str:
    """Return what happens to the Airflow task after a stop of the job, or "" if the task instance does not exist."""
    which = [getattr(TaskInstance, name) == row[name] for name in ("dag_id", "run_id", "task_id", "map_index")]
    found = session.execute(select(TaskInstance.try_number, TaskInstance.max_tries).where(*which)).one_or_none()
    if found is None:
        return ""
    left = found.max_tries - found.try_number + 1
    if left <= 0:
        return "Its Airflow task then fails, and has no retries left."
    return (
        f"Its Airflow task then fails, with {left} of its retries left. A retry submits the job again from its newest "
        "checkpoint. To end the training permanently, mark the task as failed instead."
    )


_RUNS = 1000  # newest runs of a DAG that are shown
_SCHEDULES = 100  # schedules whose dates are cached
_schedules: dict[tuple[str, str, datetime, datetime], frozenset[datetime]] = {}
_FILTER_FIELDS = ("application_id", "state", "metrics", "duration_s", "waiting_s", "restarts")
_HOURS = ("memory_gb_hours", "vcore_hours", "gpu_hours")


@attrs.frozen
class DagDate:
    """A date of a DAG and its run. ``run_id`` is None if the schedule has this date but no run exists."""

    run_id: str | None
    date: datetime


def runs_of(session: Session, dag_id: str) -> list[DagDate]:
    """Return the newest runs of the DAG, ordered by date. Runs with an unknown date are left out."""
    about_date = (DagRun.partition_key, DagRun.partition_date, DagRun.logical_date, DagRun.run_after)
    newest_first = func.coalesce(*about_date[1:]).desc()
    query = select(DagRun.run_id, *about_date).where(DagRun.dag_id == dag_id).order_by(newest_first).limit(_RUNS)
    found = [(each.run_id, known_run_date(each)) for each in session.execute(query)]
    runs = [DagDate(run_id, date) for run_id, date in found if date is not None]
    return sorted(runs, key=lambda run: run.date)


def states_of_runs(session: Session, dag_id: str) -> dict[str, str]:
    """Return the state of each run of the DAG, by the run's ID."""
    query = select(DagRun.run_id, DagRun.state).where(DagRun.dag_id == dag_id)
    return {each.run_id: str(each.state) for each in session.execute(query)}


def with_gaps(session: Session, dag_id: str, runs: list[DagDate]) -> list[DagDate]:
    """Add the dates of the DAG's schedule, between the first and the last run, that have no run.

    Return ``runs`` unchanged if the schedule has more than ``_RUNS`` dates in this time.
    """
    serialized = SerializedDagModel.get(dag_id, session=session)
    if serialized is None or len(runs) < 2:
        return runs
    scheduled = _scheduled(serialized, runs[0].date, runs[-1].date)
    if len(scheduled) > _RUNS:
        return runs
    gaps = [DagDate(None, date) for date in scheduled - {run.date for run in runs}]
    return sorted([*runs, *gaps], key=lambda each: each.date)


def _scheduled(serialized: SerializedDagModel, first: datetime, last: datetime) -> frozenset[datetime]:
    """Return the dates of a DAG's schedule between two times, at most ``_RUNS + 1`` of them.

    The result is cached: Airflow's timetables need 0.1 s for 500 dates, and open pages repeat the same request.
    """
    key = (serialized.dag_id, serialized.dag_hash, first, last)
    found = _schedules.get(key)
    if found is None:
        infos = islice(serialized.dag.iter_dagrun_infos_between(first, last), _RUNS + 1)
        found = frozenset(run_date(info) for info in infos)
        if len(_schedules) >= _SCHEDULES:
            _schedules.clear()
        _schedules[key] = found
    return found


def dates_of(rows: Iterable[Row], runs: list[DagDate]) -> list[dict[str, Any]]:
    """Return one entry for each task or mapped instance, with a point for each run: its newest job, or a gap."""
    by_task: dict[tuple[str, int], dict[str, Row]] = defaultdict(dict)
    for row in sorted(rows, key=lambda row: (row["try_number"], row["submitted_ms"])):
        by_task[row["task_id"], row["map_index"]][row["run_id"]] = row
    return [
        {
            "task_id": task_id,
            "map_index": map_index,
            "metrics": ranked({name for row in found.values() for name in row["metrics"]}),
            "points": [_point(run, found.get(run.run_id or "")) for run in runs],
        }
        for (task_id, map_index), found in sorted(by_task.items())
    ]


def _point(run: DagDate, row: Row | None) -> dict[str, Any]:
    point: dict[str, Any] = {"date": run.date.isoformat(), "run_id": run.run_id}
    return point | {name: row[name] if row else None for name in (*_FILTER_FIELDS, *_HOURS)}
