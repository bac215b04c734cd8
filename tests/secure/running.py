"""Running one row."""

from __future__ import annotations

import time
import traceback

from tests.secure.field import Field
from tests.secure.row import Row
from tests.secure.table import Outcome


def run_one(row: Row, field: Field) -> Outcome:
    """Whatever a row raises is its verdict; what is known of its jobs lies in its folder then. Raises ClusterError."""
    begun = time.monotonic()
    happened = "did not get to its end"
    try:
        happened = row.run(field)
        field.conclude()
    except Exception as error:  # noqa: BLE001 - the other rows are to run
        field.problems.append(f"{type(error).__name__}: {error}")
        (field.folder / "error.txt").write_text(traceback.format_exc())
    if field.problems:
        (field.folder / "problems.txt").write_text("\n\n".join(field.problems))
        for number, victim in enumerate(field.victims):
            (field.folder / f"job-{number}.txt").write_text(victim.job.describe())
    seconds = time.monotonic() - begun
    field.mend()
    return Outcome(row, happened, field.cost, field.problems, seconds)
