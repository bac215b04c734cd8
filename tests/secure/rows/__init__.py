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
    frameworks,
    imports,
    lifetimes,
    master,
    neighbour,
    orders,
    proxy,
    results,
    store,
    tags,
    tickets,
    tunnels,
)

KINDS = (
    "tickets",
    "store",
    "control",
    "proxy",
    "master",
    "orders",
    "tags",
    "cache",
    "neighbour",
    "tunnels",
    "frameworks",
    "floods",
    "bombs",
    "acls",
    "forms",
    "imports",
    "results",
    "dag",
    "lifetimes",
)


def in_order() -> list[Row]:
    """All rows, as the table has them."""
    return sorted(ROWS.values(), key=lambda row: KINDS.index(row.kind))
