"""Samples of tasks (resource use, progress, metrics), and the segment files in which an application stores them."""

from __future__ import annotations

import json
import math
import re
import sys
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, Callable, ClassVar, Optional

import attrs

from tony_provider.runtime.common.codec import dump_json
from tony_provider.runtime.history.segment_files import GZIP, read_content
from tony_provider.runtime.protocol.metrics import SHOWN, MetricValues, Unit


@attrs.frozen(kw_only=True)
class TaskSample:
    """Resource use and progress of a task during some seconds. A value that was not measured or reported is None."""

    WRITER_MAY_BE_NEWER: ClassVar[bool] = True  # see ``codec``

    time_ms: int  # epoch, end of the interval
    seconds: float
    task: str  # such as worker:0
    attempt: int = 1  # attempt of its container, from 1
    generation: int = 0
    values: MetricValues = attrs.field(factory=dict)  # aggregates of metrics that executors measure
    step: Optional[int] = None  # newest value, like the following ones
    steps_per_second: Optional[float] = None
    metrics: dict[str, float] = attrs.field(factory=dict)  # that the program reported


SAMPLES_VERSION = 1  # format version of segments
_NAME = re.compile(r"series-(\d{1,9})-(\d{1,9})\.jsonl\.gz")
_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_EXACT = 2.0**53  # integers below it are written exactly
_LARGEST = 1 << 64  # limit of a counter
_LONGEST = 1 << 20  # bytes of a line


@attrs.frozen(kw_only=True)
class SampleSegmentHeader:
    """First line of a segment. Counts of omitted values begin with this application master."""

    WRITER_MAY_BE_NEWER: ClassVar[bool] = True  # see ``codec``

    version: int = SAMPLES_VERSION
    application_id: str = ""
    samples_left_out: int = 0  # while the store was unavailable, or beyond the limit
    metrics_left_out: int = 0  # metric names beyond the limit
    such_as: list[str] = attrs.field(factory=list)  # some of these names


@attrs.frozen
class SampleSegment:
    """The readable part of a segment."""

    header: SampleSegmentHeader
    samples: list[TaskSample]
    problems: list[str]  # what is missing and why, for users
    size: int = 0  # bytes of its text


def segment_name(am_attempt: int, number: int) -> str:
    """Return the file name of a segment, numbered from 1 in each attempt of the application master."""
    return f"series-{am_attempt}-{number:04}.jsonl.gz"


def segment_order(name: str) -> Optional[tuple[int, int]]:
    """Return the attempt and number in a segment's file name, or None for other names."""
    match = _NAME.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


# ---- writing -----------------------------------------------------------------------------------------------------


def encode_segment(header: SampleSegmentHeader, samples: Iterable[TaskSample]) -> bytes:
    """Return the file content of a whole segment."""
    compressor = SampleCompressor()
    for sample in samples:
        compressor.add(encode_sample(sample))
    return encode_header(header) + compressor.finish()


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
        """The maximum size of the current samples: bytes that zlib still holds may not shrink."""
        return self._written + self._pending + self._pending // 1000 + 64

    def add(self, line: bytes) -> None:
        """Add a line of ``encode_sample``."""
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
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
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

    ``most_bytes`` and ``most_samples`` limit the text and the samples that are read.
    """
    found = read_content(data, SampleSegmentHeader(), _sample, most_bytes=most_bytes, most=most_samples)
    return SampleSegment(found.header, found.values, found.problems, found.size)


def _sample(line: bytes) -> Optional[TaskSample]:
    """Parse a line, or return None if it is invalid. Unknown keys are ignored.

    Must be fast, because there may be 100,000 lines.
    """
    if len(line) > _LONGEST:
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
        return _NON_FINITE[value]
    if type(value) not in (int, float):
        raise TypeError(value)
    return float(value)


def _str(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return sys.intern(value)  # shared by up to 100,000 samples


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
