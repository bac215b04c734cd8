"""The jobs of a DAG over the dates of its runs: what backfills fill in, and the gaps that they have left."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from itertools import islice
from typing import Any

import attrs
from airflow.models.dagrun import DagRun
from airflow.models.serialized_dag import SerializedDagModel
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from tony_provider.advice.metric_names import ranked
from tony_provider.plugins.portal.job_row import Row
from tony_provider.run_dates import known_run_date, run_date

_RUNS = 1000  # the newest, at most
_SCHEDULES = 100  # whose dates are kept, at most
_schedules: dict[tuple[str, str, datetime, datetime], frozenset[datetime]] = {}
_FIELDS = ("application_id", "state", "metrics", "duration_s", "waiting_s", "restarts")
_HOURS = ("memory_gb_hours", "vcore_hours", "gpu_hours")


@attrs.frozen
class DagDate:
    """A date of a DAG, and the run that is for it: None where its schedule has a date that was never run."""

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
    """And the dates of the DAG's schedule, from the first run to the last, for which there is no run.

    Not those of a schedule that has more than ``_RUNS`` dates in this time.
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
    """The dates of a DAG's schedule, from one to another; of more than ``_RUNS`` some.

    Airflow's timetables take a tenth of a second for five hundred, and open pages ask for the same again and again.
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
    """For each task, and each mapped instance of one, a point for each run: its newest job, or a gap."""
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
