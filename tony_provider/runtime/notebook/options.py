"""What the program of a notebook is told on its command line: nothing secret."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

_IDLE, _UNTIL, _KEEP = "--idle", "--until", "--keep"


@dataclass(frozen=True)
class NotebookOptions:
    """How long a notebook goes on, and how much of it is kept."""

    idle: float  # seconds without activity, after which it ends; 0: it never ends for that
    until: float  # epoch, in seconds, when it ends; 0: never
    keep: int  # bytes that are kept of its work

    @property
    def arguments(self) -> str:
        """As a command line has them."""
        return f"{_IDLE} {self.idle:g} {_UNTIL} {self.until:.0f} {_KEEP} {self.keep}"

    @classmethod
    def of(cls, arguments: Sequence[str]) -> NotebookOptions:
        """Exits with a message for what is no number."""
        parser = argparse.ArgumentParser(prog="python -m tony_notebook")
        parser.add_argument(_IDLE, type=float, required=True)
        parser.add_argument(_UNTIL, type=float, required=True)
        parser.add_argument(_KEEP, type=int, required=True)
        given = parser.parse_args(arguments)
        return cls(given.idle, given.until, given.keep)
