"""A row of the table: what is done to Airflow, the function that does it, and where to find it by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.named_rows import kind_of

if TYPE_CHECKING:
    from tests.e2e.field import Field

# Says what was seen, for the table; what was wrong it tells the field.
Run = Callable[["Field"], str]


@dataclass(frozen=True)
class Row:
    name: str
    act: str  # for the table
    run: Run

    @property
    def alone(self) -> bool:
        """Whether rows beside it would notice it."""
        return self.kind == "restarts"

    @property
    def kind(self) -> str:
        """The module in ``rows`` that it stands in."""
        return kind_of(self.run)


ROWS: dict[str, Row] = {}


def row(name: str, act: str) -> Callable[[Run], Run]:
    """Have ``python -m tests.e2e`` run this function."""

    def add(run: Run) -> Run:
        assert name not in ROWS, name
        ROWS[name] = Row(name, act, run)
        return run

    return add
