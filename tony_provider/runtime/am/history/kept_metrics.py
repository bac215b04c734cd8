"""Which of the metrics that programs report are kept: there may be ten thousand, named like anything."""

from __future__ import annotations

import sys
from collections.abc import Mapping

MOST_OF_A_TASK = 50
MOST_CHARACTERS = 100
_MOST_REMEMBERED = 1000  # names that are left out
_TOLD = 5


class KeptMetrics:
    """Chooses, for each task, the first names that it has reported; counts the others."""

    def __init__(self) -> None:
        self._kept: dict[str, set[str]] = {}  # by task
        self._left_out: set[str] = set()

    def of(self, task: str, metrics: Mapping[str, float]) -> dict[str, float]:
        """Those of a task's metrics that are kept."""
        if not metrics:
            return {}
        kept = self._kept.setdefault(task, set())
        for name in metrics:
            if name not in kept:
                if len(kept) < MOST_OF_A_TASK and len(name) <= MOST_CHARACTERS:
                    kept.add(sys.intern(name))  # a thousand tasks have the same ones
                elif len(self._left_out) < _MOST_REMEMBERED:
                    self._left_out.add(name[:MOST_CHARACTERS])
        return {name: value for name, value in metrics.items() if name in kept}

    @property
    def left_out(self) -> int:
        """How many names are left out; no more than a thousand are counted."""
        return len(self._left_out)

    @property
    def such_as(self) -> list[str]:
        """Some of them."""
        return sorted(self._left_out)[:_TOLD]
