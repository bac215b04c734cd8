"""The jobs of a DAG over its logical dates: what backfills fill in, and the gaps that they have left."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import attrs
from airflow.models.dagrun import DagRun
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from tony_provider.plugins.portal.job_row import Row

_RUNS = 1000  # the newest, at most
_FIELDS = ("application_id", "state", "metrics", "duration_s", "waiting_s", "restarts")
_HOURS = ("memory_gb_hours", "vcore_hours", "gpu_hours")


@attrs.frozen
class DagDate:
    """A run of a DAG, and the date that it is for."""

    run_id: str
    date: datetime


def runs_of(session: Session, dag_id: str) -> list[DagDate]:
    """The newest runs of the DAG, by date. A run without a logical date is for the time after which it may run."""
    date = func.coalesce(DagRun.logical_date, DagRun.run_after)
    query = select(DagRun.run_id, DagRun.logical_date, DagRun.run_after).where(DagRun.dag_id == dag_id)
    found = session.execute(query.order_by(date.desc()).limit(_RUNS)).all()
    return [DagDate(each.run_id, each.logical_date or each.run_after) for each in reversed(found)]


def dates_of(rows: Iterable[Row], runs: list[DagDate]) -> list[dict[str, Any]]:
    """For each task, and each mapped instance of one, a point for each run: its newest job, or a gap."""
    by_task: dict[tuple[str, int], dict[str, Row]] = defaultdict(dict)
    for row in sorted(rows, key=lambda row: (row["try_number"], row["submitted_ms"])):
        by_task[row["task_id"], row["map_index"]][row["run_id"]] = row
    return [
        {
            "task_id": task_id,
            "map_index": map_index,
            "metrics": sorted({name for row in found.values() for name in row["metrics"]}),
            "points": [_point(run, found.get(run.run_id)) for run in runs],
        }
        for (task_id, map_index), found in sorted(by_task.items())
    ]


def _point(run: DagDate, row: Row | None) -> dict[str, Any]:
    point: dict[str, Any] = {"date": run.date.isoformat(), "run_id": run.run_id}
    return point | {name: row[name] if row is not None else None for name in (*_FIELDS, *_HOURS)}
