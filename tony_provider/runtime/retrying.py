"""Trying again what a store refuses for the time being: with growing pauses, and an end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Iterator
from typing import Callable, Generic, Optional, TypeVar

from tony_provider.runtime.cancellation import Cancelled
from tony_provider.runtime.storage import StorageError

T = TypeVar("T")
E = TypeVar("E", bound=StorageError)

FIRST_PAUSE = 1.0  # seconds between the first tries, doubled up to
LONGEST_PAUSE = 15.0


def pauses(first: float, longest: float) -> Iterator[float]:
    """Pauses between one try and the next, in seconds, that grow from ``first`` to ``longest``; without an end."""
    while True:
        yield first
        first = min(2 * first, longest)


async def retry(work: Callable[[], Awaitable[T]], seconds: float, on: type[E], told: Callable[[E], None]) -> T:
    """Do ``work`` again and again while it fails with ``on``, for so many seconds from the first failure on.

    ``told`` hears of the first failure; the last one is raised, and at once whatever is not ``on``.
    """
    failures = _Failures(seconds, told)
    while True:
        try:
            return await work()
        except on as error:
            pause = failures.pause_after(error)
        await asyncio.sleep(pause)


def retry_blocking(
    work: Callable[[], T], seconds: float, on: type[E], told: Callable[[E], None], cancelled: threading.Event
) -> T:
    """Do ``work`` as ``retry`` does, in a thread. Raises Cancelled, too."""
    failures = _Failures(seconds, told)
    while True:
        try:
            return work()
        except on as error:
            pause = failures.pause_after(error)
        if cancelled.wait(pause):
            raise Cancelled("waiting for the store was cancelled")


class _Failures(Generic[E]):
    """The failures of one piece of work so far."""

    def __init__(self, seconds: float, told: Callable[[E], None]) -> None:
        self._seconds = seconds
        self._told = told
        self._pauses = pauses(FIRST_PAUSE, LONGEST_PAUSE)
        self._until: Optional[float] = None

    def pause_after(self, error: E) -> float:
        """Raises the error when the next try would come too late."""
        now, pause = time.monotonic(), next(self._pauses)
        if self._until is None:
            self._until = now + self._seconds
            self._told(error)
        if now + pause > self._until:
            raise error
        return pause
