"""Command-line options of a notebook's program. They contain no secret."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

_IDLE, _UNTIL, _KEEP = "--idle", "--until", "--keep"


@dataclass(frozen=True)
class NotebookOptions:
    """Idle limit, end time and size limit of a notebook."""

    idle: float  # seconds without activity after which the notebook ends; 0: no limit
    until: float  # epoch seconds when the notebook ends; 0: never
    keep: int  # size limit in bytes for the work that is kept

    @property
    def arguments(self) -> str:
        """The options as a command line."""
        return f"{_IDLE} {self.idle:g} {_UNTIL} {self.until:.0f} {_KEEP} {self.keep}"

    @classmethod
    def of(cls, arguments: Sequence[str]) -> NotebookOptions:
        """Parse command-line arguments. Exits with a message if a value is no number."""
        parser = argparse.ArgumentParser(prog="python -m tony_notebook")
        parser.add_argument(_IDLE, type=float, required=True)
        parser.add_argument(_UNTIL, type=float, required=True)
        parser.add_argument(_KEEP, type=int, required=True)
        given = parser.parse_args(arguments)
        return cls(given.idle, given.until, given.keep)
