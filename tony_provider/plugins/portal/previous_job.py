"""The job before one: of the same task, in the run before."""

from __future__ import annotations

from collections.abc import Iterable

from tony_provider.plugins.portal.job_row import Row


def previous_of(row: Row, rows: Iterable[Row]) -> str | None:
    """The newest application of the run before, by date where both have one, else by submission.

    ``rows``: those of its task. None: it is the first.
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
