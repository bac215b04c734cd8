"""Keep files on the store up to date: write after changes, at most once per second, without blocking the event loop.

A writer also reports since when its writes have failed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from typing import Callable, Optional

import attrs

from tony_provider.runtime.common import contract
from tony_provider.runtime.common.clock import epoch_ms, moment
from tony_provider.runtime.common.concurrency import wait_with_timeout
from tony_provider.runtime.common.quantities import span
from tony_provider.runtime.protocol.timing import SLOW_ANSWER
from tony_provider.runtime.storage import Storage, StorageError, uris, write_atomically
from tony_provider.runtime.storage.base import Before, without_waiting

log = logging.getLogger(__name__)

SOONEST = 1.0  # seconds between two writes
LATEST = 5.0  # seconds until a small change is written
_REST = 5.0  # minimum pause as a multiple of the time to serialize the last content
_AFTER_ERROR = 5.0


@attrs.frozen
class HistoryDirectory:
    """The directory for the events and series of an application, and the application master that writes there."""

    storage: Storage
    application_dir: str
    application_id: str
    am_attempt: int = 1

    def uri(self, name: str) -> str:
        """Return the URI of a file in the directory."""
        return uris.join(self.application_dir, contract.HISTORY_DIR, name)


class StoreWriter(ABC):
    """Writes the newest content after changes, one write at a time.

    A failed write is retried after some seconds.
    """

    def __init__(
        self,
        name: str,
        *,
        interval: Optional[float] = None,
        tell: Callable[[str, str], None] = lambda event, message: None,
    ) -> None:
        """``name``: name of the content in messages.

        ``interval``: seconds after which unchanged content is written again; default: never. ``tell`` receives events
        for the event log: a write has failed, or a write has succeeded after failures.
        """
        self._name = name
        self._interval = interval
        self._tell = tell
        self._changed = asyncio.Event()
        self._due: Optional[float] = None
        self._not_before = 0.0
        self._cost = 0.0  # seconds to serialize the last content; see ``_store``
        self._stopping = False
        self._since_ms: Optional[int] = None  # when the first of the consecutive failed writes began
        self._problem = ""  # of the last failed write
        self._began_ms: Optional[int] = None  # when the write in progress began
        self._waiting: list[Callable[[], None]] = []  # callbacks for the next successful write

    @property
    def trouble(self) -> str:
        """Since when and why the store does not accept the content. Empty if there is no problem."""
        if self._since_ms is not None:
            return f"{self._name} could not be written since {moment(self._since_ms)}: {self._problem}"
        if self._began_ms is not None and epoch_ms() - self._began_ms > SLOW_ANSWER * 1000:
            return f"{self._name} could not be written since {moment(self._began_ms)}: the store does not answer"
        return ""

    def changed(self, *, soon: bool = True) -> None:
        """Have changed content written. If not ``soon``, it may wait up to five seconds for further changes."""
        due = asyncio.get_running_loop().time() + (0.0 if soon else LATEST)
        if self._due is None or due < self._due:
            self._due = due
            self._changed.set()

    def when_written(self, then: Callable[[], None]) -> None:
        """Call ``then`` on the event loop once the current content is on the store."""
        self._waiting.append(then)
        self.changed()

    async def run(self) -> None:
        """Write changes until ``stop``."""
        loop = asyncio.get_running_loop()
        while await self._until_due():
            self._due = None
            written = await self.write()
            # Throttle by serialization time so that it does not dominate this process.
            pause = min(max(SOONEST, _REST * self._cost), LATEST)
            self._not_before = loop.time() + (pause if written else _AFTER_ERROR)
            if not written:
                self.changed()
            elif self._interval is not None and self._due is None:
                self._due = loop.time() + self._interval

    def stop(self) -> None:
        """Have ``run`` return after the write in progress."""
        self._stopping = True
        self._changed.set()

    async def write(self) -> bool:
        """Write now. Return False after any failure, which is logged. Ends by the store's own deadlines."""
        self._began_ms = began_ms = epoch_ms()
        waiting, self._waiting = self._waiting, []
        try:
            await self._store()
        except StorageError as error:
            if self._since_ms is None:
                log.warning("%s", error)
            self._failed(str(error), began_ms)
        except Exception as error:  # an internal error, or one of a store's driver
            if self._since_ms is None:
                log.exception("%s could not be written", self._name)
            self._failed(f"{type(error).__name__}: {error}", began_ms)
        else:
            self._succeeded(began_ms)
            for then in waiting:
                then()
            return True
        finally:
            self._began_ms = None
        self._waiting[:0] = waiting
        return False

    def _failed(self, problem: str, began_ms: int) -> None:
        self._problem = problem
        if self._since_ms is None:
            self._since_ms = began_ms
            self._tell("not_written", f"{self._name}: {problem}")

    def _succeeded(self, began_ms: int) -> None:
        since_ms = began_ms if self._since_ms is None else self._since_ms
        seconds = (epoch_ms() - since_ms) / 1000
        if self._since_ms is not None or seconds > SLOW_ANSWER:
            self._since_ms = None
            self._tell("written_again", f"{self._name}, after {span(seconds)}")

    async def _until_due(self) -> bool:
        """Wait until a write is due. Return False if the writer must stop."""
        loop = asyncio.get_running_loop()
        while not self._stopping:
            wait = None if self._due is None else max(self._due, self._not_before) - loop.time()
            if wait is not None and wait <= 0:
                return True
            self._changed.clear()
            try:
                await wait_with_timeout(self._changed.wait(), wait)
            except asyncio.TimeoutError:
                continue
        return False

    @abstractmethod
    async def _store(self) -> None:
        """Write the current content in a thread. Raises StorageError, and other errors."""


class FileUpdater(StoreWriter):
    """Writes one file whenever its content has changed. The newest content always wins.

    ``content`` is called on the event loop and captures the content. The function that it returns makes the bytes, in a
    thread.
    """

    def __init__(
        self,
        storage: Storage,
        uri: str,
        content: Callable[[], Callable[[], bytes]],
        *,
        interval: Optional[float] = None,
        tell: Callable[[str, str], None] = lambda event, message: None,
        before_it_appears: Before = without_waiting,
    ) -> None:
        """``interval``, ``tell``: see StoreWriter. ``before_it_appears``: see Storage; called in a thread."""
        super().__init__(uris.name(uri), interval=interval, tell=tell)
        self._storage = storage
        self._uri = uri
        self._content = content
        self._before_it_appears = before_it_appears

    async def _store(self) -> None:
        await asyncio.to_thread(self._write, self._content())

    def _write(self, made: Callable[[], bytes]) -> None:
        began = time.monotonic()
        data = made()
        self._cost = time.monotonic() - began
        write_atomically(self._storage, self._uri, data, before_it_appears=self._before_it_appears)
