"""Keeps a file on the store up to date: on change, not more often than once a second, never blocking the loop."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Callable, Optional

from tony_provider.runtime.deadline import within
from tony_provider.runtime.storage import Storage, StorageError, write_atomically

log = logging.getLogger(__name__)

SOONEST = 1.0  # seconds between two writes
LATEST = 5.0  # seconds until a small change is written
_REST = 5.0  # times as long as it took to make the last bytes
_AFTER_ERROR = 5.0


class Publisher:
    """Writes what ``content`` gives at that moment, so the newest always wins; one write at a time.

    ``content`` takes what is to be written, on the loop, and gives what makes bytes of it, in a thread. What fails is
    tried again with the next change or after some seconds.
    """

    def __init__(self, storage: Storage, uri: str, content: Callable[[], Callable[[], bytes]]) -> None:
        self._storage = storage
        self._uri = uri
        self._content = content
        self._changed = asyncio.Event()
        self._due: Optional[float] = None
        self._not_before = 0.0
        self._cost = 0.0  # seconds that it took to make the last bytes
        self._stopping = False
        self._failing = False

    def changed(self, *, soon: bool = True) -> None:
        """There is something new. Not ``soon``: it may wait for more, up to five seconds."""
        due = asyncio.get_running_loop().time() + (0.0 if soon else LATEST)
        if self._due is None or due < self._due:
            self._due = due
            self._changed.set()

    async def run(self) -> None:
        """Until ``stop``."""
        loop = asyncio.get_running_loop()
        while await self._until_due():
            self._due = None
            written = await self.write()
            # What is dear to make is made less often, or it would be all that this process does.
            pause = min(max(SOONEST, _REST * self._cost), LATEST)
            self._not_before = loop.time() + (pause if written else _AFTER_ERROR)
            if not written:
                self.changed()

    def stop(self) -> None:
        """``run`` ends after the write under way."""
        self._stopping = True
        self._changed.set()

    async def write(self) -> bool:
        """Write now; False when that failed, whatever with, which is logged. Ends by the store's own deadlines."""
        try:
            await asyncio.to_thread(self._write, self._content())
        except StorageError as error:
            if not self._failing:
                log.warning("%s", error)
        except Exception:  # a fault, of ours or of a store's driver
            if not self._failing:
                log.exception("%s could not be written", self._uri)
        else:
            self._failing = False
            return True
        self._failing = True
        return False

    def _write(self, made: Callable[[], bytes]) -> None:
        began = time.monotonic()
        data = made()
        self._cost = time.monotonic() - began
        write_atomically(self._storage, self._uri, data)

    async def _until_due(self) -> bool:
        """False when it is to stop."""
        loop = asyncio.get_running_loop()
        while not self._stopping:
            wait = None if self._due is None else max(self._due, self._not_before) - loop.time()
            if wait is not None and wait <= 0:
                return True
            self._changed.clear()
            try:
                await within(self._changed.wait(), wait)
            except asyncio.TimeoutError:
                continue
        return False
