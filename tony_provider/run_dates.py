"""Determine the date of a DAG run.

Summaries, the portal, notifications, templates and the example DAGs all call these functions, so that they show the
same date for a run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tony_provider.runtime.jobspec.problems import shown

# A day or a month, with or without a time. Digits alone do not match, because they may be an ID, such as a customer
# number.
_DATE = re.compile(r"(?P<day>\d{4}-\d{2}(?P<of_month>-\d{2})?)(?P<time>[T ].*)?")


class UndatedRun(ValueError):  # noqa: N818 - named for what is wrong
    """The run is for a partition whose key is not a date."""


def run_date(run: Any) -> datetime:
    """Return the date that a DAG run is for.

    A run of a partition has the date of the partition, because Airflow gives such a run no data interval and may create
    the run years later. Any other run has its logical date or, without one, the time after which it may run.

    ``run`` is any of Airflow's objects for a DAG run (of a task, a callback or the database), or a dictionary of the
    run's fields.

    Raises UndatedRun if the partition has no date.
    """
    key = run_field(run, "partition_key")
    if key is None:
        return _moment(run_field(run, "logical_date") or run_field(run, "run_after"))
    date = run_field(run, "partition_date") or _date_in(key)
    if date is None:
        raise UndatedRun(
            f"The DAG run {run_field(run, 'run_id') or ''} is for the partition {shown(key)}, which is not a date, so "
            "the date of the run is unknown. Use a partition mapper of dates (such as StartOfDayMapper), or name the "
            "date yourself: newest_model(…, before='2026-01-05')"
        )
    return _moment(date)


def known_run_date(run: Any) -> datetime | None:
    """Return the date that a DAG run is for, or None if it is unknown."""
    if run is None or not any(run_field(run, name) for name in ("partition_key", "logical_date", "run_after")):
        return None
    try:
        return run_date(run)
    except UndatedRun:
        return None


def period_end(run: Any) -> datetime:
    """Return the end of the period that a DAG run is for: the end of its data interval, otherwise the run's date.

    Use this function, and not ``run_date``, to compare periods: a model must not start with weights of a later period.

    Raises UndatedRun if the run is for a partition without a date.
    """
    end = None if run_field(run, "partition_key") is not None else run_field(run, "data_interval_end")
    return _moment(end) if end else run_date(run)


def run_field(run: Any, name: str) -> Any:
    """Return a field of a run, or None if the run lacks the field, such as ``partition_key`` before Airflow 3.2.

    ``run`` may also be a mapping, because deadlines pass the run as JSON.
    """
    return run.get(name) if isinstance(run, Mapping) else getattr(run, name, None)


def _date_in(key: str) -> datetime | None:
    found = _DATE.fullmatch(key.strip())
    if found is None:
        return None
    try:
        return datetime.fromisoformat(f"{found['day']}{'' if found['of_month'] else '-01'}{found['time'] or ''}")
    except ValueError:
        return None


def _moment(value: datetime | str) -> datetime:
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
