"""The rows, a file for each family of libraries."""

from __future__ import annotations

from tests.libraries.row import ROWS, Row
from tests.libraries.rows import (  # noqa: F401 - they fill ROWS
    files,
    jax,
    keras,
    sb3,
    sklearn,
    tensorflow,
    torch,
    trainers,
    xgboost,
)

KINDS = ("sklearn", "torch", "trainers", "jax", "keras", "tensorflow", "xgboost", "sb3", "files")


def in_order() -> list[Row]:
    """Return all rows in the order of the table."""
    return sorted(ROWS.values(), key=lambda row: KINDS.index(row.kind))
