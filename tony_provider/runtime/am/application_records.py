"""The records that an application leaves: status, events and series while it runs, the result at its end."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from functools import partial
from typing import Callable, Optional

import attrs

from tony_provider.runtime import application_cleanup, contract
from tony_provider.runtime.am.file_updater import FileUpdater
from tony_provider.runtime.am.history.event_log import EventLog
from tony_provider.runtime.am.history.series import Series
from tony_provider.runtime.am.session.actions import Note
from tony_provider.runtime.application import ApplicationDescription
from tony_provider.runtime.clock import epoch_ms
from tony_provider.runtime.codec import dump_json
from tony_provider.runtime.history.stored_events import StoredSegment
from tony_provider.runtime.protocol.status import JobStatus
from tony_provider.runtime.protocol.timing import STATUS_INTERVAL
from tony_provider.runtime.storage import Storage, StorageError, uris
from tony_provider.runtime.storage.base import Before, right_away

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
            await asyncio.to_thread(application_cleanup.clean_up, self._storage, self._directory)
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
        before_it_appears: Before = right_away,
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
