"""Those that are compared, measured in turns, in rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

T = TypeVar("T")


def in_turns(measures: Mapping[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """What each has measured, by its name: a value for each round. Each begins a round in its turn."""
    names = list(measures)
    found: dict[str, list[T]] = {name: [] for name in names}
    for number in range(rounds):
        turn = number % len(names)
        for name in [*names[turn:], *names[:turn]]:
            found[name].append(measures[name]())
    return found
