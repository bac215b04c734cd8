"""The rows, a file for each kind."""

from __future__ import annotations

from tests.faults.row import ROWS, Row
from tests.faults.rows import (  # noqa: F401 - they fill ROWS
    airflow,
    container,
    limits,
    master,
    node,
    overwriting,
    preemption,
    process,
    queue,
    quota,
    resourcemanager,
    store,
)

KINDS = (
    "process",
    "container",
    "node",
    "master",
    "resourcemanager",
    "store",
    "quota",
    "overwriting",
    "limits",
    "preemption",
    "airflow",
    "queue",
)


def in_order() -> list[Row]:
    """All rows, as the table has them."""
    return sorted(ROWS.values(), key=lambda row: KINDS.index(row.kind))
