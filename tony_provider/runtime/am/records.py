"""The records of an application on the store: status, event log, series, logs and result.

The event log is stored as write-once segments in the application's history directory.

An event has the keys ``time_ms`` (epoch), ``event`` and ``message``, and optionally ``task``. ``data`` contains what a
later application master needs. The first event has ``labels``, which contain the origin of the job.

New events reach the store within about a second, because a later application master continues from them. To avoid many
small files, a new segment absorbs preceding segments that are not much larger, and the absorbed segments are removed.
So each event is rewritten only a few times. The size of the log is limited: the oldest events are dropped first, and
their data is merged into one event.

The module also reads the records of former application masters when a new one starts.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Callable, Optional, TypeVar

import attrs

from tony_provider.runtime import application
from tony_provider.runtime.am.checkpoint_chain import FencedError, Ownership
from tony_provider.runtime.am.sample_series import Series
from tony_provider.runtime.am.session.actions import AddNote, Note
from tony_provider.runtime.am.session.recovery import History, merge_data
from tony_provider.runtime.am.store_writer import FileUpdater, LostNodesFile, SegmentWriter, StoreWriter
from tony_provider.runtime.application_history import (
    APPLICATION,
    DROPPED,
    EventRange,
    StoredSegment,
    encode_event,
    encode_events,
    event_segments,
    listed,
    read_event_segment,
    read_events,
    segment_order,
)
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.bounds import EVENT_SEGMENT_LIMIT, STATUS_LIMIT
from tony_provider.runtime.common.clock import epoch_ms
from tony_provider.runtime.common.codec import CodecError, dump_json, load_json
from tony_provider.runtime.common.concurrency import log_failure, retry
from tony_provider.runtime.common.text import printable
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.protocol.http_messages import StoredLog, pack_logs
from tony_provider.runtime.protocol.limits import BUNDLED_LOGS, MOST_BUNDLED, SENT_LOGS, STATUS_INTERVAL
from tony_provider.runtime.protocol.status import JobStatus
from tony_provider.runtime.protocol.task_identity import TaskIdentity
from tony_provider.runtime.storage import (
    Storage,
    StorageError,
    StorageNotFound,
    StorageTooLarge,
    StorageUnreachable,
    read_whole,
    uris,
)

log = logging.getLogger(__name__)

_LARGER = 2.0  # a new segment absorbs segments of at most this multiple of its size
_ROOM = 0.75  # fraction of the size limit that remains in use after old events were dropped
_MOST_TEXT = 64 << 20  # size limit in bytes for reading a segment back, far above real sizes
_MOST_MESSAGE = 2048  # characters
_SMALL_BUNDLE = 1 << 20  # bytes of logs; a smaller bundle is written again with the next logs
_MOST_UNSTORED = 2 * SENT_LOGS  # bytes of logs in memory while the store does not accept them


@attrs.frozen
class _Segment:
    """A segment and its lines, which a later segment may absorb."""

    range: EventRange
    lines: Sequence[bytes]
    text: int  # size of the lines in bytes
    size: int = 0  # size of the segment's file in bytes; 0 until the file is on the store


class EventLog(SegmentWriter):
    """Records the events of one application master, after the events of its predecessors."""

    size_limit = 512 << 10  # bytes of all segments on the store
    merge_limit = 256 << 10  # size limit in bytes for the text of a merged segment

    def __init__(
        self,
        ownership: Ownership,
        former: Iterable[StoredSegment] = (),
        *,
        time_ms: int,
        note: Optional[AddNote] = None,
    ) -> None:
        """``former``: segments of former application masters. ``time_ms``: time of the first event.

        ``note``: see StoreWriter.
        """
        super().__init__("events", ownership, note)
        self._backlog = EventBacklog()
        self._published = 0  # the number of the newest event on the store
        known = list(former)
        self._useless = {each.range for each in known if any(other.range.covers(each.range) for other in known)}
        # Older segments, which are not absorbed any more.
        self._closed = [each for each in known if each.range not in self._useless]
        self._open: list[_Segment] = []  # newer segments, which later ones may absorb
        self._uncertain: set[EventRange] = set()  # segments whose write failed, but which may be on the store
        self._is_ending = False
        if not self._closed:
            first = {
                "time_ms": time_ms,
                "event": APPLICATION,
                "message": "",
                "labels": {name: printable(text) for name, text in ownership.description.labels.items()},
                "warm_start": ownership.description.warm_start,
            }
            self._backlog.add(encode_event(first))

    def append(self, note: Note, time_ms: int) -> None:
        """Record an event. The caller then calls ``changed``, so that the event is written."""
        fields: dict[str, Any] = {"time_ms": time_ms, "event": note.event, "message": note.message[-_MOST_MESSAGE:]}
        if note.task is not None:
            fields["task"] = note.task
        if note.data:
            fields["data"] = dict(note.data)
        self._backlog.add(encode_event(fields))

    async def finish(self) -> bool:
        self._is_ending = True  # from now on, few segments
        return await super().finish()

    async def _store(self) -> None:
        taken, self._backlog = self._backlog, EventBacklog()
        segment = self._next(taken)
        if segment is not None:
            try:
                size = await asyncio.to_thread(self._write_range, segment.range, segment.lines)
            except BaseException:
                self._uncertain.add(segment.range)
                taken.extend(self._backlog)
                self._backlog = taken
                raise
            self._took(attrs.evolve(segment, size=size))
        try:
            await asyncio.to_thread(self._tidy)
        except StorageError as error:
            log.warning("cannot remove old events now: %s", error)

    # ---- the newest segment --------------------------------------------------------------------------------------

    def _next(self, taken: EventBacklog) -> Optional[_Segment]:
        """Return a segment with the new events and the absorbed segments, or None if there is nothing to write."""
        text, begin = taken.size, len(self._open)
        while begin and self._takes_in(self._open[begin - 1], text):
            begin -= 1
            text += self._open[begin].text
        before = self._open[begin:]
        if not taken.events and len(before) < 2:
            return None
        first = before[0].range.first if before else self._published + 1
        last = self._published + taken.events
        lines = [*(line for segment in before for line in segment.lines), *taken.lines()]
        return _Segment(EventRange(self._am_attempt, first, last), lines, sum(map(len, lines)))

    def _takes_in(self, segment: _Segment, text: int) -> bool:
        return segment.text + text <= self.merge_limit and (self._is_ending or segment.text <= _LARGER * text)

    def _took(self, segment: _Segment) -> None:
        """Update the lists of segments after the store accepted ``segment``."""
        self._published = segment.range.last
        known = {each.range for each in self._open} | self._uncertain
        self._useless |= {each for each in known if segment.range.covers(each)}
        self._uncertain = {each for each in self._uncertain - self._useless if each != segment.range}
        self._open = [*(each for each in self._open if not segment.range.covers(each.range)), segment]
        while sum(each.text for each in self._open) > self.merge_limit:
            closed = self._open.pop(0)
            self._closed.append(StoredSegment(closed.range, closed.size))

    def _write_range(self, segment: EventRange, lines: Iterable[bytes]) -> int:
        """Write a segment, and return the size of its file. Blocks."""
        data = encode_events(self._application_id, lines)
        self._write(segment.file, data)
        return len(data)

    # ---- old segments; all of this blocks ------------------------------------------------------------------------

    def _tidy(self) -> None:
        while self._size > self.size_limit and (oldest := self._oldest()):
            self._drop(oldest)
        for each in sorted(self._useless):
            self._storage.remove(self._uri(each.file))
            self._useless.discard(each)

    @property
    def _size(self) -> int:
        """Size of all segments on the store, in bytes."""
        return sum(each.size for each in self._closed) + sum(each.size for each in self._open)

    def _oldest(self) -> Sequence[StoredSegment]:
        """Return the segments to drop: at least two, all of the same application master, oldest first.

        Return an empty list if each application master has fewer than two closed segments.
        """
        excess = self._size - _ROOM * self.size_limit
        for am_attempt in sorted({each.range.am_attempt for each in self._closed}):
            chosen: list[StoredSegment] = []
            for each in self._closed:
                if each.range.am_attempt == am_attempt and (excess > 0 or len(chosen) < 2):
                    chosen.append(each)
                    excess -= each.size
            if len(chosen) > 1:
                return chosen
        return []

    def _drop(self, oldest: Sequence[StoredSegment]) -> None:
        """Replace these segments by one segment that contains only the number and the merged data of their events."""
        ranges = [each.range for each in oldest]
        whole = EventRange(ranges[0].am_attempt, ranges[0].first, max(each.last for each in ranges))
        dropped = DroppedEvents()
        for each in ranges:
            for event in self._read(each):
                dropped.add(event)
        dropped.number = whole.events - (dropped.first is not None)  # including events that cannot be read
        size = self._write_range(whole, dropped.lines())
        self._useless |= {each for each in ranges if each != whole}
        at = self._closed.index(oldest[0])
        self._closed = [each for each in self._closed if each not in oldest]
        self._closed.insert(at, StoredSegment(whole, size))

    def _read(self, segment: EventRange) -> list[dict[str, Any]]:
        try:
            data = read_whole(self._storage, self._uri(segment.file), EVENT_SEGMENT_LIMIT)
        except StorageNotFound:
            return []
        except StorageTooLarge as error:
            log.warning("%s", error)
            return []
        found = read_event_segment(data, most_bytes=_MOST_TEXT, most_events=segment.events)
        for problem in found.problems:
            log.warning("%s: %s", segment.file, problem)
        return found.events


@attrs.define
class DroppedEvents:
    """The number and merged data of consecutive events that were dropped.

    The application's first event contains the labels and is therefore kept unchanged.
    """

    first: Optional[Mapping[str, Any]] = None  # the application's first event, if it is among the dropped ones
    number: int = 0  # number of dropped events, not counting ``first``
    time_ms: int = 0  # time of the newest dropped event
    data: dict[str, Any] = attrs.field(factory=dict)

    def __bool__(self) -> bool:
        return self.events > 0

    @property
    def events(self) -> int:
        """Number of the events, including the first one."""
        return self.number + (self.first is not None)

    def add(self, event: Mapping[str, Any]) -> None:
        """Add the next event, which may itself represent dropped events."""
        if event.get("event") == APPLICATION and not self:
            self.first = event
            return
        number, data, time_ms = event.get(DROPPED, 1), event.get("data"), event.get("time_ms")
        self.number += number if isinstance(number, int) else 1
        if isinstance(data, Mapping):
            self.data = merge_data(self.data, data)
        if isinstance(time_ms, int):
            self.time_ms = time_ms

    def lines(self) -> Iterator[bytes]:
        """Yield the lines that replace the dropped events."""
        if self.first is not None:
            yield encode_event(self.first)
        if self.number:
            message = f"{self.number} older events"
            event = {"time_ms": self.time_ms, "event": DROPPED, "message": message, DROPPED: self.number}
            yield encode_event({**event, "data": self.data} if self.data else event)


_MOST_BACKLOG_BYTES = 1 << 20  # size limit of the lines while the store is unavailable


@attrs.define
class EventBacklog:
    """Lines of unwritten events, oldest first. Above ``most_bytes``, the oldest events are dropped."""

    most_bytes: int = _MOST_BACKLOG_BYTES
    size: int = 0  # size of the lines in bytes
    _dropped: DroppedEvents = attrs.field(factory=DroppedEvents)
    _lines: deque[bytes] = attrs.field(factory=deque)

    @property
    def events(self) -> int:
        """Number of events, including dropped ones."""
        return self._dropped.events + len(self._lines)

    def add(self, line: bytes) -> None:
        self._lines.append(line)
        self.size += len(line)
        while self.size > self.most_bytes:
            self._drop()

    def extend(self, later: EventBacklog) -> None:
        """Append a later backlog."""
        if later._dropped:
            while self._lines:
                self._drop()
            for line in later._dropped.lines():
                self._dropped.add(json.loads(line))
        for line in later._lines:
            self.add(line)

    def lines(self) -> Iterator[bytes]:
        """Yield the lines that replace the dropped events, then the remaining lines."""
        yield from self._dropped.lines()
        yield from self._lines

    def _drop(self) -> None:
        oldest = self._lines.popleft()
        self.size -= len(oldest)
        self._dropped.add(json.loads(oldest))


class TaskLogs(StoreWriter):
    """Stores the logs that executors send when their containers end, several in one file.

    So a job with many tasks writes few small files.
    """

    def __init__(self, ownership: Ownership, note: Optional[AddNote] = None) -> None:
        """``note``: see StoreWriter."""
        super().__init__(ownership.storage, contract.LOGS_DIR, note)
        self._directory = uris.join(ownership.description.application_dir, contract.LOGS_DIR)
        self.am_attempt = ownership.am_attempt
        self._unstored: dict[str, bytes] = {}  # by the names of the logs
        self._is_incomplete = False  # whether a log was lost
        self._bundle: dict[str, bytes] = {}  # the logs in the newest bundle, if it is small
        self._number = 1  # number of the newest bundle

    def keep(self, identity: TaskIdentity, last: tony_pb2.LastWords) -> None:
        """Schedule a write of the log within five seconds, or immediately if the container was killed."""
        self._unstored[contract.log_name(identity.task, identity.attempt)] = last.output
        while sum(map(len, self._unstored.values())) > _MOST_UNSTORED:
            name = next(iter(self._unstored))
            log.warning("%s is lost: the store does not accept logs, and newer logs need the memory", name)
            del self._unstored[name]
            self._is_incomplete = True
        self.changed(soon=bool(last.tail))

    def unstored(self, name: str) -> Optional[StoredLog]:
        """Return a log that is not on the store yet, or None."""
        data = self._unstored.get(name)
        return None if data is None else StoredLog(name, len(data), lambda offset, length: data[offset:][:length])

    async def finish(self) -> bool:
        return await super().finish() and not self._is_incomplete

    async def _store(self) -> None:
        while self._unstored:
            bundle, room, is_full = dict(self._bundle), BUNDLED_LOGS, False
            for name, data in self._unstored.items():
                room -= len(data)
                if is_full := bool(bundle) and (room < 0 or len(bundle) >= MOST_BUNDLED):
                    break
                bundle[name] = data
            self._began_ms = epoch_ms()
            await asyncio.to_thread(self._write, bundle)
            for name, data in bundle.items():
                if self._unstored.get(name) is data:
                    del self._unstored[name]
            self._bundle = bundle
            if is_full or sum(map(len, bundle.values())) > _SMALL_BUNDLE:
                self._bundle, self._number = {}, self._number + 1

    def _write(self, logs: Mapping[str, bytes]) -> None:
        name = f"tasks-{self.am_attempt}-{self._number:06}{contract.BUNDLE_ENDING}"
        self._put(uris.join(self._directory, name), pack_logs(logs))


class ApplicationRecords:
    """Writes the status, events, series, result and logs of an application to its directory."""

    def __init__(self, ownership: Ownership, previous: Optional[PreviousMasters] = None) -> None:
        """``previous``: records of previous application masters."""
        self.previous = previous
        self._storage = ownership.storage
        self._directory = ownership.description.application_dir
        self._events = EventLog(ownership, previous.events if previous else (), time_ms=epoch_ms(), note=self.note)
        self.series = Series(ownership, kept=previous.series if previous else 0, note=self.note)
        self.logs = TaskLogs(ownership, note=self.note)
        self._lost_nodes = LostNodesFile(ownership, self.note) if ownership.description.lost_nodes_dir else None
        self._status_file: Optional[FileUpdater] = None
        self._result: Optional[JobStatus] = None
        self._publishing: Optional[asyncio.Future[Any]] = None

    def start(self, status: Callable[[], JobStatus]) -> None:
        """Keep the files up to date from now on. ``status`` returns the job's current status."""
        self._status_file = file = self._publisher(
            contract.STATUS_FILE,
            lambda: partial(dump_json, self._result or _without(file.trouble, status())),
            note=self.note,
            interval=STATUS_INTERVAL,
        )
        self._publishing = asyncio.gather(*(each.run() for each in self._writers))
        self._publishing.add_done_callback(partial(log_failure, log, "publishing the job's status has failed"))
        self.changed()  # write the first notes now, because nothing may change for days while a job waits

    def changed(self, *, soon: bool = True) -> None:
        """Schedule a write of the changed status."""
        if self._status_file:
            self._status_file.changed(soon=soon)

    @property
    def _writers(self) -> list[StoreWriter]:
        return [each for each in (self._status_file, self._events, self.series, self.logs, self._lost_nodes) if each]

    @property
    def troubles(self) -> list[str]:
        """One line for each record that cannot be written, with the reason and the time of the first failure."""
        return [trouble for each in self._writers if (trouble := each.trouble)]

    def note(self, note: Note) -> None:
        """Record an event with the current time."""
        self._events.append(note, epoch_ms())
        if self._lost_nodes and note.event == "node_loss":
            self._lost_nodes.lost(note.data["nodes"], note.message)
        self._events.changed()
        self.changed()

    def when_kept(self, then: Callable[[], None]) -> None:
        """Call ``then`` when all notes so far are on the store."""
        self._events.when_written(then)

    def stop(self) -> None:
        """Stop writing. Writes in progress continue until the store's deadlines."""
        for writer in self._writers:
            writer.stop()

    async def write_result(self, result: JobStatus) -> list[str]:
        """Write the last samples, events, logs and status, and then the result.

        A reader that finds the result also finds the other files. Returns the names of files that could not be written.
        ``settle`` makes the files readable for other programs.
        """
        self._result = result
        if not self._status_file:
            self._status_file = self._publisher(contract.STATUS_FILE, lambda: partial(dump_json, result))
        last = [each for each in (self.series, self._events, self.logs, self._lost_nodes, self._status_file) if each]
        written = await asyncio.gather(*(each.finish() for each in last))
        missing = [each.name for each, is_there in zip(last, written) if not is_there]
        return [*missing, *([] if await self.write_result_only(result) else [contract.RESULT_FILE])]

    async def write_result_only(self, result: JobStatus) -> bool:
        """Write only the result, for an application master that is about to be killed. Return False if that failed."""
        return await self._publisher(contract.RESULT_FILE, lambda: partial(dump_json, result)).finish()

    async def end(self) -> None:
        """Store the logs that executors have sent since ``write_result``, and call ``settle``."""
        await self.logs.finish()
        await self.settle()

    async def settle(self) -> None:
        """Replace records by ordinary files, which other programs can read. A failure is only logged."""
        await self._tidy(application.settle, "replace all records by files")

    async def clean_up(self) -> None:
        """Remove the staged files and the temporary files of killed writers. A failure is only logged."""
        await self._tidy(application.clean_up, "remove staged and temporary files")

    async def _tidy(self, work: Callable[[Storage, str], None], what: str) -> None:
        try:
            await asyncio.to_thread(work, self._storage, self._directory)
        except StorageError as error:
            log.warning("could not %s: %s", what, error)
        except Exception:
            log.exception("could not %s", what)

    def _publisher(
        self,
        name: str,
        content: Callable[[], Callable[[], bytes]],
        *,
        note: Optional[AddNote] = None,
        interval: Optional[float] = None,
    ) -> FileUpdater:
        return FileUpdater(self._storage, uris.join(self._directory, name), content, interval=interval, note=note)


def _without(trouble: str, status: JobStatus) -> JobStatus:
    """Return the status without ``trouble``, because that problem is solved once this status is written."""
    return attrs.evolve(status, troubles=[each for each in status.troubles if each != trouble])


T = TypeVar("T")

_TIMEOUT = 600.0  # seconds to wait for an unreachable store


@attrs.frozen
class PreviousMasters:
    """Records of this application's former application masters on the store."""

    events: list[StoredSegment]  # segments of their event log
    history: History
    status: Optional[JobStatus]  # last status that they wrote
    series: int  # size of their series in bytes
    result: Optional[JobStatus]  # result of an ended job whose master was lost before it unregistered, otherwise None


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
    log.warning("the store is unreachable, retrying: %s", error)


def read_previous_masters(storage: Storage, directory: str) -> PreviousMasters:
    """Read the records of former application masters from the application's directory. Raises StorageError.

    If the job continues, also removes the result that a former master wrote because it expected to be killed.
    """
    result = _status(storage, uris.join(directory, contract.RESULT_FILE))
    status = _status(storage, uris.join(directory, contract.STATUS_FILE))
    if result and not (status and status.state is result.state):
        log.info("removing a premature result of a former application master, because the job continues")
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
        # Continue without these counters, because executors report their own counters.
        log.warning("cannot read the counters of the former application masters, continuing without them: %s", error)
        return History()
    finally:
        for line in missing:
            log.warning("problem with the event log of a former application master: %s", line)


def _status(storage: Storage, uri: str) -> Optional[JobStatus]:
    try:
        return load_json(read_whole(storage, uri, STATUS_LIMIT), JobStatus)
    except StorageNotFound:
        return None
    except (CodecError, StorageTooLarge) as error:
        log.warning("%s: %s", uri, error)
        return None
