"""A row of the table: one attempt, by whom, the function that makes it, and where to find it by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.named_rows import kind_of

if TYPE_CHECKING:
    from tests.secure.field import Field

# Says what happened, for the table; what was wrong it tells the field.
Run = Callable[["Field"], str]

# The names of clusters, see field.py.
SHARED = "shared"  # that of most rows
SHORT_LIVED = "short-lived"  # whose tokens end within seconds, and whose masters serve https
LENIENT = "lenient"  # whose masters may serve https


@dataclass(frozen=True)
class Row:
    name: str
    attempt: str  # for the table
    by: str
    run: Run
    cluster: str

    @property
    def kind(self) -> str:
        """The module in ``rows`` that it stands in."""
        return kind_of(self.run)


ROWS: dict[str, Row] = {}


def row(name: str, attempt: str, by: str = "bob", cluster: str = SHARED) -> Callable[[Run], Run]:
    """Have ``python -m tests.secure`` run this function."""

    def add(run: Run) -> Run:
        assert name not in ROWS, name
        ROWS[name] = Row(name, attempt, by, run, cluster)
        return run

    return add
