"""The application's event log, stored as write-once segments in its history directory.

An event has the keys ``time_ms`` (epoch), ``event`` and ``message``, and optionally ``task``. ``data`` contains what a
later application master needs. The first event has ``labels``, which contain the origin of the job.

New events reach the store within about a second, because a later application master continues from them. To avoid many
small files, a new segment absorbs preceding segments that are not much larger, and the log then removes these. So each
event is rewritten only a few times. The size is limited: the oldest events are dropped first, and their data is merged
into one event.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Callable, Optional

import attrs

from tony_provider.runtime.am.checkpoint_chain import Ownership
from tony_provider.runtime.am.session.actions import Note
from tony_provider.runtime.am.session.recovery import merge_data
from tony_provider.runtime.am.store_writer import SegmentWriter
from tony_provider.runtime.common.bounds import EVENT_SEGMENT_LIMIT
from tony_provider.runtime.common.text import printable
from tony_provider.runtime.history.events import (
    APPLICATION,
    DROPPED,
    EventRange,
    StoredSegment,
    encode_event,
    encode_events,
    read_event_segment,
)
from tony_provider.runtime.storage import StorageError, StorageNotFound, StorageTooLarge, read_whole

log = logging.getLogger(__name__)

_LARGER = 2.0  # a new segment absorbs segments of at most this multiple of its size
_ROOM = 0.75  # share of the bytes that stay in use after old events were dropped
_MOST_TEXT = 64 << 20  # size limit in bytes for reading a segment back, far above real sizes
_MOST_MESSAGE = 2048  # characters


@attrs.frozen
class _Segment:
    """A segment and its lines, which a later segment may absorb."""

    range: EventRange
    lines: Sequence[bytes]
    text: int  # size of the lines in bytes
    size: int = 0  # size of its file in bytes, once it is on the store


class EventLog(SegmentWriter):
    """Records the events of one application master, after the events of former ones."""

    size_limit = 512 << 10  # bytes of all segments on the store
    merge_limit = 256 << 10  # bytes of a segment's text after it has absorbed others

    def __init__(
        self,
        ownership: Ownership,
        former: Iterable[StoredSegment] = (),
        *,
        time_ms: int,
        note: Optional[Callable[[Note], None]] = None,
    ) -> None:
        """``former``: segments of former application masters. ``time_ms``: time of the first event.

        ``note``: see StoreWriter.
        """
        super().__init__("events", ownership, note)
        self._backlog = EventBacklog()
        self._published = 0  # the number of the newest event on the store
        known = list(former)
        self._useless = {each.range for each in known if any(other.range.covers(each.range) for other in known)}
        # Segments that later ones no longer absorb, and the segments after them.
        self._closed = [each for each in known if each.range not in self._useless]
        self._open: list[_Segment] = []
        self._uncertain: set[EventRange] = set()  # their writes failed, but the store may have them
        self._is_ending = False
        if not self._closed:
            first = {
                "time_ms": time_ms,
                "event": APPLICATION,
                "message": "",
                "labels": {name: printable(text) for name, text in ownership.description.labels.items()},
            }
            self._backlog.add(encode_event(first))

    def append(self, note: Note, time_ms: int) -> None:
        """Record an event. The caller then calls ``changed`` to have it written."""
        fields: dict[str, Any] = {"time_ms": time_ms, "event": note.event, "message": note.message[-_MOST_MESSAGE:]}
        if note.task is not None:
            fields["task"] = note.task
        if note.data:
            fields["data"] = dict(note.data)
        self._backlog.add(encode_event(fields))

    async def finish(self) -> bool:
        """Write the remaining events in few segments, after ``run`` has ended. Return False if that failed."""
        self._is_ending = True
        return await self.write()

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
            log.warning("old events are not removed yet: %s", error)

    # ---- the newest segment --------------------------------------------------------------------------------------

    def _next(self, taken: EventBacklog) -> Optional[_Segment]:
        """Return a segment of the new events and of those that it absorbs, or None if there is nothing to write."""
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
        """Return the segments to drop: the first ones of one application master, at least two.

        Empty if none qualify.
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
        """Replace these segments by one that contains the number of their events and their merged data."""
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

    The application's first event has its labels and is therefore kept unchanged.
    """

    first: Optional[Mapping[str, Any]] = None
    number: int = 0
    time_ms: int = 0  # time of the newest event
    data: dict[str, Any] = attrs.field(factory=dict)

    def __bool__(self) -> bool:
        return self.first is not None or self.number > 0

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
        """Yield the remaining events as lines."""
        if self.first is not None:
            yield encode_event(self.first)
        if self.number:
            message = f"{self.number} older events"
            event = {"time_ms": self.time_ms, "event": DROPPED, "message": message, DROPPED: self.number}
            yield encode_event({**event, "data": self.data} if self.data else event)


_MOST_BACKLOG_BYTES = 1 << 20  # size limit of the lines while the store is unavailable


@attrs.define
class EventBacklog:
    """Lines of unwritten events, oldest first, up to ``most_bytes``. Older events are dropped."""

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
        """Yield the remaining lines, preceded by an event for the dropped ones."""
        yield from self._dropped.lines()
        yield from self._lines

    def _drop(self) -> None:
        oldest = self._lines.popleft()
        self.size -= len(oldest)
        self._dropped.add(json.loads(oldest))
