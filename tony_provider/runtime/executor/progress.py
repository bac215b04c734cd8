"""Progress of a user process: its reports in the metrics file, or the scalars of its event files."""

from __future__ import annotations

import json
import logging
import os
import re
import stat
import struct
from collections import deque
from collections.abc import Collection, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Optional, Union

import attrs

from tony_provider.runtime.artifacts.manifest import scan
from tony_provider.runtime.common import binary
from tony_provider.runtime.common.binary import InvalidMessage, message_fields
from tony_provider.runtime.common.text import masked
from tony_provider.runtime.event_files.event_file_mirror import is_event_file
from tony_provider.runtime.executor.task_outputs import oldest_first
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.protocol.limits import (
    MOST_METRICS,
    MOST_PARAMETERS,
    RESERVED_KEY_REASON,
    RESERVED_KEYS,
    is_metric_name,
    valid_parameters,
)

log = logging.getLogger(__name__)

WINDOW = 60.0  # seconds over which steps per second are measured
_CHUNK = 1 << 20  # bytes read at a time
_LONGEST_LINE = 1 << 20  # bytes, enough for some ten thousand metrics; longer lines are malformed
LARGEST_STEP = (1 << 64) - 1


class FileTail:
    """Reads whole lines that were appended to a file since the last call. The file may be truncated or replaced."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode: Optional[int] = None
        self._offset = 0
        self._rest = b""
        self._skipping = False  # whether the last call stopped within a line that is too long

    def read(self) -> tuple[list[bytes], int]:
        """Return the new lines, and the number of lines that were too long. Blocks. Raises OSError."""
        lines: list[bytes] = []
        too_long = 0
        try:
            file = open(self._path, "rb", opener=_open_at_once)  # noqa: SIM115 - in the block below
        except FileNotFoundError:
            return lines, too_long
        with file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise OSError(f"{self._path} is not a regular file")
            if status.st_ino != self._inode or status.st_size < self._offset:
                self._inode, self._offset, self._rest, self._skipping = status.st_ino, 0, b"", False
            file.seek(self._offset)
            while data := file.read(_CHUNK):
                self._offset += len(data)
                *whole, self._rest = (self._rest + data).split(b"\n")
                if self._skipping and whole:
                    del whole[0]  # the end of a line that was too long
                    self._skipping = False
                fitting = [line for line in whole if len(line) <= _LONGEST_LINE]
                lines += fitting
                too_long += len(whole) - len(fitting)
                if len(self._rest) > _LONGEST_LINE:
                    too_long += not self._skipping
                    self._rest, self._skipping = b"", True
        return lines, too_long


@attrs.define
class SpeedMeter:
    """Steps per second over the last ``WINDOW`` seconds, or over the last step if that step took longer."""

    _seen: deque[tuple[float, int]] = attrs.field(factory=deque)  # time at which each step count was first seen

    def add(self, now: float, step: int) -> None:
        if self._seen and step < self._seen[-1][1]:
            self._seen.clear()  # the process has restarted its count
        if not self._seen or step > self._seen[-1][1]:
            self._seen.append((now, step))
        while len(self._seen) > 2 and self._seen[0][0] < now - WINDOW:
            self._seen.popleft()

    def speed(self, now: float) -> float:
        """Return the present speed in steps per second, or 0 if it is unknown."""
        if len(self._seen) < 2:
            return 0.0
        (began, first), (_, last) = self._seen[0], self._seen[-1]
        return (last - first) / (now - began) if now > began else 0.0


class ProgressReader:
    """Reads the reports of one user process, and keeps the newest value of each metric and parameter."""

    def __init__(self, path: Path, secrets: Collection[str] = ()) -> None:
        """``secrets``: values to mask in parameters."""
        self.malformed = 0  # number of lines that were ignored
        self.parameters: dict[str, str] = {}  # with masked secrets
        self._secrets = secrets
        self._tail = FileTail(path)
        self._speed = SpeedMeter()
        self._step: Optional[int] = None
        self._total: Optional[int] = None
        self._metrics: dict[str, float] = {}
        self._warned: set[str] = set()

    def poll(self, now: float) -> Optional[tony_pb2.Progress]:
        """Read new reports. Return None if there is no report yet. ``now``: seconds of any monotonic clock. Blocks."""
        try:
            lines, too_long = self._tail.read()
        except OSError as error:
            self._warn("unreadable", f"the metrics file cannot be read: {error}")
            lines, too_long = [], 0
        if too_long:
            self._refuse(f"longer than {_LONGEST_LINE} bytes", too_long)
        for line in lines:
            if line.strip():
                self._take(line)
        if self._step is not None:
            self._speed.add(now, self._step)
        return self._newest(now)

    def _newest(self, now: float) -> Optional[tony_pb2.Progress]:
        if self._step is None and not self._metrics:
            return None
        return tony_pb2.Progress(
            step=self._step or 0,
            total_steps=self._total or 0,
            steps_per_second=self._speed.speed(now),
            metrics=self._metrics,
        )

    def _take(self, line: bytes) -> None:
        try:
            report = json.loads(line)
        except (ValueError, RecursionError):
            return self._refuse(f"not JSON: {line[:200]!r}")
        if not isinstance(report, dict):
            return self._refuse(f"not a JSON object: {line[:200]!r}")
        counts = {name: _count(report.pop(name)) for name in ("step", "total_steps") if report.get(name) is not None}
        if None in counts.values():
            return self._refuse(f"step and total_steps must be whole numbers, not negative: {line[:200]!r}")
        if isinstance(report.get("parameters"), dict):  # a number is a metric of this name
            self._take_parameters(report.pop("parameters"))
        self._step = counts.get("step", self._step)
        self._total = counts.get("total_steps", self._total)
        for name, value in report.items():
            self._take_metric(name, value)
        return None

    def _take_metric(self, name: str, value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None  # text, lists and other values are for the user only
        if name in RESERVED_KEYS:
            return self._warn("reserved", f"the metric {name!r} is left out: its name {RESERVED_KEY_REASON}")
        if not is_metric_name(name):
            return self._warn("name", f"metrics with an invalid name are left out, such as {name[:100]!a}")
        if name not in self._metrics and len(self._metrics) >= MOST_METRICS:
            return self._warn("many", f"only the first {MOST_METRICS} metrics are reported; {name!r} is left out")
        try:
            self._metrics[name] = float(value)
        except OverflowError:
            self._metrics[name] = float("inf") if value > 0 else float("-inf")
        return None

    def _take_parameters(self, found: dict[str, Any]) -> None:
        taken = {name: masked(text, self._secrets) for name, text in valid_parameters(found).items()}
        known = {**self.parameters, **taken}
        self.parameters = dict(islice(known.items(), MOST_PARAMETERS))  # another thread may read the former value
        if len(taken) < len(found) or len(known) > MOST_PARAMETERS:
            self._warn("parameters", f"invalid and excess parameters are left out: {sorted(found)!a:.1000}")

    def _refuse(self, why: str, lines: int = 1) -> None:
        self.malformed += lines
        self._warn("malformed", f"ignoring a line of the metrics file: {why} (further such lines are only counted)")

    def _warn(self, kind: str, text: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            log.warning("%s", text)


def _open_at_once(path: str, flags: int) -> int:
    """Open without blocking, because a FIFO in place of the file would block until a program writes to it."""
    return os.open(path, flags | os.O_NONBLOCK)


def _count(value: Any) -> Optional[int]:
    """Convert an integer, or a whole float, from 0 to LARGEST_STEP to an integer. Return None for other values."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        whole = int(value)
    except (ValueError, OverflowError):
        return None  # NaN, infinity
    return whole if whole == value and 0 <= whole <= LARGEST_STEP else None


_TIMES = (
    r"(?:19|20)\d{6}[-_T]?\d{6}",  # 20260105-093000, as in TensorFlow's examples
    r"(?:19|20)\d\d-\d\d-\d\d[-_T ]\d\d[-:_.]\d\d(?:[-:_.]\d\d)?",  # 2026-01-05T09:30:00
    r"[A-Z][a-z]{2}\d\d_\d\d-\d\d-\d\d(?:_.+)?",  # Jan05_09-30-00_host, as PyTorch's SummaryWriter names them
)
_TIME = re.compile(f"(?:{'|'.join(_TIMES)})")


def run_name(directory: str) -> str:
    """Return the name of a run from its directory below the process's directory, such as ``train``.

    The name of the process's directory itself is empty. Directories that are named after the time are left out, because
    otherwise each training would have different metric names, which could not be compared.
    """
    return "/".join(part for part in directory.split("/") if not _TIME.fullmatch(part))


HEADER = 12  # bytes before a record: the record's length, and a checksum of the length
FOOTER = 4  # bytes after a record: its checksum, which is not verified because that takes too long in Python
_PLUGIN = b"scalars"
_NUMBERS = {1: ("<f", 5), 2: ("<d", 6)}  # by data type: struct format, and number of the field float_val or double_val


class NotAnEventError(Exception):
    """The bytes are not those of an event file."""


@attrs.frozen
class Scalar:
    """One point of a curve."""

    step: int
    tag: str
    value: float
    of_plugin: bool  # whether it is of the scalars plugin: a plain value, or metadata with the plugin's name


def record_length(header: bytes) -> int:
    """Return the number of bytes of the record after a header. Raises NotAnEventError."""
    length, checksum = struct.unpack("<QI", header)
    if binary.masked_crc32c(binary.crc32c(header[:8])) != checksum:
        raise NotAnEventError("the checksum of a record's length is wrong")
    return int(length)


def read_scalars(record: bytes) -> Iterator[Scalar]:
    """Yield the scalars of an ``Event``, and other tensors with one number. Raises InvalidMessage."""
    step = 0
    summaries = []
    for number, value in message_fields(record):
        if number == 2 and isinstance(value, int):
            step = value if value < 1 << 63 else value - (1 << 64)
        elif number == 5 and isinstance(value, bytes):
            summaries.append(value)
    for summary in summaries:
        for number, value in message_fields(summary):
            if number == 1 and isinstance(value, bytes):
                yield from _scalar(step, value)


def _scalar(step: int, data: bytes) -> Iterator[Scalar]:
    """Yield the scalar of a ``Summary.Value``, if it has one."""
    tag, plain, tensor, plugin = b"", None, None, b""
    for number, value in message_fields(data):
        if number == 1 and isinstance(value, bytes):
            tag = value
        elif number == 2 and isinstance(value, bytes) and len(value) == 4:
            (plain,) = struct.unpack("<f", value)
        elif number == 8 and isinstance(value, bytes):
            tensor = value
        elif number == 9 and isinstance(value, bytes):
            plugin = _within(_within(value, 1), 1)  # SummaryMetadata.plugin_data.plugin_name
    found = plain if tensor is None else _one_number(tensor)
    if found is not None and tag:
        yield Scalar(step, tag.decode("utf-8", "replace"), found, of_plugin=plain is not None or plugin == _PLUGIN)


def _one_number(tensor: bytes) -> Union[float, None]:
    """Return the number of a ``TensorProto`` with one float or double, otherwise None."""
    fields = dict(message_fields(tensor))
    kind = fields.get(1)
    if not isinstance(kind, int) or kind not in _NUMBERS:
        return None
    form, own_field = _NUMBERS[kind]
    for data in (fields.get(4), fields.get(own_field)):
        if isinstance(data, bytes) and len(data) == struct.calcsize(form):
            return float(struct.unpack(form, data)[0])
    return None


def _within(message: bytes, wanted: int) -> bytes:
    """Return the field with the number ``wanted``, or empty bytes if it is missing."""
    return next(
        (value for number, value in message_fields(message) if number == wanted and isinstance(value, bytes)), b""
    )


_BYTES_AT_ONCE = 1 << 20  # bytes per call: some ten thousand scalars, a fifth of a second of work
_LARGEST = 64 << 10  # bytes of a record; larger records are images, graphs and the like
_MOST_FILES = 50


@attrs.define
class _EventFile:
    """An event file with the position up to which it was read."""

    path: Path
    offset: int
    inode: Optional[int] = None  # None until the file is opened
    given_up: bool = False

    def read(self, most: int) -> tuple[list[bytes], int]:
        """Return the next complete records except large ones, and the number of bytes read.

        Stop after about ``most`` bytes. Raises NotAnEventError, OSError.
        """
        records = []
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise NotAnEventError("it is not a regular file")
            if self.inode not in (None, status.st_ino) or status.st_size < self.offset:
                self.offset = 0  # the file was replaced or rewritten
            self.inode = status.st_ino
            spent = 0
            while spent < most and self.offset + HEADER <= status.st_size:
                file.seek(self.offset)
                length = record_length(file.read(HEADER))
                behind = self.offset + HEADER + length + FOOTER
                if behind > status.st_size:
                    break  # the end of the record is not written yet
                spent += HEADER
                if length <= _LARGEST:
                    records.append(file.read(length))
                    spent += length
                self.offset = behind
        return records, spent


class EventScalars:
    """Progress in the event files of one user process: the highest step, and the newest value of each scalar."""

    def __init__(self, directory: Path, others: Collection[Path] = ()) -> None:
        """Ignore the present content of ``directory``, which a former process has written. Blocks.

        ``others``: directories below ``directory`` that are not read.
        """
        self._directory = directory
        self._others = tuple(others)
        self._files: dict[str, _EventFile] = {}
        self._scalars: set[str] = set()  # names of the scalars plugin's metrics
        self._metrics: dict[str, float] = {}
        self._step: Optional[int] = None
        self._speed = SpeedMeter()
        self._former = dict(self._found())

    def poll(self, now: float) -> Optional[tony_pb2.Progress]:
        """Read new records. Return None if there is no step yet. ``now``: seconds of any monotonic clock. Blocks."""
        self._find()
        left = _BYTES_AT_ONCE
        for name, file in self._files.items():
            if left > 0 and not file.given_up:
                left -= self._read(name, file, left)
        if self._step is None:
            return None
        self._speed.add(now, self._step)
        return tony_pb2.Progress(step=self._step, steps_per_second=self._speed.speed(now), metrics=dict(self._metrics))

    def _find(self) -> None:
        """Find files that are new, or have grown since this object was created."""
        for name, size in self._found():
            if len(self._files) >= _MOST_FILES:
                return
            former = self._former.get(name, 0)
            if name not in self._files and size != former:
                self._files[name] = _EventFile(self._directory / name, former)

    def _found(self) -> Iterator[tuple[str, int]]:
        """Yield the paths and sizes of the event files, the oldest first."""
        with suppress(OSError):  # the program has replaced the directory
            for name, version in oldest_first(scan(self._directory)):
                if is_event_file(name) and not self._is_others(self._directory / name):
                    yield name, version.size

    def _is_others(self, path: Path) -> bool:
        return any(other in path.parents for other in self._others)

    def _read(self, name: str, file: _EventFile, most: int) -> int:
        """Read records of a file. Return the number of bytes read."""
        try:
            records, spent = file.read(most)
            for record in records:
                for scalar in read_scalars(record):
                    self._take(run_name(name.rpartition("/")[0]), scalar)
        except (NotAnEventError, InvalidMessage, OSError) as error:
            file.given_up = True
            log.warning("stopped reading the scalars of %s: %s", file.path, error)
            return 0
        return spent

    def _take(self, run: str, scalar: Scalar) -> None:
        name = f"{run}/{scalar.tag}" if run else scalar.tag
        known = name in self._scalars
        if not (known or scalar.of_plugin) or not is_metric_name(name):
            return
        if 0 <= scalar.step <= LARGEST_STEP:
            self._step = max(self._step or 0, scalar.step)
        if known or len(self._scalars) < MOST_METRICS:
            self._scalars.add(name)
            self._metrics[name] = scalar.value


class ProcessProgress:
    """Reads the progress of one user process. Event files count only until the first report in the metrics file."""

    def __init__(self, reports: ProgressReader, events: Optional[EventScalars]) -> None:
        self.reports = reports
        self._events = events

    def reported(self, now: float) -> Optional[tony_pb2.Progress]:
        """Return the progress in the metrics file, or None. ``now``: seconds of any monotonic clock. Blocks."""
        return self.reports.poll(now)

    def poll(self, now: float) -> Optional[tony_pb2.Progress]:
        """Return the progress, or None if there is none yet. ``now``: seconds of any monotonic clock. Blocks."""
        reported = self.reports.poll(now)
        if reported is not None:
            self._events = None
        return self._events.poll(now) if self._events else reported
