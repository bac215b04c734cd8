"""The user process's reports of progress: JSON lines in its metrics file, read as it grows."""

from __future__ import annotations

import json
import logging
import os
import stat
from collections import deque
from pathlib import Path
from typing import Any, Optional

import attrs

from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.protocol.limits import MOST_METRICS, is_metric_name
from tony_provider.runtime.reserved_keys import RESERVED_KEYS, WHY

log = logging.getLogger(__name__)

WINDOW = 60.0  # seconds that steps per second are measured over
_CHUNK = 1 << 20  # bytes read at a time
_LONGEST_LINE = 1 << 20  # bytes, which hold some ten thousand metrics; a longer one is malformed
LARGEST_STEP = (1 << 64) - 1


class FileTail:
    """Reads whole lines that were appended to a file since the last look. The file may be cut short or replaced."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode: Optional[int] = None
        self._offset = 0
        self._rest = b""
        self._skipping = False  # inside a line that is too long

    def read(self) -> tuple[list[bytes], int]:
        """The new lines, and how many too long ones there were. Blocks; raises OSError."""
        lines: list[bytes] = []
        too_long = 0
        try:
            file = open(self._path, "rb", opener=_open_at_once)  # noqa: SIM115 - in the block below
        except FileNotFoundError:
            return lines, too_long
        with file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise OSError(f"{self._path} is no regular file")
            if status.st_ino != self._inode or status.st_size < self._offset:
                self._inode, self._offset, self._rest, self._skipping = status.st_ino, 0, b"", False
            file.seek(self._offset)
            while data := file.read(_CHUNK):
                self._offset += len(data)
                *whole, self._rest = (self._rest + data).split(b"\n")
                if self._skipping and whole:
                    del whole[0]  # the end of the line that was too long
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
    """Steps per second over the last ``WINDOW`` seconds, or over the last step when that took longer."""

    _seen: deque[tuple[float, int]] = attrs.field(factory=deque)  # when each step count was first seen

    def add(self, now: float, step: int) -> None:
        if self._seen and step < self._seen[-1][1]:
            self._seen.clear()  # it began again
        if not self._seen or step > self._seen[-1][1]:
            self._seen.append((now, step))
        while len(self._seen) > 2 and self._seen[0][0] < now - WINDOW:
            self._seen.popleft()

    def speed(self, now: float) -> float:
        """The present speed in steps per second; 0 while unknown."""
        if len(self._seen) < 2:
            return 0.0
        (began, first), (_, last) = self._seen[0], self._seen[-1]
        return (last - first) / (now - began) if now > began else 0.0


class ProgressReader:
    """Reads one user process's reports, and keeps the newest value of each."""

    def __init__(self, path: Path) -> None:
        self.malformed = 0  # lines
        self._tail = FileTail(path)
        self._speed = SpeedMeter()
        self._step: Optional[int] = None
        self._total: Optional[int] = None
        self._metrics: dict[str, float] = {}
        self._warned: set[str] = set()

    def look(self, now: float) -> Optional[tony_pb2.Progress]:
        """Read what is new; None while nothing was reported. ``now`` in seconds of any steady clock. Blocks."""
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
        self._step = counts.get("step", self._step)
        self._total = counts.get("total_steps", self._total)
        for name, value in report.items():
            self._take_metric(name, value)
        return None

    def _take_metric(self, name: str, value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None  # text, lists and the like are the user's own business
        if name in RESERVED_KEYS:
            return self._warn("reserved", f"the metric {name!r} is left out: its name {WHY}")
        if not is_metric_name(name):
            return self._warn("name", f"metrics without a proper name are left out, such as {name[:100]!a}")
        if name not in self._metrics and len(self._metrics) >= MOST_METRICS:
            return self._warn("many", f"only the first {MOST_METRICS} metrics are reported; {name!r} is left out")
        try:
            self._metrics[name] = float(value)
        except OverflowError:
            self._metrics[name] = float("inf") if value > 0 else float("-inf")
        return None

    def _refuse(self, why: str, lines: int = 1) -> None:
        self.malformed += lines
        self._warn("malformed", f"a line of the metrics file is ignored, {why} (further ones are only counted)")

    def _warn(self, kind: str, text: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            log.warning("%s", text)


def _open_at_once(path: str, flags: int) -> int:
    """A FIFO in the file's place would otherwise be waited for until somebody writes."""
    return os.open(path, flags | os.O_NONBLOCK)


def _count(value: Any) -> Optional[int]:
    """None for what is not a count; 10.0 is one."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        whole = int(value)
    except (ValueError, OverflowError):
        return None  # NaN, infinity
    return whole if whole == value and 0 <= whole <= LARGEST_STEP else None
