"""The event log of an application, read from the store: by later application masters, and by Airflow's side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Optional, Union

import attrs

from tony_provider.runtime import contract
from tony_provider.runtime.history.event_segments import (
    DROPPED,
    EventLines,
    EventRange,
    read_event_lines,
    read_event_segment,
)
from tony_provider.runtime.history.segment_files import contents, listed
from tony_provider.runtime.quantities import count, size
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import FileStatus, Storage
from tony_provider.runtime.storage.errors import StorageError, StorageNotFound
from tony_provider.runtime.storage.helpers import read_bytes

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
