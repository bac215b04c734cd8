"""Waiting for what other processes do: always for an event, always with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

SECONDS = 120.0  # more than anything here ever takes, on a machine that is busy
_PERIOD = 0.2


def until(
    look: Callable[[], T | None], what: Callable[[], str] | str, seconds: float = SECONDS, period: float = _PERIOD
) -> T:
    """The first true answer of ``look``. Fails with ``what`` was waited for when there is none in time.

    ``period``: seconds between two looks, more for those that cost something.
    """
    deadline = time.monotonic() + seconds
    while not (found := look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what if isinstance(what, str) else what()}")
        time.sleep(period)
    return found


def settled(look: Callable[[], list[T]], seconds: float = 30.0) -> list[T]:
    """What ``look`` still finds when the time is over; empty as soon as it finds nothing."""
    deadline = time.monotonic() + seconds
    while (found := look()) and time.monotonic() < deadline:
        time.sleep(_PERIOD)
    return found
