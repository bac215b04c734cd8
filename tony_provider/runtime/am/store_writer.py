"""Keep files on the store up to date: write after changes, at most once per second, without blocking the event loop.

A writer also reports since when its writes have failed.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Callable, Optional

from tony_provider.runtime.am.checkpoint_chain import Ownership
from tony_provider.runtime.am.session.actions import AddNote, Note
from tony_provider.runtime.application_history import ContainerLoss, LostNodes, lost_nodes_days
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.clock import epoch_ms, moment
from tony_provider.runtime.common.codec import dump_json
from tony_provider.runtime.common.concurrency import loop_time, wait_with_timeout
from tony_provider.runtime.common.quantities import span
from tony_provider.runtime.protocol.limits import SLOW_ANSWER
from tony_provider.runtime.storage import Storage, StorageError, uris, write_atomically
from tony_provider.runtime.storage.base import list_existing

log = logging.getLogger(__name__)

SOONEST = 1.0  # seconds between two writes
LATEST = 5.0  # seconds until a small change is written
_REST = 5.0  # minimum pause as a multiple of the time to serialize the last content


class StoreWriter(ABC):
    """Writes the newest content after changes, one write at a time.

    A failed write is retried after some seconds.
    """

    _retry_seconds = 5.0

    def __init__(self, storage: Storage, name: str, note: Optional[AddNote] = None) -> None:
        """``name``: name of the content in messages.

        ``note`` receives events for the event log: a write has failed, or a write has succeeded after failures.
        """
        self.name = name
        self._storage = storage
        self._note = note
        self._changed = asyncio.Event()
        self._due: Optional[float] = None  # when to write next; None if no write is necessary
        self._not_before = 0.0
        self._cost = 0.0  # seconds to serialize the last content; see ``_store``
        self._stopping = False
        self._idle = asyncio.Event()  # not set while ``run`` is running
        self._idle.set()
        self._since_ms: Optional[int] = None  # when the first of the consecutive failed writes began
        self._problem = ""  # error message of the last failed write
        self._began_ms: Optional[int] = None  # when the write in progress began
        self._waiting: list[Callable[[], None]] = []  # callbacks for the next successful write

    @property
    def trouble(self) -> str:
        """Message that says since when and why the store does not accept the content. Empty if there is no problem."""
        if self._since_ms is not None:
            return f"{self.name} has not been written since {moment(self._since_ms)}: {self._problem}"
        if self._began_ms is not None and epoch_ms() - self._began_ms > SLOW_ANSWER * 1000:
            return f"{self.name} has not been written since {moment(self._began_ms)}: the store does not answer"
        return ""

    def changed(self, *, soon: bool = True) -> None:
        """Schedule a write of the content. If not ``soon``, it may wait up to five seconds for further changes."""
        due = loop_time() + (0.0 if soon else LATEST)
        if self._due is None or due < self._due:
            self._due = due
            self._changed.set()

    def when_written(self, then: Callable[[], None]) -> None:
        """Call ``then`` on the event loop once the current content is on the store."""
        self._waiting.append(then)
        self.changed()

    async def run(self) -> None:
        """Write changes until ``stop``."""
        self._idle.clear()
        try:
            self._schedule()
            while await self._until_due():
                self._due = None
                written = await self.write()
                # Throttle by serialization time, because serialization must not dominate this process.
                pause = min(max(SOONEST, _REST * self._cost), LATEST)
                self._not_before = loop_time() + (pause if written else self._retry_seconds)
                if written:
                    self._schedule()
                else:
                    self.changed()
        finally:
            self._idle.set()

    def stop(self) -> None:
        """Make ``run`` return after the write in progress."""
        self._stopping = True
        self._changed.set()

    async def finish(self) -> bool:
        """Stop ``run``, and write the last content after the write in progress. Return False if that failed.

        The files may be records (``Storage.write_record``). ``application.settle`` replaces records by ordinary files.
        """
        self.stop()
        await self._idle.wait()
        return await self.write()

    async def write(self) -> bool:
        """Write now. Return False after any failure, which is logged. The store's own deadlines limit the time."""
        self._began_ms = began_ms = epoch_ms()
        waiting, self._waiting = self._waiting, []
        try:
            await self._store()
        except StorageError as error:
            if self._since_ms is None:
                log.warning("%s", error)
            self._failed(str(error), began_ms)
        except Exception as error:  # an internal error, or an error of a store's driver
            if self._since_ms is None:
                log.exception("%s could not be written", self.name)
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

    def _put(self, uri: str, data: bytes) -> None:
        """Replace a file; after ``stop`` by a record, which is faster. Blocks. Raises StorageError."""
        if self._stopping:
            self._storage.write_record(uri, data, overwrite=True)
        else:
            write_atomically(self._storage, uri, data)

    def _failed(self, problem: str, began_ms: int) -> None:
        self._problem = problem
        if self._since_ms is None:
            self._since_ms = began_ms
            self._report("not_written", f"{self.name}: {problem}")

    def _succeeded(self, began_ms: int) -> None:
        since_ms = began_ms if self._since_ms is None else self._since_ms
        seconds = (epoch_ms() - since_ms) / 1000
        if self._since_ms is not None or seconds > SLOW_ANSWER:
            self._since_ms = None
            self._report("written_again", f"{self.name} was written after {span(seconds)} of failures")

    def _report(self, event: str, message: str) -> None:
        if self._note:
            self._note(Note(event, message))

    def _schedule(self) -> None:
        interval = self._interval()
        if self._due is None and interval is not None:
            self._due = loop_time() + interval

    def _interval(self) -> Optional[float]:
        """Return the seconds after which the content is written again without a change, or None for never."""
        return None

    async def _until_due(self) -> bool:
        """Wait until a write is due. Return False if the writer must stop."""
        while not self._stopping:
            wait = None if self._due is None else max(self._due, self._not_before) - loop_time()
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
    """Writes one file whenever its content has changed, always with the newest content.

    ``content`` captures the content on the event loop, and returns a function that serializes it in a thread.
    """

    def __init__(
        self,
        storage: Storage,
        uri: str,
        content: Callable[[], Callable[[], bytes]],
        *,
        interval: Optional[float] = None,
        note: Optional[AddNote] = None,
    ) -> None:
        """``interval``: seconds after which unchanged content is written again; default: never.

        ``note``: see StoreWriter.
        """
        super().__init__(storage, uris.name(uri), note)
        self._seconds = interval
        self._uri = uri
        self._content = content

    def _interval(self) -> Optional[float]:
        return self._seconds

    async def _store(self) -> None:
        await asyncio.to_thread(self._write, self._content())

    def _write(self, made: Callable[[], bytes]) -> None:
        began = time.monotonic()
        data = made()
        self._cost = time.monotonic() - began
        self._put(self._uri, data)


class LostNodesFile(StoreWriter):
    """Records the nodes that lost containers of this application, in a directory for all applications."""

    def __init__(self, ownership: Ownership, note: AddNote) -> None:
        """``note``: see StoreWriter."""
        description = ownership.description
        super().__init__(ownership.storage, contract.LOST_NODES_DIR, note)
        self._directory = description.lost_nodes_dir
        self._file = f"{description.application_id}.{ownership.am_attempt}.json"
        self._lost: dict[str, ContainerLoss] = {}

    def lost(self, nodes: Iterable[str], reason: str) -> None:
        """Record a loss on these nodes."""
        self._lost |= dict.fromkeys(nodes, ContainerLoss(reason, epoch_ms()))
        self.changed()

    async def finish(self) -> bool:
        if not self._lost:
            return True
        is_written = await super().finish()
        await asyncio.to_thread(self._remove_old)
        return is_written

    async def _store(self) -> None:
        today = lost_nodes_days(self._directory, epoch_ms())[0]
        data = dump_json(LostNodes(dict(self._lost)))
        await asyncio.to_thread(write_atomically, self._storage, uris.join(today, self._file), data)

    def _remove_old(self) -> None:
        """Remove the records of past weeks. A failure is only logged, because the next application tries again."""
        oldest = uris.name(lost_nodes_days(self._directory, epoch_ms())[-1])
        try:
            for each in list_existing(self._storage, self._directory):
                if _DAY.fullmatch(each.name) and each.name < oldest:
                    self._storage.remove(each.path, recursive=True)
        except StorageError as error:
            log.info("old records of lost nodes stay: %s", error)


_DAY = re.compile(r"\d{4}-\d\d-\d\d")


class SegmentWriter(StoreWriter):
    """Writes the segments of one application master, each only once, to the application's history directory."""

    def __init__(self, name: str, ownership: Ownership, note: Optional[AddNote]) -> None:
        """``name``, ``note``: see StoreWriter."""
        super().__init__(ownership.storage, name, note)
        self._directory = uris.join(ownership.description.application_dir, contract.HISTORY_DIR)
        self._application_id = ownership.description.application_id
        self._am_attempt = ownership.am_attempt

    def _uri(self, file: str) -> str:
        return uris.join(self._directory, file)

    def _write(self, file: str, data: bytes) -> None:
        """Write a segment. Blocks. Raises StorageError."""
        self._put(self._uri(file), data)
