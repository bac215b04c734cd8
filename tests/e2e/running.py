"""Running rows: one after the other, or side by side where the order does not matter."""

from __future__ import annotations

import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.e2e.field import Field
from tests.e2e.installation import Installation
from tests.e2e.row import Row
from tests.e2e.table import Outcome


def run_one(row: Row, field: Field) -> Outcome:
    """Whatever a row raises is its verdict; what is known of its runs lies in its folder then. Raises AirflowError."""
    begun = time.monotonic()
    seen = "did not get to its end"
    try:
        seen = row.run(field)
        field.conclude()
    except Exception as error:  # noqa: BLE001 - the other rows are to run
        field.problems.append(f"{type(error).__name__}: {error}")
        (field.folder / "error.txt").write_text(traceback.format_exc())
    if field.problems:
        (field.folder / "report.txt").write_text(field.report())
    seconds = time.monotonic() - begun
    field.mend()
    return Outcome(row, seen, field.problems, seconds)


def run_side_by_side(rows: Sequence[Row], installation: Installation, output: Path, at_once: int) -> list[Outcome]:
    """As many as that at a time, and those that others would notice at last and alone."""

    def run(row: Row) -> Outcome:
        return run_one(row, Field(installation, output / row.name))

    with ThreadPoolExecutor(at_once) as pool:
        outcomes = list(pool.map(run, [row for row in rows if not row.alone]))
    return outcomes + [run(row) for row in rows if row.alone]
