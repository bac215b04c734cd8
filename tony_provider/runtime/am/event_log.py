"""The event log: what happened in the application, in order, kept on the store in segments that are written once.

Keys of an event are ``time_ms`` (epoch), ``event``, ``message``, ``task`` where it is about one, ``data`` where a later
application master needs it, and ``labels`` in the first one (where the job came from).

What is new is on the store within a second or so, since a later application master goes on from it. So that this never
makes many small files, a segment takes in those before it that are not much larger, and these are removed: an event is
written again a few times in its life, and not with each other one. All is bounded; the oldest events go first, and what
they carried as data is kept, folded into one.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Callable, Optional

import attrs

from tony_provider.runtime.am.session.recovery import merge_data
from tony_provider.runtime.am.store_writer import StoreWriter
from tony_provider.runtime.common import contract
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
from tony_provider.runtime.storage import (
    Storage,
    StorageError,
    StorageNotFound,
    StorageTooLarge,
    read_whole,
    uris,
    write_atomically,
)

log = logging.getLogger(__name__)

_MOST_BYTES = 512 << 10  # of all segments
_MERGED = 256 << 10  # bytes of a segment's text, up to which it takes in others: beyond, it stays as it is
_LARGER = 2.0  # times as large as a new segment is one, at most, that it takes in
_ROOM = 0.75  # of the bytes are used after old events had to go
_MOST_TEXT = 64 << 20  # bytes of a segment that is read back: far more than any has
_MOST_MESSAGE = 2048  # characters


@attrs.frozen
class _Segment:
    """A segment, with its lines, since a later one may take it in."""

    range: EventRange
    lines: Sequence[bytes]
    text: int  # bytes of the lines
    size: int = 0  # of its file, once it is on the store


class EventLog(StoreWriter):
    """The events that one application master notes, after those of former ones."""

    def __init__(
        self,
        storage: Storage,
        application_dir: str,
        application_id: str,
        labels: Mapping[str, str],
        *,
        time_ms: int,
        am_attempt: int = 1,
        former: Iterable[StoredSegment] = (),
        most_bytes: int = _MOST_BYTES,
        merged: int = _MERGED,
        tell: Callable[[str, str], None] = lambda event, message: None,
    ) -> None:
        """``former``: segments of former application masters. ``labels`` and ``time_ms``: for the first event.

        ``most_bytes``: of all segments, on the store. ``merged``: bytes of a segment's text up to which it takes in
        others. ``tell``: see StoreWriter.
        """
        super().__init__("events", tell=tell)
        self._storage = storage
        self._directory = uris.join(application_dir, contract.HISTORY_DIR)
        self._application_id = application_id
        self._am_attempt = am_attempt
        self._most_bytes = most_bytes
        self._merged = merged
        self._backlog = EventBacklog()
        self._published = 0  # the number of the newest event on the store
        known = list(former)
        self._useless = {each.range for each in known if any(other.range.covers(each.range) for other in known)}
        # Segments that are not taken in any more, and those after them.
        self._closed = [each for each in known if each.range not in self._useless]
        self._open: list[_Segment] = []
        self._uncertain: set[EventRange] = set()  # not written, as far as the store said
        self._is_ending = False
        if not self._closed:
            first = {
                "time_ms": time_ms,
                "event": APPLICATION,
                "message": "",
                "labels": {name: printable(text) for name, text in labels.items()},
            }
            self._backlog.add(encode_event(first))

    def append(
        self,
        event: str,
        message: str,
        task: Optional[str] = None,
        *,
        data: Optional[Mapping[str, Any]] = None,
        time_ms: int,
    ) -> None:
        """Note an event; ``changed`` has it written."""
        fields: dict[str, Any] = {"time_ms": time_ms, "event": event, "message": message[-_MOST_MESSAGE:]}
        if task is not None:
            fields["task"] = task
        if data:
            fields["data"] = dict(data)
        self._backlog.add(encode_event(fields))

    async def finish(self) -> bool:
        """Write what is left, in few segments; False when that failed. After ``run`` has ended."""
        self._is_ending = True
        return await self.write()

    async def _store(self) -> None:
        taken, self._backlog = self._backlog, EventBacklog()
        segment = self._next(taken)
        if segment is not None:
            try:
                size = await asyncio.to_thread(self._write, segment.range, segment.lines)
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
        """The segment of what is new, and of those before it that it takes in; None: there is nothing to be written."""
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
        return segment.text + text <= self._merged and (self._is_ending or segment.text <= _LARGER * text)

    def _took(self, segment: _Segment) -> None:
        """The store has it."""
        self._published = segment.range.last
        known = {each.range for each in self._open} | self._uncertain
        self._useless |= {each for each in known if segment.range.covers(each)}
        self._uncertain = {each for each in self._uncertain - self._useless if each != segment.range}
        self._open = [*(each for each in self._open if not segment.range.covers(each.range)), segment]
        while sum(each.text for each in self._open) > self._merged:
            closed = self._open.pop(0)
            self._closed.append(StoredSegment(closed.range, closed.size))

    def _write(self, segment: EventRange, lines: Iterable[bytes]) -> int:
        data = encode_events(self._application_id, lines)
        write_atomically(self._storage, self._uri(segment), data)
        return len(data)

    # ---- old segments; all of this blocks ------------------------------------------------------------------------

    def _tidy(self) -> None:
        while self._size > self._most_bytes and (oldest := self._oldest()):
            self._drop(oldest)
        for each in sorted(self._useless):
            self._storage.remove(self._uri(each))
            self._useless.discard(each)

    @property
    def _size(self) -> int:
        """Bytes of all segments."""
        return sum(each.size for each in self._closed) + sum(each.size for each in self._open)

    def _oldest(self) -> Sequence[StoredSegment]:
        """What is to go: the first segments of one application master, two or more; empty when nothing can."""
        excess = self._size - _ROOM * self._most_bytes
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
        """Have one segment take their place that says how many events there were."""
        ranges = [each.range for each in oldest]
        whole = EventRange(ranges[0].am_attempt, ranges[0].first, max(each.last for each in ranges))
        dropped = DroppedEvents()
        for each in ranges:
            for event in self._read(each):
                dropped.add(event)
        dropped.number = whole.events - (dropped.first is not None)  # those included that cannot be read
        size = self._write(whole, dropped.lines())
        self._useless |= {each for each in ranges if each != whole}
        at = self._closed.index(oldest[0])
        self._closed = [each for each in self._closed if each not in oldest]
        self._closed.insert(at, StoredSegment(whole, size))

    def _read(self, segment: EventRange) -> list[dict[str, Any]]:
        try:
            data = read_whole(self._storage, self._uri(segment), EVENT_SEGMENT_LIMIT)
        except StorageNotFound:
            return []
        except StorageTooLarge as error:
            log.warning("%s", error)
            return []
        found = read_event_segment(data, most_bytes=_MOST_TEXT, most_events=segment.events)
        for problem in found.problems:
            log.warning("%s: %s", segment.file, problem)
        return found.events

    def _uri(self, segment: EventRange) -> str:
        return uris.join(self._directory, segment.file)


@attrs.define
class DroppedEvents:
    """Events in a row that one event stands for, with what they carried as data folded into one.

    The application's first event, which has its labels, is kept beside it.
    """

    first: Optional[Mapping[str, Any]] = None
    number: int = 0
    time_ms: int = 0  # of the newest
    data: dict[str, Any] = attrs.field(factory=dict)

    def __bool__(self) -> bool:
        return self.first is not None or self.number > 0

    @property
    def events(self) -> int:
        """How many there were."""
        return self.number + (self.first is not None)

    def add(self, event: Mapping[str, Any]) -> None:
        """The next event; it may be one that stands for others."""
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
        """The events that are left of them, as lines."""
        if self.first is not None:
            yield encode_event(self.first)
        if self.number:
            message = f"{self.number} older events"
            event = {"time_ms": self.time_ms, "event": DROPPED, "message": message, DROPPED: self.number}
            yield encode_event({**event, "data": self.data} if self.data else event)


_MOST_BACKLOG_BYTES = 1 << 20  # of their lines, while the store takes none


@attrs.define
class EventBacklog:
    """Lines of events, oldest first, within a bound of bytes: what is older is dropped."""

    most_bytes: int = _MOST_BACKLOG_BYTES
    size: int = 0  # of the lines
    _dropped: DroppedEvents = attrs.field(factory=DroppedEvents)
    _lines: deque[bytes] = attrs.field(factory=deque)

    @property
    def events(self) -> int:
        """How many there are, the dropped ones included."""
        return self._dropped.events + len(self._lines)

    def add(self, line: bytes) -> None:
        self._lines.append(line)
        self.size += len(line)
        while self.size > self.most_bytes:
            self._drop()

    def extend(self, later: EventBacklog) -> None:
        """Add what came later."""
        if later._dropped:
            while self._lines:
                self._drop()
            for line in later._dropped.lines():
                self._dropped.add(json.loads(line))
        for line in later._lines:
            self.add(line)

    def lines(self) -> Iterator[bytes]:
        """All that is left of them."""
        yield from self._dropped.lines()
        yield from self._lines

    def _drop(self) -> None:
        oldest = self._lines.popleft()
        self.size -= len(oldest)
        self._dropped.add(json.loads(oldest))
