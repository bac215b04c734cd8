"""The rows, a file for each family of libraries."""

from __future__ import annotations

from tests.libraries.row import ROWS, Row
from tests.libraries.rows import files, jax, keras, sb3, sklearn, torch, trainers, xgboost  # noqa: F401 - fill ROWS

KINDS = ("sklearn", "torch", "trainers", "jax", "keras", "xgboost", "sb3", "files")


def in_order() -> list[Row]:
    """Return all rows in the order of the table."""
    return sorted(ROWS.values(), key=lambda row: KINDS.index(row.kind))
