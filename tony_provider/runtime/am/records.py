"""The records of an application on the store: status, events, series and result.

Also reads the records of former application masters when a new one starts.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from functools import partial
from typing import Callable, Optional, TypeVar

import attrs

from tony_provider.runtime import application_store
from tony_provider.runtime.am.checkpoint_chain import FencedError, Ownership
from tony_provider.runtime.am.event_log import EventLog
from tony_provider.runtime.am.sample_series import Series
from tony_provider.runtime.am.session.actions import Note
from tony_provider.runtime.am.session.recovery import History
from tony_provider.runtime.am.store_writer import FileUpdater
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.bounds import STATUS_LIMIT
from tony_provider.runtime.common.clock import epoch_ms
from tony_provider.runtime.common.codec import CodecError, dump_json, load_json
from tony_provider.runtime.common.concurrency import retry
from tony_provider.runtime.history.events import StoredSegment, event_segments, read_events
from tony_provider.runtime.history.samples import segment_order
from tony_provider.runtime.history.segment_files import listed
from tony_provider.runtime.protocol.status import JobStatus
from tony_provider.runtime.protocol.timing import STATUS_INTERVAL
from tony_provider.runtime.storage import (
    Storage,
    StorageError,
    StorageNotFound,
    StorageTooLarge,
    StorageUnreachable,
    read_whole,
    uris,
)
from tony_provider.runtime.storage.base import Before, without_waiting

log = logging.getLogger(__name__)


class ApplicationRecords:
    """Writes the status, events, series and result of an application to its directory."""

    def __init__(self, ownership: Ownership, previous: Optional[PreviousMasters] = None) -> None:
        """``previous``: records of previous application masters."""
        self.previous = previous
        self._storage = ownership.storage
        self._directory = ownership.description.application_dir
        self._events = EventLog(ownership, previous.events if previous else (), time_ms=epoch_ms(), note=self.note)
        self.series = Series(ownership, kept=previous.series if previous else 0, note=self.note)
        self._status_file: Optional[FileUpdater] = None
        self._publishing: Optional[asyncio.Future[tuple[None, None, None]]] = None

    def start(self, status: Callable[[], JobStatus]) -> None:
        """Keep the files up to date from now on. ``status`` returns the job's current status."""
        self._status_file = file = self._publisher(
            contract.STATUS_FILE,
            lambda: partial(dump_json, _without(file.trouble, status())),
            note=self.note,
            interval=STATUS_INTERVAL,
        )
        self._publishing = asyncio.gather(self._status_file.run(), self._events.run(), self.series.run())
        self._publishing.add_done_callback(_log_fault)
        self.changed()  # write the first notes now, because nothing may change for days while a job waits

    def changed(self, *, soon: bool = True) -> None:
        """Have the changed status written."""
        if self._status_file:
            self._status_file.changed(soon=soon)

    @property
    def troubles(self) -> list[str]:
        """One line for each record that cannot be written, with the time since then and the reason."""
        written = [each for each in (self._status_file, self._events, self.series) if each]
        return [trouble for each in written if (trouble := each.trouble)]

    def note(self, note: Note) -> None:
        """Record an event with the current time."""
        self._events.append(note, epoch_ms())
        self._events.changed()
        self.changed()

    def when_kept(self, then: Callable[[], None]) -> None:
        """Call ``then`` once all notes so far are on the store."""
        self._events.when_written(then)

    async def stop(self) -> None:
        """Stop writing. Writes in progress continue until the store's deadlines."""
        for file in (self._status_file, self._events, self.series):
            if file:
                file.stop()
        if self._publishing:
            await asyncio.wait({self._publishing})

    async def write_result(self, result: JobStatus) -> list[str]:
        """Write the last samples, events and status, and then the result. A reader of the result also finds the others.

        The uploads run concurrently, because DataNodes often need 0.4 s to close a small file. Returns the names of
        records that could not be written.
        """
        rest_is_over = threading.Event()
        content = partial(dump_json, result)
        written = {
            contract.HISTORY_DIR: self.series.finish(),
            "events": self._events.finish(),
            contract.STATUS_FILE: self._publisher(contract.STATUS_FILE, lambda: content).write(),
        }
        rest = asyncio.gather(*written.values())
        rest.add_done_callback(lambda _: rest_is_over.set())
        last = self._publisher(contract.RESULT_FILE, lambda: content, before_it_appears=rest_is_over.wait).write()
        done = await asyncio.gather(rest, last)
        names = [*written, contract.RESULT_FILE]
        return [name for name, is_there in zip(names, [*done[0], done[1]]) if not is_there]

    async def write_result_only(self, result: JobStatus) -> bool:
        """Write only the result, for an application master that is about to be killed. Return False if that failed."""
        return await self._publisher(contract.RESULT_FILE, lambda: partial(dump_json, result)).write()

    async def clean_up(self) -> None:
        """Remove the staged files and the temporary files of killed writers."""
        try:
            await asyncio.to_thread(application_store.clean_up, self._storage, self._directory)
        except StorageError as error:
            log.warning("%s", error)
        except Exception:
            log.exception("what is of no use any more could not be removed")

    def _publisher(
        self,
        name: str,
        content: Callable[[], Callable[[], bytes]],
        *,
        note: Optional[Callable[[Note], None]] = None,
        interval: Optional[float] = None,
        before_it_appears: Before = without_waiting,
    ) -> FileUpdater:
        return FileUpdater(
            self._storage,
            uris.join(self._directory, name),
            content,
            interval=interval,
            note=note,
            before_it_appears=before_it_appears,
        )


def _without(trouble: str, status: JobStatus) -> JobStatus:
    """Return the status without the problem of this file, which is solved as soon as the file is written."""
    return attrs.evolve(status, troubles=[each for each in status.troubles if each != trouble])


def _log_fault(publishing: asyncio.Future[tuple[None, None, None]]) -> None:
    """Log a failure immediately: the files are not updated any more, and no other code reports it."""
    error = None if publishing.cancelled() else publishing.exception()
    if error:
        log.error("publishing the job's status has failed", exc_info=error)


T = TypeVar("T")

_TIMEOUT = 600.0  # seconds to wait for an unreachable store


@attrs.frozen
class PreviousMasters:
    """Records of this application's former application masters on the store."""

    events: list[StoredSegment]  # segments of their event log
    history: History
    status: Optional[JobStatus]  # last status that they wrote
    series: int  # size of their series in bytes
    result: Optional[JobStatus]  # of an ended job whose master has not yet unregistered


@attrs.frozen
class RecoveredState:
    """The state that an application master finds at its start."""

    previous: Optional[PreviousMasters]  # None for the first application master
    fenced: str  # reason why no task may be started, otherwise empty


def read_recovered_state(ownership: Ownership) -> RecoveredState:
    """Read the state for a starting application master. Blocks. Raises SupersededError, StorageError."""
    fenced = ""
    try:
        ownership.check()
    except FencedError as error:
        fenced = str(error)
    first = ownership.am_attempt == 1
    return RecoveredState(
        None if first else read_previous_masters(ownership.storage, ownership.description.application_dir), fenced
    )


async def retry_until_reachable(work: Callable[[], T]) -> T:
    """Run blocking work in a thread, with retries until the store is reachable. Return its result.

    Raises StorageError, and the exceptions of ``work``.
    """
    return await retry(partial(asyncio.to_thread, work), _TIMEOUT, StorageUnreachable, _troubled)


def _troubled(error: StorageUnreachable) -> None:
    log.warning("trying again: %s", error)


def read_previous_masters(storage: Storage, directory: str) -> PreviousMasters:
    """Read the records of former application masters from the application's directory. Raises StorageError.

    Removes a result that a master wrote because it expected to be killed, if the job continues.
    """
    result = _status(storage, uris.join(directory, contract.RESULT_FILE))
    status = _status(storage, uris.join(directory, contract.STATUS_FILE))
    if result and not (status and status.state is result.state):
        log.info("the result of a former application master was premature")
        storage.remove(uris.join(directory, contract.RESULT_FILE))
        result = None
    history = _history(storage, directory)
    return PreviousMasters(event_segments(storage, directory), history, status, _series(storage, directory), result)


def _series(storage: Storage, directory: str) -> int:
    files = listed(storage, uris.join(directory, contract.HISTORY_DIR))
    return sum(file.size for file in files if segment_order(file.name))


def _history(storage: Storage, directory: str) -> History:
    missing: list[str] = []
    try:
        return History.read(read_events(storage, directory, missing))
    except CodecError as error:
        # Executors know their own counters.
        log.warning("the counters of the former application master cannot be read: %s", error)
        return History()
    finally:
        for line in missing:
            log.warning("of the former application masters' %s", line)


def _status(storage: Storage, uri: str) -> Optional[JobStatus]:
    try:
        return load_json(read_whole(storage, uri, STATUS_LIMIT), JobStatus)
    except StorageNotFound:
        return None
    except (CodecError, StorageTooLarge) as error:
        log.warning("%s: %s", uri, error)
        return None
