"""What an executor does at SIGTERM, which is how YARN stops a container: SIGKILL follows after a quarter of a second.

The user process and whatever it started get SIGTERM, too, and a moment later SIGKILL; meanwhile the last lines of its
output go to the application master. Nothing is copied to the store any more: there is no time for it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Collection, Coroutine
from typing import Any, Callable, Optional

from tony_provider.runtime import exit_codes
from tony_provider.runtime.executor import processes
from tony_provider.runtime.executor.executor_context import ExecutorContext
from tony_provider.runtime.executor.link import Link
from tony_provider.runtime.executor.output_tails import send_last_words
from tony_provider.runtime.executor.run import Run

log = logging.getLogger(__name__)

_GRACE = 0.1  # seconds between SIGTERM and SIGKILL for the user process: YARN itself leaves 0.25
_KILL_TIMEOUT = 1.0  # seconds for the kernel then
_LAST_WORDS_TIMEOUT = 5.0  # seconds in which a busy machine sends the last words; YARN's SIGKILL comes earlier


class SigtermHandler:
    """Does an executor's work until that is done, or until the executor gets SIGTERM.

    :param current: gives the start of the user process that is under way, if any.
    """

    def __init__(self, context: ExecutorContext, link: Link, current: Callable[[], Optional[Run]]) -> None:
        self._context = context
        self._link = link
        self._current = current
        self._terminated = asyncio.Event()

    async def work(self, work: Coroutine[Any, Any, int]) -> int:
        """Do the work. Returns its exit code, or TERMINATED; no process of ours is left in either case."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._on_sigterm)
        working = asyncio.ensure_future(work)
        terminated = asyncio.ensure_future(self._terminated.wait())
        try:
            await asyncio.wait({working, terminated}, return_when=asyncio.FIRST_COMPLETED)
            return working.result() if working.done() else await self._end_at_once()
        finally:
            await cancel(working, terminated)
            await processes.kill_all(os.getpid(), self._pids, _KILL_TIMEOUT)

    def _on_sigterm(self) -> None:
        current = self._current()
        if current is not None:
            current.doom(_GRACE)
        self._terminated.set()

    async def _end_at_once(self) -> int:
        log.warning("terminated")
        saying = asyncio.ensure_future(self._send_last_words())
        try:
            until = time.monotonic() + _GRACE
            await processes.stop_all(os.getpid(), self._pids, lambda: until)
            await asyncio.wait({saying}, timeout=_LAST_WORDS_TIMEOUT)
        finally:
            await cancel(saying)
        return exit_codes.TERMINATED

    async def _send_last_words(self) -> None:
        await send_last_words(self._context, self._link.send)
        await self._link.sent()

    @property
    def _pids(self) -> Collection[int]:
        current = self._current()
        return current.pids if current else ()


async def cancel(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks and wait until they are over, whatever their results."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
