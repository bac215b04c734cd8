"""Base classes of the parts of one start, and of those that work in the background while the user processes run."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, Optional, TypeVar

from tony_provider.runtime.common.concurrency import wait_with_timeout
from tony_provider.runtime.executor.start_context import Deadline, StopRequest
from tony_provider.runtime.protocol import tony_pb2

T = TypeVar("T")

_LONGEST_LAST_PAUSE = 3.0  # seconds, once the processes have ended, because the end of the start waits for the work


class StartPart:
    """A part of one start, with the texts that the status shows. Call ``close`` once."""

    def __init__(self) -> None:
        self.activity = ""  # description of the current copy or wait; otherwise empty
        self.problem = ""  # the present problem with the store, with its reason; otherwise empty
        self._replay: Sequence[tony_pb2.FromExecutor] = ()

    @property
    def replay(self) -> Sequence[tony_pb2.FromExecutor]:
        """The messages for an application master that may have missed them."""
        return self._replay

    async def close(self) -> None:
        """Cancel all operations in progress, and release threads and connections."""


class BackgroundWork(StartPart):
    """Work that runs while the user processes run and after they have ended. Call ``start`` at most once."""

    def __init__(self, name: str) -> None:
        """Prepare the work. ``name``: prefix of the thread's name."""
        super().__init__()
        self._work: Optional[asyncio.Future[None]] = None
        self._nudge = asyncio.Event()
        self._ended = False  # whether the user processes have ended
        # A separate thread, because a server that does not answer must not delay the executor's shared threads.
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)

    def start(self) -> None:
        """Start the work."""
        self._work = asyncio.ensure_future(self._run())

    async def close(self) -> None:
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)
        self._pool.shutdown(wait=False)

    @abstractmethod
    async def _run(self) -> None:
        """Do the work. Return soon after ``_ended`` is set and nothing is left to do. May be cancelled."""

    async def _end(self, work: asyncio.Future[None], stop_request: StopRequest, deadline: Deadline) -> bool:
        """Let the work end after the user processes have ended. Return False if it has not ended at the deadline.

        Raises internal errors of the work.
        """
        self._ended = True
        self._nudge.set()
        if not await stop_request.bound(work, deadline):
            return False
        work.result()
        return True

    async def _pause(self, seconds: float) -> None:
        """Wait for the given time, or shorter if the user processes have ended."""
        await self._wait(min(seconds, _LONGEST_LAST_PAUSE) if self._ended else seconds)

    async def _wait(self, seconds: float) -> None:
        """Wait for the given time, or until ``_nudge`` is set."""
        try:
            await wait_with_timeout(self._nudge.wait(), seconds)
        except asyncio.TimeoutError:
            return
        self._nudge.clear()

    async def _in_thread(self, work: Callable[..., T], *given: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *given)
