"""A queue of the cluster's events on their way to the application master."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Union

from tony_provider.runtime.am.resource_manager import Event


class EventQueue:
    """The cluster's events in order, read by ``async for`` until it is closed."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Union[Event, BaseException, None]] = asyncio.Queue()

    def put(self, event: Event) -> None:
        self._queue.put_nowait(event)

    def fail(self, error: BaseException) -> None:
        """Raise this error at the reader, after what was put before."""
        self._queue.put_nowait(error)

    def close(self) -> None:
        """End the reading, after what was put before."""
        self._queue.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[Event]:
        while True:
            event = await self._queue.get()
            if event is None:
                return
            if isinstance(event, BaseException):
                raise event
            yield event
