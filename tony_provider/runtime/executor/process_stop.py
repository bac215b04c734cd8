"""The order to stop one start of the user process, and by when."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any, Callable

Deadline = Callable[[], float]
"""In seconds of ``time.monotonic``. Asked again and again, since it may come to be earlier."""


class ProcessStop:
    """Whether and by when a start is to be over. What is asked for again can only come sooner."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()  # once something was asked, for threads
        self.stacks = False  # the threads' stacks are wanted in the log first
        self.doomed = False  # the whole container goes: whatever the process does about it counts as stopped
        self.asked_at = float("inf")  # of time.monotonic
        self._news = asyncio.Event()
        self._kill_at = float("inf")
        self._copy_seconds = float("inf")

    @property
    def asked(self) -> bool:
        return self.cancelled.is_set()

    def ask(self, grace: float, copy_seconds: float, *, stacks: bool = False, doomed: bool = False) -> None:
        """Have the process end: SIGKILL comes ``grace`` seconds from now; then the last copies get ``copy_seconds``."""
        now = time.monotonic()
        self._kill_at = min(self._kill_at, now + grace)
        self._copy_seconds = min(self._copy_seconds, copy_seconds)
        self.asked_at = min(self.asked_at, now)
        self.stacks = self.stacks or stacks
        self.doomed = self.doomed or doomed
        self.cancelled.set()
        news, self._news = self._news, asyncio.Event()
        news.set()

    def kill_at(self) -> float:
        """When SIGKILL comes, by ``time.monotonic``; infinite until something is asked."""
        return self._kill_at

    def copy_until(self, ended_at: float, seconds: float) -> float:
        """When the last copies are given up: so many seconds after the end of the process, or as was asked.

        All times are of ``time.monotonic``.
        """
        if not self.asked:
            return ended_at + seconds
        return max(ended_at, self.asked_at) + self._copy_seconds

    async def wait(self) -> None:
        """Wait until something is asked."""
        while not self.asked:
            await self._news.wait()

    async def bound(self, work: asyncio.Future[Any], deadline: Deadline) -> bool:
        """Wait for ``work`` until the deadline; returns whether it is done. It is not cancelled."""
        while not work.done() and (left := deadline() - time.monotonic()) > 0:
            news = asyncio.ensure_future(self._news.wait())
            try:
                timeout = left if left < float("inf") else None
                await asyncio.wait({work, news}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            finally:
                news.cancel()
        return work.done()
