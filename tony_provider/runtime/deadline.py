"""Waiting with a limit in time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Optional, TypeVar

T = TypeVar("T")


async def within(work: Awaitable[T], seconds: Optional[float]) -> T:
    """Wait for ``work``, at most so many seconds; returns what it gives.

    It is cancelled when it takes longer, and when the caller is. Raises asyncio.TimeoutError.

    In place of asyncio.wait_for, which before Python 3.12 forgets a cancellation that comes when the work is just done
    (https://github.com/python/cpython/issues/86296): a task that was told to end then goes on, and whoever waits for
    its end waits for ever.
    """
    task = asyncio.ensure_future(work)
    try:
        in_time, _ = await asyncio.wait({task}, timeout=seconds)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
        _ = task.cancelled() or task.exception()  # asyncio complains of exceptions that nobody looked at
    if not in_time and task.cancelled():
        raise asyncio.TimeoutError
    return task.result()
