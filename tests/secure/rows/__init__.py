"""The rows, a file for each kind."""

from __future__ import annotations

from tests.secure.row import ROWS, Row
from tests.secure.rows import (  # noqa: F401 - they fill ROWS
    acls,
    bombs,
    cache,
    control,
    dag,
    floods,
    forms,
    lifetimes,
    master,
    neighbour,
    orders,
    store,
    tags,
    tickets,
)

KINDS = (
    "tickets",
    "store",
    "control",
    "master",
    "orders",
    "tags",
    "cache",
    "neighbour",
    "floods",
    "bombs",
    "acls",
    "forms",
    "dag",
    "lifetimes",
)


def in_order() -> list[Row]:
    """All rows, as the table has them."""
    return sorted(ROWS.values(), key=lambda row: KINDS.index(row.kind))
