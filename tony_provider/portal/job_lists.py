"""Filter and sort job lists, find a job's previous run, and arrange a DAG's jobs by date, with schedule gaps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Set
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import attrs
from airflow.models.dagrun import DagRun
from airflow.models.serialized_dag import SerializedDagModel
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from tony_provider.advice.metric_names import ranked
from tony_provider.portal.stored_jobs import Row
from tony_provider.run_dates import known_run_date, run_date

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
    "reason",
    "failure_kind",
    "failed_task",
    "failed_node",
)
# Order names of the API, and the row field that each one sorts by.
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


def ordered(rows: Iterable[Row], order: str) -> list[Row]:
    """Sort rows by the field of ``order``, descending after a minus.

    Rows without a value come last. Raises KeyError for an unknown order.
    """
    field, down = ORDERS[order.removeprefix("-")], order.startswith("-")
    known = sorted((row for row in rows if row[field] is not None), key=lambda row: _sortable(row, field), reverse=down)
    return known + [row for row in rows if row[field] is None]


def _sortable(row: Row, field: str) -> tuple[Any, ...]:
    return row[field], row["submitted_ms"], row["application_id"]


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
    """Return the newest application of the run before ``row``, or None for the first run.

    Runs are ordered by run date if ``row`` has one, otherwise by submission. ``rows`` are the jobs of the same task.
    """
    mine = (row["dag_id"], row["task_id"], row["map_index"])
    others = [
        each
        for each in rows
        if (each["dag_id"], each["task_id"], each["map_index"]) == mine and each["run_id"] != row["run_id"]
    ]
    if row["run_date"] is not None:
        earlier = [each for each in others if each["run_date"] and each["run_date"] < row["run_date"]]
        key = "run_date"
    else:
        earlier = [each for each in others if each["submitted_ms"] < row["submitted_ms"]]
        key = "submitted_ms"
    newest = max(earlier, key=lambda each: (each[key], each["submitted_ms"]), default=None)
    return newest["application_id"] if newest is not None else None


_RUNS = 1000  # newest runs of a DAG that are shown
_SCHEDULES = 100  # schedules whose dates are cached
_schedules: dict[tuple[str, str, datetime, datetime], frozenset[datetime]] = {}
_FIELDS = ("application_id", "state", "metrics", "duration_s", "waiting_s", "restarts")
_HOURS = ("memory_gb_hours", "vcore_hours", "gpu_hours")


@attrs.frozen
class DagDate:
    """A date of a DAG and its run. ``run_id`` is None if the schedule has this date but no run exists."""

    run_id: str | None
    date: datetime


def runs_of(session: Session, dag_id: str) -> list[DagDate]:
    """Return the newest runs of the DAG, ordered by date, without those whose date is unknown."""
    about_date = (DagRun.partition_key, DagRun.partition_date, DagRun.logical_date, DagRun.run_after)
    newest_first = func.coalesce(*about_date[1:]).desc()
    query = select(DagRun.run_id, *about_date).where(DagRun.dag_id == dag_id).order_by(newest_first).limit(_RUNS)
    found = [(each.run_id, known_run_date(each)) for each in session.execute(query)]
    runs = [DagDate(run_id, date) for run_id, date in found if date is not None]
    return sorted(runs, key=lambda run: run.date)


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
    return point | {name: row[name] if row is not None else None for name in (*_FIELDS, *_HOURS)}
