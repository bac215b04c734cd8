"""Waiting for a store that does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Callable, TypeVar

from tony_provider.runtime.storage import StorageError

T = TypeVar("T")
E = TypeVar("E", bound=StorageError)

_SOONEST = 1.0  # seconds between the first tries, doubled up to
_LATEST = 15.0


async def persistently(
    work: Callable[[], Awaitable[T]], seconds: float, troubled: Callable[[E], None], *, only: type[E]
) -> T:
    """Again and again while it fails with ``only``. ``troubled`` hears of the first failure, the last one is raised."""
    loop = asyncio.get_running_loop()
    deadline, delay, told = loop.time() + seconds, _SOONEST, False
    while True:
        try:
            return await work()
        except only as error:
            if loop.time() + delay > deadline:
                raise
            if not told:
                troubled(error)
                told = True
        await asyncio.sleep(delay)
        delay = min(2 * delay, _LATEST)
