"""Background tasks of an event loop that belong together."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Callable


class Background:
    """A set of background tasks: owned, watched for failures, cancelled at the end.

    ``failed`` is called with what a task raised.
    """

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed = failed

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error:
            self._failed(error)
