"""Segments of events: the files that the event log of an application is kept in, each written once.

A segment is gzip'd JSON lines: a header first, then events, oldest first. Events of one application master are numbered
from 1, and the name of a segment says of which ones it is. One that was written later may hold what others hold, too,
so that there are never many small ones: these are removed then. Where old events had to go, a segment of their numbers
has one event ``dropped`` for all of them.
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
from tony_provider.runtime.history.segment_files import compressed, contents, listed, read_content, read_lines
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import FileStatus, Storage, read_bytes
from tony_provider.runtime.storage.errors import StorageError, StorageNotFound

EVENTS_VERSION = 1  # of the form of segments
APPLICATION = "application"  # the first event, with the labels
DROPPED = "dropped"  # stands for so many events, as its key of this name says
_NAME = re.compile(r"events-(\d{1,9})-(\d{1,9})-(\d{1,9})\.jsonl\.gz")
_LATEST_MS = 1 << 53  # of a time that is one
_DEEPEST = 50  # levels of an event: ours have three
_LONGEST = 8 << 20  # bytes of a line: what many dropped events carried takes a few for each of 10,000 tasks


@attrs.frozen(order=True)
class EventRange:
    """The events that a segment is of."""

    am_attempt: int  # of the application master that noted them
    first: int  # their numbers, from 1
    last: int

    @property
    def file(self) -> str:
        """The name of the segment's file. Sorted by name they are in order."""
        return f"events-{self.am_attempt}-{self.first:07}-{self.last:07}.jsonl.gz"

    @classmethod
    def of_file(cls, name: str) -> Optional[EventRange]:
        """None: it is the name of none."""
        match = _NAME.fullmatch(name)
        found = cls(int(match[1]), int(match[2]), int(match[3])) if match else None
        return found if found and found.first <= found.last else None

    @property
    def events(self) -> int:
        """How many there were."""
        return self.last - self.first + 1

    def covers(self, other: EventRange) -> bool:
        """Whether the other segment is of no use beside this one."""
        return (
            self != other
            and self.am_attempt == other.am_attempt
            and self.first <= other.first
            and other.last <= self.last
        )


@attrs.frozen(kw_only=True)
class EventSegmentHeader:
    """The first line of a segment."""

    WRITER_MAY_BE_NEWER: ClassVar[bool] = True  # see ``codec``

    version: int = EVENTS_VERSION
    application_id: str = ""


def encode_events(application_id: str, lines: Iterable[bytes]) -> bytes:
    """A whole segment's file; ``lines``: see ``encode_event``."""
    return compressed([dump_json(EventSegmentHeader(application_id=application_id)) + b"\n", *lines])


def encode_event(event: Mapping[str, Any]) -> bytes:
    """The line of an event."""
    return json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"


# ---- reading -----------------------------------------------------------------------------------------------------


@attrs.frozen
class EventLines:
    """What was read, as far as that was possible."""

    events: list[dict[str, Any]]
    problems: list[str]  # what is missing, and why, for people
    size: int = 0  # bytes of their text


def read_event_segment(data: bytes, *, most_bytes: int, most_events: int) -> EventLines:
    """The events of a segment, by the bytes of its file, which may be cut short, or be no segment at all.

    ``most_bytes``: so much of its text is read; ``most_events``: so many of its events.
    """
    found = read_content(data, EventSegmentHeader(), _event, most_bytes=most_bytes, most=most_events)
    return EventLines(found.values, found.problems, found.size)


def read_event_lines(text: bytes, *, most_events: int, is_cut: bool = False) -> EventLines:
    """The events of JSON lines. ``is_cut``: the last one is half a line, as is known already."""
    events, problems = read_lines(text, _event, most=most_events, is_cut=is_cut)
    return EventLines(events, problems, len(text))


def _event(line: bytes) -> Optional[dict[str, Any]]:
    """None when it is none."""
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


_MOST_BYTES = 16 << 20  # of all segments: many times what application masters write
_MOST_TEXT = 32 << 20  # bytes of all segments' text
_MOST_EVENTS = 100_000  # of all segments
_FIRST_LINE = 64 << 10  # bytes, that hold it
_LOOKS = 5  # at the directory, while segments are removed that others have taken the place of


@attrs.frozen
class StoredSegment:
    """A segment on the store."""

    range: EventRange
    size: int  # bytes of its file


def event_segments(storage: Storage, application_dir: str) -> list[StoredSegment]:
    """All segments of an application's event log, oldest first, those included that others have taken the place of.

    Raises StorageError.
    """
    return [StoredSegment(each, file.size) for each, file in sorted(_files(storage, application_dir).items())]


def read_events(storage: Storage, application_dir: str, missing: list[str]) -> Iterator[dict[str, Any]]:
    """The events of an application, oldest first. Adds to ``missing`` what is not there, and why, a line each.

    Segment after segment is read, so that they need not be in memory together. Blocks. Raises StorageError when the
    store cannot be asked.
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
    """The first event that is kept; empty where none can be read. Raises StorageError."""
    for _ in range(_LOOKS):
        files = _files(storage, application_dir)
        first = files[min(files)].path if files else _former_file(application_dir)
        try:
            data = read_bytes(storage, first, length=_MOST_BYTES if files else _FIRST_LINE)
        except StorageNotFound:
            continue
        if files:
            found = read_event_segment(data, most_bytes=_MOST_TEXT, most_events=1)
        else:
            found = read_event_lines(data.partition(b"\n")[0], most_events=1)
        return found.events[0] if found.events else {}
    return {}


def _files(storage: Storage, application_dir: str) -> dict[EventRange, FileStatus]:
    directory = uris.join(application_dir, contract.HISTORY_DIR)
    return {found: file for file in listed(storage, directory) if (found := EventRange.of_file(file.name))}


def _former_file(application_dir: str) -> str:
    return uris.join(application_dir, contract.EVENTS_FILE)


@attrs.define
class _Reading:
    """One pass over the events of an application, which may go on writing meanwhile."""

    storage: Storage
    application_dir: str
    missing: list[str]
    is_anything: bool = False
    _reached: dict[int, int] = attrs.field(factory=dict)  # the last number, by attempt of the application master
    _bytes: int = 0  # read so far; so the next two
    _text: int = 0
    _events: int = 0

    def events(self) -> Iterator[dict[str, Any]]:
        for look in range(1, _LOOKS + 1):
            files = _files(self.storage, self.application_dir)
            if not files and look == 1:
                yield from self._former()
                return
            self.is_anything = True
            for each in self._wanted(files, vanished_is_lost=look == _LOOKS):
                if each is None:
                    break  # its place was taken meanwhile
                yield from each
            else:
                return

    def _wanted(
        self, files: dict[EventRange, FileStatus], *, vanished_is_lost: bool
    ) -> Iterator[Optional[list[dict[str, Any]]]]:
        """The events of each segment that have not been read yet; None, and the end: the segment is not there."""
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
        # Where it is whole, each of its events is known by its number.
        twice = max(0, reached + 1 - segment.first) if len(found.events) == segment.events else 0
        return found.events[twice:]

    def _former(self) -> Iterator[dict[str, Any]]:
        """Those of a job of a release that kept them in one file."""
        uri = _former_file(self.application_dir)
        try:
            data = read_bytes(self.storage, uri, length=_MOST_BYTES + 1)
        except StorageNotFound:
            return
        self.is_anything = True
        if len(data) > _MOST_BYTES:
            self._miss(f"{uris.name(uri)}: it is larger than {size(_MOST_BYTES)}: the rest is not read")
        found = read_event_lines(data[:_MOST_BYTES], most_events=_MOST_EVENTS, is_cut=len(data) > _MOST_BYTES)
        for problem in found.problems:
            self._miss(f"{uris.name(uri)}: {problem}")
        yield from found.events

    def _reached_of(self, segment: EventRange) -> int:
        return self._reached.get(segment.am_attempt, 0)

    def _miss(self, what: str) -> None:
        self.missing.append(f"events: {what}")


def _without_covered(segments: Sequence[EventRange]) -> list[EventRange]:
    """In order, and without those that others have taken the place of."""
    kept: list[EventRange] = []
    for each in sorted(segments, key=lambda one: (one.am_attempt, one.first, -one.last)):
        if not kept or not kept[-1].covers(each):
            kept.append(each)
    return kept
