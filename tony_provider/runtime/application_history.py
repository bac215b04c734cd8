"""History of an application: its event log and the samples of its tasks, in segment files on the store.

Samples are the resource use, progress and metrics of a task. A segment is a file of gzipped JSON lines: a header, then
events or samples, oldest first. A segment is never changed after it is written. Readers return all lines before
damaged data.

Each application master numbers its events from 1. The name of an event segment contains the numbers of its first and
last event. A later segment may replace several small segments, which are then removed. If old events are dropped, one
event ``dropped`` takes their place.
"""

from __future__ import annotations

import json
import math
import re
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from typing import Any, Callable, ClassVar, Generic, Optional, Protocol, TypeVar, Union

import attrs

from tony_provider.runtime.common import contract
from tony_provider.runtime.common.bounds import BoundedJsonError, read_json
from tony_provider.runtime.common.codec import NON_FINITE, CodecError, dump_json, load_json, plain_number
from tony_provider.runtime.common.quantities import count, size
from tony_provider.runtime.protocol.metrics import SHOWN, MetricValues, Unit
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import FileStatus, Storage, read_bytes
from tony_provider.runtime.storage.errors import STORE_ERRORS, StorageError, StorageNotADirectory, StorageNotFound

GZIP = 31  # zlib's window bits for a gzip header
_MOST_UNREADABLE = 10_000  # unreadable lines after which the rest of a file is not read
_LINE = re.compile(rb"[^\n]+")
_MOST_MEMBERS = 100  # limit for the members of a gzip file: segments have one or two, and each member copies the rest
_TOO_LARGE = "it is too large: the rest is not read"
_AT_ONCE = 8  # files read concurrently, because a store's latency for each file dominates
_MOST_OF_RECORD = 512 << 10  # bytes of a segment that is a record; masters write no larger segments


@attrs.frozen
class ContainerLoss:
    """The newest loss of a container on a node."""

    WRITER_MAY_BE_NEWER: ClassVar[bool] = True  # see ``codec``

    reason: str
    time_ms: int  # epoch milliseconds


@attrs.frozen
class LostNodes:
    """The nodes that lost containers of one application. Later applications may avoid these nodes."""

    WRITER_MAY_BE_NEWER: ClassVar[bool] = True  # see ``codec``

    nodes: dict[str, ContainerLoss] = attrs.field(factory=dict)  # by node (host:port)


def lost_nodes_days(directory: str, now_ms: int) -> list[str]:
    """Return the URIs of the directories with the records of the last days, today's first."""
    today = datetime.fromtimestamp(now_ms / 1000, timezone.utc)
    days = (today - timedelta(days=back) for back in range(contract.LOST_NODES_DAYS))
    return [uris.join(directory, f"{day:%Y-%m-%d}") for day in days]


T = TypeVar("T")


class Header(Protocol):
    """First line of a segment."""

    @property
    def version(self) -> int:
        """The format version of the segment."""


H = TypeVar("H", bound=Header)


@attrs.frozen
class SegmentContent(Generic[H, T]):
    """The readable part of a segment file: header, values and problems."""

    header: H
    values: list[T]
    problems: list[str]  # what is missing and why, for users
    size: int  # bytes of the uncompressed text


def compressed(lines: Iterable[bytes]) -> bytes:
    """Return the content of a gzip file with these lines."""
    compressor = zlib.compressobj(wbits=GZIP)
    return b"".join((*(compressor.compress(line) for line in lines), compressor.flush()))


def decompressed(data: bytes, most_bytes: int) -> tuple[bytes, str]:
    """Return at most ``most_bytes`` of a file's text, and why the rest is missing (empty if the text is complete)."""
    parts: list[bytes] = []
    left = most_bytes
    problem = ""
    while data and not problem:
        if left <= 0:
            problem = _TOO_LARGE
            break
        if len(parts) == _MOST_MEMBERS:
            problem = f"it is damaged: it has more than {_MOST_MEMBERS} parts"
            break
        decompressor = zlib.decompressobj(wbits=GZIP)
        try:
            parts.append(decompressor.decompress(data, left))
        except zlib.error as error:
            problem = f"it is damaged: {error}"
            break
        left -= len(parts[-1])
        if not decompressor.eof:
            problem = _TOO_LARGE if left <= 0 or decompressor.unconsumed_tail else "it is truncated"
        data = decompressor.unused_data
    return b"".join(parts), problem


def read_content(
    data: bytes, default: H, read: Callable[[bytes], Optional[T]], *, most_bytes: int, most: int
) -> SegmentContent[H, T]:
    """Read a segment from the bytes of its file, which may be truncated or invalid.

    ``default`` is a header of the newest known version. It is returned if the file has no valid header.
    ``read`` returns the value of a line, or None if the line is invalid. ``most_bytes`` and ``most`` limit how much
    text and how many values are read.
    """
    text, problem = decompressed(data, most_bytes)
    problems = [problem] if problem else []
    first, _, rest = text.partition(b"\n")
    try:
        header = load_json(first, type(default))
    except CodecError as error:
        return SegmentContent(default, [], [*problems, f"its first line is not a header: {error}"], len(text))
    if (known := default.version) < header.version:
        problems.append(f"its format version {header.version} is newer than {known}: unknown keys are ignored")
    if not rest and not problem:
        problems.append("it is truncated after its first line")
    values, more = _read_lines(rest, read, most=most, is_cut=bool(problem))
    return SegmentContent(header, values, [*problems, *more], len(text))


def _read_lines(
    text: bytes, read: Callable[[bytes], Optional[T]], *, most: int, is_cut: bool
) -> tuple[list[T], list[str]]:
    """Return the values of lines, and messages about missing lines. If ``is_cut``, ignore an unfinished last line."""
    values: list[T] = []
    unreadable = 0
    for match in _LINE.finditer(text):  # an iterator, because there may be millions of lines
        if is_cut and match.end() == len(text):
            break
        if len(values) == most:
            return values, ["it has too many lines: the rest is not read"]
        value = read(match[0])
        if value is not None:
            values.append(value)
            continue
        unreadable += 1
        if unreadable == _MOST_UNREADABLE:
            return values, [f"{_MOST_UNREADABLE} lines cannot be read: the rest is skipped"]
    return values, [f"{count(unreadable, 'line')} cannot be read"] if unreadable else []


def listed(storage: Storage, directory: str) -> list[FileStatus]:
    """Return the files of a directory, sorted by name; empty if it does not exist. Raises StorageError."""
    try:
        found = storage.list(directory)
    except (StorageNotFound, StorageNotADirectory):
        return []
    return [each for each in found if not each.is_directory]


def contents(storage: Storage, files: Sequence[FileStatus]) -> Iterator[Union[bytes, StorageError]]:
    """Yield the bytes of each file in order, up to the listed size, or the error of a single file.

    HDFS lists a record (``Storage.write_record``) as an empty file.

    Several files are read concurrently. Raises StorageError if the whole store is unavailable.
    """
    pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="tony-history")
    try:
        yield from pool.map(lambda file: _content(storage, file), files)
    finally:
        pool.shutdown(cancel_futures=True)


def read_limit(file: FileStatus) -> int:
    """Return the maximum number of bytes that ``contents`` reads from a file."""
    return file.size or _MOST_OF_RECORD


def _content(storage: Storage, file: FileStatus) -> Union[bytes, StorageError]:
    try:
        return read_bytes(storage, file.path, length=read_limit(file))
    except STORE_ERRORS:
        raise
    except StorageError as error:
        return error


EVENTS_VERSION = 1  # format version of segments
APPLICATION = "application"  # the first event, with the labels and the URI of the warm start
DROPPED = "dropped"  # name of the event that replaces old events, and of the key with the number of these events
_NAME = re.compile(r"events-(\d{1,9})-(\d{1,9})-(\d{1,9})\.jsonl\.gz")
_LATEST_MS = 1 << 53  # a time is valid if its absolute value is below this limit
_DEEPEST = 50  # maximum nesting of an event; application masters write three levels
_LONGEST = 8 << 20  # maximum bytes of a line; a ``dropped`` event needs a few bytes for each of 10,000 tasks


@attrs.frozen(order=True)
class EventRange:
    """The range of events in a segment."""

    am_attempt: int  # attempt of the application master that logged the events
    first: int  # number of the first event, from 1
    last: int  # number of the last event, inclusive

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
    size: int = 0  # bytes of the uncompressed text


def read_event_segment(data: bytes, *, most_bytes: int, most_events: int) -> EventLines:
    """Read the events of a segment from the bytes of its file, which may be truncated or invalid.

    ``most_bytes`` and ``most_events`` limit how much text and how many events are read.
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


_MOST_BYTES = 16 << 20  # limit for the bytes of all files, many times what application masters write
_MOST_TEXT = 32 << 20  # limit for the uncompressed text of all segments, in bytes
_MOST_EVENTS = 100_000  # limit for the events of all segments
_LOOKS = 5  # limit for listings: the directory is listed again if a listed segment was replaced


@attrs.frozen
class StoredSegment:
    """A segment's range of events, and the size of its file on the store."""

    range: EventRange
    size: int  # bytes, compressed


def event_segments(storage: Storage, application_dir: str) -> list[StoredSegment]:
    """Return all segments of an application's event log, oldest first, including segments that were replaced.

    Raises StorageError.
    """
    return [StoredSegment(each, file.size) for each, file in sorted(_files(storage, application_dir).items())]


def read_events(storage: Storage, application_dir: str, missing: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the events of an application, oldest first. Adds a line to ``missing`` for each gap.

    Reads segment after segment to save memory. Blocks. Raises StorageError if the store is unavailable.
    """
    reading = _Reading(storage, application_dir, missing)
    for event in reading.events():
        dropped = event.get(DROPPED)
        if isinstance(dropped, int):
            missing.append(f"events: {count(dropped, 'event')} were dropped because of the size limit")
        yield event
    if not reading.is_anything:
        missing.append("events: the application master has not written any (yet)")


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
    """One pass over the events of an application that may still write events."""

    storage: Storage
    application_dir: str
    missing: list[str]
    is_anything: bool = False
    _reached: dict[int, int] = attrs.field(factory=dict)  # last number read, by attempt of the application master
    _bytes: int = 0  # bytes of the files read so far
    _text: int = 0  # bytes of uncompressed text read so far
    _events: int = 0  # number of events read so far

    def events(self) -> Iterator[dict[str, Any]]:
        for look in range(1, _LOOKS + 1):
            files = _files(self.storage, self.application_dir)
            self.is_anything = self.is_anything or bool(files)
            for each in self._wanted(files, vanished_is_lost=look == _LOOKS):
                if each is None:
                    break  # a segment was replaced, so list the directory again
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
            self._bytes += read_limit(files[each])
            if self._bytes > _MOST_BYTES:
                left = count(len(wanted) - at, "segment")
                self._miss(f"{left} from {each.file} on: not read, because the limit is {size(_MOST_BYTES)}")
                return wanted[:at]
        return wanted

    def _read(self, segment: EventRange, data: Union[bytes, StorageError]) -> list[dict[str, Any]]:
        reached = self._reached_of(segment)
        if segment.first > reached + 1:
            lost = count(segment.first - reached - 1, "event")
            self._miss(f"{lost} of attempt {segment.am_attempt} of the application master not found")
        self._reached[segment.am_attempt] = segment.last
        if isinstance(data, StorageNotFound):
            found = EventLines([], ["it was removed while the events were read"])
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
        # Skip events that were read before. The number of each event is known only in a complete segment.
        twice = max(0, reached + 1 - segment.first) if len(found.events) == segment.events else 0
        return found.events[twice:]

    def _reached_of(self, segment: EventRange) -> int:
        return self._reached.get(segment.am_attempt, 0)

    def _miss(self, what: str) -> None:
        self.missing.append(f"events: {what}")


def _without_covered(segments: Sequence[EventRange]) -> list[EventRange]:
    """Return the segments in order, without segments that another one replaces."""
    kept: list[EventRange] = []
    for each in sorted(segments, key=lambda one: (one.am_attempt, one.first, -one.last)):
        if not kept or not kept[-1].covers(each):
            kept.append(each)
    return kept


@attrs.frozen(kw_only=True)
class TaskSample:
    """Resource use and progress of a task during an interval. A value that was not measured or reported is None."""

    WRITER_MAY_BE_NEWER: ClassVar[bool] = True  # see ``codec``

    time_ms: int  # end of the interval, in epoch milliseconds
    seconds: float  # length of the interval
    task: str  # such as worker:0
    attempt: int = 1  # number of the task's attempt, from 1
    generation: int = 0
    values: MetricValues = attrs.field(factory=dict)  # aggregates of metrics that executors measure
    step: Optional[int] = None  # newest step
    steps_per_second: Optional[float] = None  # newest speed
    metrics: dict[str, float] = attrs.field(factory=dict)  # newest values that the program reported, by name


SAMPLES_VERSION = 1  # format version of segments
_SAMPLES_NAME = re.compile(r"series-(\d{1,9})-(\d{1,9})\.jsonl\.gz")
_EXACT = 2.0**53  # integers below this limit are written exactly
_LARGEST = 1 << 64  # integers in a sample must be below this limit
_SAMPLES_LONGEST = 1 << 20  # maximum bytes of a line


@attrs.frozen(kw_only=True)
class SampleSegmentHeader:
    """First line of a segment of samples. Each application master counts its omitted samples and metrics from 0."""

    WRITER_MAY_BE_NEWER: ClassVar[bool] = True  # see ``codec``

    version: int = SAMPLES_VERSION
    application_id: str = ""
    samples_left_out: int = 0  # samples omitted while the store was unavailable, or above the limit
    metrics_left_out: int = 0  # metric names omitted above the limit
    such_as: list[str] = attrs.field(factory=list)  # examples of the omitted metric names


@attrs.frozen
class SampleSegment:
    """The readable samples of a segment."""

    header: SampleSegmentHeader
    samples: list[TaskSample]
    problems: list[str]  # what is missing and why, for users
    size: int = 0  # bytes of the uncompressed text


def segment_name(am_attempt: int, number: int) -> str:
    """Return the file name of a segment, numbered from 1 in each attempt of the application master."""
    return f"series-{am_attempt}-{number:04}.jsonl.gz"


def segment_order(name: str) -> Optional[tuple[int, int]]:
    """Return the attempt and number in a segment's file name, or None for other names."""
    match = _SAMPLES_NAME.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


# ---- writing -----------------------------------------------------------------------------------------------------


def encode_header(header: SampleSegmentHeader) -> bytes:
    """Return the beginning of a segment's file, to which the output of a ``SampleCompressor`` is appended."""
    compressor = zlib.compressobj(wbits=GZIP)
    return compressor.compress(dump_json(header) + b"\n") + compressor.flush()


class SampleCompressor:
    """Compresses the samples of one segment as they arrive."""

    def __init__(self) -> None:
        self._compressor = zlib.compressobj(wbits=GZIP)
        self._chunks = [self._compressor.compress(b"")]
        self._written = len(self._chunks[0])
        self._pending = 0  # uncompressed bytes that zlib still holds

    @property
    def most_bytes(self) -> int:
        """Upper limit for the compressed size of the samples so far. It assumes that pending bytes do not shrink."""
        return self._written + self._pending + self._pending // 1000 + 64

    def add(self, line: bytes) -> None:
        """Add a line that ``encode_sample`` returned."""
        self._pending += len(line)
        if chunk := self._compressor.compress(line):
            self._written += len(chunk)
            self._chunks.append(chunk)
            self._pending = 0

    def finish(self) -> bytes:
        """Return the compressed samples. Call once."""
        return b"".join((*self._chunks, self._compressor.flush()))


def encode_sample(sample: TaskSample) -> bytes:
    """Return the line of a sample. Metrics have seven significant digits; integers are exact."""
    fields: dict[str, Any] = {}
    for name, tidy in _WRITTEN.items():
        value = sample.values.get(name) if name in _MEASURED else getattr(sample, name)
        if value is not None:
            fields[name] = tidy(value) if tidy else value
    if sample.metrics:
        fields["metrics"] = {name: _number(value) for name, value in sample.metrics.items()}
    return (
        json.dumps(fields, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        + b"\n"
    )


def _number(value: float) -> Any:
    if not math.isfinite(value):
        return plain_number(value)
    if value == int(value) and abs(value) < _EXACT:
        return int(value)
    return float(f"{value:.7g}")


def _tenths(value: float) -> Any:
    return _number(round(value, 1))


_WRITTEN: dict[str, Optional[Callable[[float], Any]]] = {
    "time_ms": None,
    "seconds": _tenths,
    "task": None,
    "attempt": None,
    "generation": None,
    **{metric.name: None if metric.unit is Unit.BYTES else _tenths for metric in SHOWN},
    "step": None,
    "steps_per_second": _number,
}
_MEASURED = {metric.name for metric in SHOWN}


# ---- reading -----------------------------------------------------------------------------------------------------


def read_segment(data: bytes, *, most_bytes: int, most_samples: int) -> SampleSegment:
    """Read a segment from the bytes of its file, which may be truncated or invalid.

    ``most_bytes`` and ``most_samples`` limit how much text and how many samples are read.
    """
    found = read_content(data, SampleSegmentHeader(), _sample, most_bytes=most_bytes, most=most_samples)
    return SampleSegment(found.header, found.values, found.problems, found.size)


def _sample(line: bytes) -> Optional[TaskSample]:
    """Parse a line, or return None if it is invalid. Unknown keys are ignored.

    Must be fast, because there may be 100,000 lines.
    """
    if len(line) > _SAMPLES_LONGEST:
        return None
    try:
        plain = json.loads(line)
        fields = {name: read(plain[name]) for name, read in _READ.items() if plain.get(name) is not None}
        values = {name: read(plain[name]) for name, read in _READ_VALUES.items() if plain.get(name) is not None}
        return TaskSample(values=values, **fields)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None


def _int(value: Any) -> int:
    if type(value) is not int or abs(value) >= _LARGEST:
        raise TypeError(value)
    return value


def _time(value: Any) -> int:
    if not 0 <= _int(value) < _EXACT:
        raise ValueError(value)
    return int(value)


def _seconds(value: Any) -> float:
    seconds = _float(value)
    if not 0 <= seconds < _EXACT:  # also excludes NaN
        raise ValueError(value)
    return seconds


def _float(value: Any) -> float:
    if isinstance(value, str):
        return NON_FINITE[value]
    if type(value) not in (int, float):
        raise TypeError(value)
    return float(value)


def _str(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return sys.intern(value)  # up to 100,000 samples share the same text


def _metrics(value: Any) -> dict[str, float]:
    if not isinstance(value, Mapping):
        raise TypeError(value)
    return {sys.intern(name): _float(each) for name, each in value.items()}


_READ: dict[str, Callable[[Any], Any]] = {
    "time_ms": _time,
    "seconds": _seconds,
    "task": _str,
    "attempt": _int,
    "generation": _int,
    "step": _int,
    "steps_per_second": _float,
    "metrics": _metrics,
}
_READ_VALUES: dict[str, Callable[[Any], float]] = {
    metric.name: _int if metric.unit is Unit.BYTES else _float for metric in SHOWN
}
