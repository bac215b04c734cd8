"""Running rows: one after the other, or side by side where the order does not matter."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.e2e.field import Field
from tests.e2e.installation import Installation
from tests.e2e.row import Row
from tests.row_tables import NOT_TO_ITS_END, Outcome, run_row


def run_one(row: Row, field: Field) -> Outcome:
    """Raises AirflowError."""
    seen, seconds = run_row(field, lambda: row.run(field))
    return Outcome(row, (row.name, row.act, seen or NOT_TO_ITS_END), field.problems, seconds)


def run_side_by_side(rows: Sequence[Row], installation: Installation, output: Path, at_once: int) -> list[Outcome]:
    """As many as that at a time, and those that others would notice at last and alone."""

    def run(row: Row) -> Outcome:
        return run_one(row, Field(installation, output / row.name, beside=not row.alone))

    with ThreadPoolExecutor(at_once) as pool:
        outcomes = list(pool.map(run, [row for row in rows if not row.alone]))
    installation.airflow.mend()
    return outcomes + [run(row) for row in rows if row.alone]
