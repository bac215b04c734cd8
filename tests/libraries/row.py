"""A row of the table: a program of a library, and how the harness disturbs it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parent / "programs"
MOMENTS = PROGRAMS / "moments.py"


@dataclass(frozen=True)
class Row:
    name: str
    kind: str  # the file in ``rows``
    library: str  # for the table: the library, and what it writes
    program: str  # a file in ``programs``, without its suffix
    packages: tuple[str, ...]  # that the program imports, as the pins name them
    framework: str = "pytorch"
    instances: int = 2  # containers
    command: str = "exec python {program}"
    memory: str = "3GiB"
    arguments: str = ""  # of the program
    environment: dict[str, str] = field(default_factory=dict)
    job: dict[str, Any] = field(default_factory=dict)  # over the specification, only what a user has to write
    saves: tuple[int, ...] = (2, 4, 6, 8)  # steps of four saves, see Training.run
    last: str = ""  # name of the fourth save, if its step has several
    paused_save: int = 0  # step of the save in which the rank pauses, if it is not the second one
    paused_rank: int = 0  # the rank that pauses in the middle of a save
    piece: int = 1  # of the save, after which it pauses
    slow: float = 0.0  # seconds for which this rank pauses in every save
    tolerance: float = 0.0  # between the final weights of two runs
    refused: str = ""  # part of the message for people, if only the first save of each start can be stored
    remark: str = ""  # for the table, if the library guarantees less than equal weights

    @property
    def path(self) -> Path:
        return PROGRAMS / f"{self.program}.py"


ROWS: dict[str, Row] = {}


def add(row: Row) -> None:
    """Have ``python -m tests.libraries`` run this row."""
    assert row.name not in ROWS, row.name
    ROWS[row.name] = row
