"""The rows, a file for each kind."""

from __future__ import annotations

from tests.e2e.row import ROWS, Row
from tests.e2e.rows import (  # noqa: F401 - they fill ROWS
    backfills,
    bundles,
    form,
    limits,
    mapped,
    marks,
    restarts,
    retries,
    stale,
    testing,
    workers,
)

KINDS = (
    "form",
    "marks",
    "workers",
    "restarts",
    "limits",
    "retries",
    "backfills",
    "mapped",
    "bundles",
    "stale",
    "testing",
)


def in_order() -> list[Row]:
    """All rows, as the table has them."""
    return sorted(ROWS.values(), key=lambda row: KINDS.index(row.kind))
