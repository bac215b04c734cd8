"""Which jobs of a list are asked for, in which order."""

from __future__ import annotations

from collections.abc import Iterable, Set
from datetime import UTC, datetime
from typing import Any

import attrs

from tony_provider.plugins.portal.job_row import Row

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
# The names that people order by, and the fields behind them.
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
    """What a list may leave out; a field that is empty leaves out nothing."""

    user: str = ""
    verdict: str = ""  # states, with commas between them
    text: str = ""  # is in one of the fields that people know a job by; in upper or lower case
    after: datetime | None = None  # submitted then or later
    before: datetime | None = None  # submitted before that
    date_after: datetime | None = None  # the run's date is then or later; a job without one is left out
    date_before: datetime | None = None  # the run's date is before that

    def chosen(self, rows: Iterable[Row]) -> list[Row]:
        states = {each.strip().upper() for each in self.verdict.split(",") if each.strip()}
        words = set(self.text.casefold().split())  # an address may say one thousands of times
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
    """By the field that ``order`` names, downwards after a minus; those without a value last. Raises KeyError."""
    field, down = ORDERS[order.removeprefix("-")], order.startswith("-")
    known = sorted((row for row in rows if row[field] is not None), key=lambda row: _sortable(row, field), reverse=down)
    return known + [row for row in rows if row[field] is None]


def _sortable(row: Row, field: str) -> tuple[Any, ...]:
    return row[field], row["submitted_ms"], row["application_id"]


def _has(row: Row, words: Set[str]) -> bool:
    text = "\n".join(str(row[field]) for field in _SEARCHED if row[field]).casefold()
    return all(word in text for word in words)


def _is_between(epoch_ms: float | None, after: datetime | None, before: datetime | None) -> bool:
    """Whether it is not before the first, and before the second."""
    if after is None and before is None:
        return True
    if epoch_ms is None:
        return False
    return (after is None or epoch_ms >= _epoch_ms(after)) and (before is None or epoch_ms < _epoch_ms(before))


def _date_ms(row: Row) -> float | None:
    try:
        return _epoch_ms(datetime.fromisoformat(row["run_date"]))
    except (TypeError, ValueError):  # there is none, or a damaged summary
        return None


def _epoch_ms(time: datetime) -> float:
    """Of a time in UTC where it says no zone."""
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000
