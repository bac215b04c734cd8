"""Segments of events: the files that the event log of an application is kept in, each written once.

A segment is gzip'd JSON lines: a header first, then events, oldest first. Events of one application master are numbered
from 1, and the name of a segment says of which ones it is. One that was written later may hold what others hold, too,
so that there are never many small ones: these are removed then. Where old events had to go, a segment of their numbers
has one event ``dropped`` for all of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Optional

import attrs

from tony_provider.runtime.codec import dump_json
from tony_provider.runtime.foreign_json import ForeignJsonError, read_json
from tony_provider.runtime.history.segment_files import compressed, read_content, read_lines

VERSION = 1  # of the form of segments
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

    version: int = VERSION
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
    except ForeignJsonError:
        return None
    if not isinstance(event, dict):
        return None
    time_ms = event.get("time_ms", 0)
    return event if isinstance(time_ms, int) and abs(time_ms) < _LATEST_MS else None
