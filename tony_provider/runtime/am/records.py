"""The records that an application leaves: status, events and series while it runs, the result at its end."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from functools import partial
from typing import Callable, Optional, TypeVar

import attrs

from tony_provider.runtime import application_store
from tony_provider.runtime.am.event_log import EventLog
from tony_provider.runtime.am.ownership import FencedError, Ownership
from tony_provider.runtime.am.sample_series import Series
from tony_provider.runtime.am.session.actions import Note
from tony_provider.runtime.am.session.recovery import History
from tony_provider.runtime.am.store_writer import FileUpdater
from tony_provider.runtime.application import ApplicationDescription
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
    """Writes the status, the events and the result of an application to its directory."""

    def __init__(
        self,
        storage: Storage,
        description: ApplicationDescription,
        *,
        am_attempt: int = 1,
        former_events: Sequence[StoredSegment] = (),
        former_series: int = 0,
    ) -> None:
        """What former application masters have left: ``former_events``, and ``former_series`` bytes of series."""
        self._storage = storage
        self._directory = description.application_dir
        self._events = EventLog(
            storage,
            description.application_dir,
            description.application_id,
            description.labels,
            time_ms=epoch_ms(),
            am_attempt=am_attempt,
            former=former_events,
            tell=self._tell,
        )
        self._status_file: Optional[FileUpdater] = None
        self.series = Series(
            storage,
            description.application_dir,
            description.application_id,
            am_attempt=am_attempt,
            kept=former_series,
            tell=self._tell,
        )
        self._publishing: Optional[asyncio.Future[tuple[None, None, None]]] = None

    def start(self, status: Callable[[], JobStatus]) -> None:
        """Keep the files up to date from now on. ``status`` gives the job's status of the moment."""
        self._status_file = file = self._publisher(
            contract.STATUS_FILE,
            lambda: partial(dump_json, _without(file.trouble, status())),
            tell=self._tell,
            interval=STATUS_INTERVAL,
        )
        self._publishing = asyncio.gather(self._status_file.run(), self._events.run(), self.series.run())
        self._publishing.add_done_callback(_log_fault)
        self.changed()  # what was noted before: of a job that waits, nothing may change for days

    def changed(self, *, soon: bool = True) -> None:
        """Have the status written: it is another one."""
        if self._status_file:
            self._status_file.changed(soon=soon)

    @property
    def troubles(self) -> list[str]:
        """What cannot be written just now, since when, and why."""
        written = [each for each in (self._status_file, self._events, self.series) if each]
        return [trouble for each in written if (trouble := each.trouble)]

    def _tell(self, event: str, message: str) -> None:
        self.note(Note(event, message))

    def note(self, note: Note) -> None:
        """Write down that something happened just now."""
        self._events.append(note.event, note.message, note.task, data=note.data, time_ms=epoch_ms())
        self._events.changed()
        self.changed()

    def when_kept(self, then: Callable[[], None]) -> None:
        """Have ``then`` called once all notes so far are on the store."""
        self._events.when_written(then)

    async def stop(self) -> None:
        """Stop writing, after the writes under way, which end by the store's deadlines."""
        for file in (self._status_file, self._events, self.series):
            if file:
                file.stop()
        if self._publishing:
            await asyncio.wait({self._publishing})

    async def write_result(self, result: JobStatus) -> list[str]:
        """Write the last samples and events, the last status and the result: whoever sees this one finds the others.

        All go to the store side by side, since DataNodes often take 0.4 s for the end of a small file. Returns the
        names of those that could not be written.
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
        """Write nothing but the result, for an application master that has a moment left to live.

        False when that failed.
        """
        return await self._publisher(contract.RESULT_FILE, lambda: partial(dump_json, result)).write()

    async def clean_up(self) -> None:
        """Remove what is of no use after the end: the staging, and what writers that were killed have left."""
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
        tell: Callable[[str, str], None] = lambda event, message: None,
        interval: Optional[float] = None,
        before_it_appears: Before = without_waiting,
    ) -> FileUpdater:
        return FileUpdater(
            self._storage,
            uris.join(self._directory, name),
            content,
            interval=interval,
            tell=tell,
            before_it_appears=before_it_appears,
        )


def _without(trouble: str, status: JobStatus) -> JobStatus:
    """What a file says of itself once it is written is no trouble any more."""
    return attrs.evolve(status, troubles=[each for each in status.troubles if each != trouble])


def _log_fault(publishing: asyncio.Future[tuple[None, None, None]]) -> None:
    """At once: the files stand still from now on, and nobody else would say so."""
    error = None if publishing.cancelled() else publishing.exception()
    if error:
        log.error("publishing the job's status has failed", exc_info=error)


T = TypeVar("T")

_TIMEOUT = 600.0  # seconds for a store that cannot be reached


@attrs.frozen
class PreviousMasters:
    """What the former application masters of this application have left on the store."""

    events: list[StoredSegment]  # of their event log
    history: History
    status: Optional[JobStatus]  # as they knew it last
    series: int  # bytes of the series that they have kept
    result: Optional[JobStatus]  # they brought the job to its end, and only the leave from the cluster is missing


@attrs.frozen
class RecoveredState:
    """What an application master finds at its start: what is left to it, and whether it may start anything."""

    legacy: Optional[PreviousMasters]  # None: this is the first application master
    fenced: str  # why nothing may be started; empty: it may


def read_recovered_state(ownership: Ownership) -> RecoveredState:
    """Read what a starting application master has to know. Blocks; raises SupersededError, StorageError."""
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
    """Do blocking work, again and again until the store can be reached; returns what it gives.

    Raises StorageError, and what ``work`` raises.
    """
    return await retry(partial(asyncio.to_thread, work), _TIMEOUT, StorageUnreachable, _troubled)


def _troubled(error: StorageUnreachable) -> None:
    log.warning("trying again: %s", error)


def read_previous_masters(storage: Storage, directory: str) -> PreviousMasters:
    """What former application masters have left in the application's directory. Raises StorageError.

    A result that was written in the face of death, though the job goes on, is removed.
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
        # The executors know their own part of it.
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
