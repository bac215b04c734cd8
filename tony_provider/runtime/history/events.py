"""Segments of an application's event log: files that are each written once, and readers of the whole log.

A segment consists of gzipped JSON lines: a header, then events, oldest first. Events of one application master are
numbered from 1, and a segment's name contains the range of its events. A later segment may replace several small ones,
which are then removed. For old events that were dropped, a segment has one event ``dropped`` in their place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Optional, Union

import attrs

from tony_provider.runtime.common import contract
from tony_provider.runtime.common.bounds import BoundedJsonError, read_json
from tony_provider.runtime.common.codec import dump_json
from tony_provider.runtime.common.quantities import count, size
from tony_provider.runtime.history.segment_files import compressed, contents, listed, read_content
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import FileStatus, Storage, read_bytes
from tony_provider.runtime.storage.errors import StorageError, StorageNotFound

EVENTS_VERSION = 1  # format version of segments
APPLICATION = "application"  # the first event, with the labels
DROPPED = "dropped"  # replaces the number of events in its key of this name
_NAME = re.compile(r"events-(\d{1,9})-(\d{1,9})-(\d{1,9})\.jsonl\.gz")
_LATEST_MS = 1 << 53  # limit for valid times
_DEEPEST = 50  # levels of an event; ours have three
_LONGEST = 8 << 20  # limit for a line: an event that replaces many needs a few bytes for each of 10,000 tasks


@attrs.frozen(order=True)
class EventRange:
    """The range of events in a segment."""

    am_attempt: int  # of the application master that logged them
    first: int  # numbers, from 1
    last: int

    @property
    def file(self) -> str:
        """The file name of the segment. Names sort in the order of events."""
        return f"events-{self.am_attempt}-{self.first:07}-{self.last:07}.jsonl.gz"

    @classmethod
    def of_file(cls, name: str) -> Optional[EventRange]:
        """Return the range in a segment's file name, or None for other names."""
        match = _NAME.fullmatch(name)
        found = cls(int(match[1]), int(match[2]), int(match[3])) if match else None
        return found if found and found.first <= found.last else None

    @property
    def events(self) -> int:
        """The number of events in the range."""
        return self.last - self.first + 1

    def covers(self, other: EventRange) -> bool:
        """Return whether this segment makes the other one redundant."""
        return (
            self != other
            and self.am_attempt == other.am_attempt
            and self.first <= other.first
            and other.last <= self.last
        )


@attrs.frozen(kw_only=True)
class EventSegmentHeader:
    """First line of a segment of events."""

    WRITER_MAY_BE_NEWER: ClassVar[bool] = True  # see ``codec``

    version: int = EVENTS_VERSION
    application_id: str = ""


def encode_events(application_id: str, lines: Iterable[bytes]) -> bytes:
    """Return the file content of a segment with ``lines`` from ``encode_event``."""
    return compressed([dump_json(EventSegmentHeader(application_id=application_id)) + b"\n", *lines])


def encode_event(event: Mapping[str, Any]) -> bytes:
    """Return the JSON line of an event."""
    return json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"


# ---- reading -----------------------------------------------------------------------------------------------------


@attrs.frozen
class EventLines:
    """The readable events of a segment."""

    events: list[dict[str, Any]]
    problems: list[str]  # what is missing and why, for users
    size: int = 0  # bytes of their text


def read_event_segment(data: bytes, *, most_bytes: int, most_events: int) -> EventLines:
    """Read the events of a segment from the bytes of its file, which may be truncated or invalid.

    ``most_bytes`` and ``most_events`` limit the text and the events that are read.
    """
    found = read_content(data, EventSegmentHeader(), _event, most_bytes=most_bytes, most=most_events)
    return EventLines(found.values, found.problems, found.size)


def _event(line: bytes) -> Optional[dict[str, Any]]:
    """Parse a line, or return None if it is no event."""
    if len(line) > _LONGEST:
        return None
    try:
        event = read_json(line, deepest=_DEEPEST, constants=True)
    except BoundedJsonError:
        return None
    if not isinstance(event, dict):
        return None
    time_ms = event.get("time_ms", 0)
    return event if isinstance(time_ms, int) and abs(time_ms) < _LATEST_MS else None


_MOST_BYTES = 16 << 20  # limit for all segments, many times what application masters write
_MOST_TEXT = 32 << 20  # limit for the text of all segments, in bytes
_MOST_EVENTS = 100_000  # limit for all segments
_LOOKS = 5  # listings of the directory while replaced segments are removed


@attrs.frozen
class StoredSegment:
    """A segment's range of events, and the size of its file on the store."""

    range: EventRange
    size: int  # bytes of its file


def event_segments(storage: Storage, application_dir: str) -> list[StoredSegment]:
    """Return all segments of an application's event log, oldest first, including replaced ones.

    Raises StorageError.
    """
    return [StoredSegment(each, file.size) for each, file in sorted(_files(storage, application_dir).items())]


def read_events(storage: Storage, application_dir: str, missing: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the events of an application, oldest first. Adds a line to ``missing`` for each thing that is missing.

    Reads segment after segment to save memory. Blocks. Raises StorageError if the store is unavailable.
    """
    reading = _Reading(storage, application_dir, missing)
    for event in reading.events():
        dropped = event.get(DROPPED)
        if isinstance(dropped, int):
            missing.append(f"events: {count(dropped, 'event')} were too many, and are not kept")
        yield event
    if not reading.is_anything:
        missing.append("events: the application master has written none (yet)")


def first_event(storage: Storage, application_dir: str) -> dict[str, Any]:
    """Return the first stored event, or an empty mapping if it cannot be read. Raises StorageError."""
    for _ in range(_LOOKS):
        files = _files(storage, application_dir)
        if not files:
            break
        try:
            data = read_bytes(storage, files[min(files)].path, length=_MOST_BYTES)
        except StorageNotFound:
            continue
        found = read_event_segment(data, most_bytes=_MOST_TEXT, most_events=1)
        return found.events[0] if found.events else {}
    return {}


def _files(storage: Storage, application_dir: str) -> dict[EventRange, FileStatus]:
    directory = uris.join(application_dir, contract.HISTORY_DIR)
    return {found: file for file in listed(storage, directory) if (found := EventRange.of_file(file.name))}


@attrs.define
class _Reading:
    """One pass over the events of an application, which may write more meanwhile."""

    storage: Storage
    application_dir: str
    missing: list[str]
    is_anything: bool = False
    _reached: dict[int, int] = attrs.field(factory=dict)  # last number read, by attempt of the application master
    _bytes: int = 0  # read so far, like the next two
    _text: int = 0
    _events: int = 0

    def events(self) -> Iterator[dict[str, Any]]:
        for look in range(1, _LOOKS + 1):
            files = _files(self.storage, self.application_dir)
            self.is_anything = self.is_anything or bool(files)
            for each in self._wanted(files, vanished_is_lost=look == _LOOKS):
                if each is None:
                    break  # replaced meanwhile
                yield from each
            else:
                return

    def _wanted(
        self, files: dict[EventRange, FileStatus], *, vanished_is_lost: bool
    ) -> Iterator[Optional[list[dict[str, Any]]]]:
        """Yield the unread events of each segment. Yield None and stop if a segment has vanished."""
        wanted = self._bounded(_without_covered([each for each in files if each.last > self._reached_of(each)]), files)
        for each, data in zip(wanted, contents(self.storage, [files[each] for each in wanted])):
            if isinstance(data, StorageNotFound) and not vanished_is_lost:
                yield None
                return
            yield self._read(each, data)

    def _bounded(self, wanted: Sequence[EventRange], files: dict[EventRange, FileStatus]) -> Sequence[EventRange]:
        for at, each in enumerate(wanted):
            self._bytes += files[each].size
            if self._bytes > _MOST_BYTES:
                left = count(len(wanted) - at, "segment")
                self._miss(f"{left} from {each.file} on: only {size(_MOST_BYTES)} are read")
                return wanted[:at]
        return wanted

    def _read(self, segment: EventRange, data: Union[bytes, StorageError]) -> list[dict[str, Any]]:
        reached = self._reached_of(segment)
        if segment.first > reached + 1:
            lost = count(segment.first - reached - 1, "event")
            self._miss(f"{lost} of attempt {segment.am_attempt} of the application master are not there")
        self._reached[segment.am_attempt] = segment.last
        if isinstance(data, StorageNotFound):
            found = EventLines([], ["it was removed meanwhile"])
        elif isinstance(data, StorageError):
            found = EventLines([], [str(data)])
        else:
            found = read_event_segment(
                data, most_bytes=_MOST_TEXT - self._text, most_events=_MOST_EVENTS - self._events
            )
        for problem in found.problems:
            self._miss(f"{segment.file}: {problem}")
        self._events += len(found.events)
        self._text += found.size
        # If the segment is complete, each of its events is known by its number.
        twice = max(0, reached + 1 - segment.first) if len(found.events) == segment.events else 0
        return found.events[twice:]

    def _reached_of(self, segment: EventRange) -> int:
        return self._reached.get(segment.am_attempt, 0)

    def _miss(self, what: str) -> None:
        self.missing.append(f"events: {what}")


def _without_covered(segments: Sequence[EventRange]) -> list[EventRange]:
    """Return the segments in order, without replaced ones."""
    kept: list[EventRange] = []
    for each in sorted(segments, key=lambda one: (one.am_attempt, one.first, -one.last)):
        if not kept or not kept[-1].covers(each):
            kept.append(each)
    return kept
