"""A row of the table: one fault, the function that does it, and where to find it by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.faults.account import Account
from tests.named_rows import kind_of

if TYPE_CHECKING:
    from tests.faults.field import Field

Run = Callable[["Field"], Account]

TRAIN = "train"  # two workers with TensorFlow's MultiWorkerMirroredStrategy
SERVED = "served"  # a chief, a parameter server and a worker with its ParameterServerStrategy
OVERWRITE = "overwrite"  # a file overwritten again and again, in a program that knows nothing of us
COUNT = "count"  # its stand-in, where TensorFlow adds only minutes


@dataclass(frozen=True)
class Row:
    name: str
    fault: str  # for the table
    program: str
    run: Run

    @property
    def kind(self) -> str:
        """The module in ``rows`` that it stands in."""
        return kind_of(self.run)


ROWS: dict[str, Row] = {}


def row(name: str, fault: str, program: str = TRAIN) -> Callable[[Run], Run]:
    """Have ``python -m tests.faults`` run this function."""

    def add(run: Run) -> Run:
        assert name not in ROWS, name
        ROWS[name] = Row(name, fault, program, run)
        return run

    return add
