"""What happened in the application, in order, one JSON object per line: ``time_ms`` (epoch), ``event``, ``message``,
``task`` where it is about one, and ``labels`` in the first line (where the job came from).

Kept in memory and written as a whole, since not every store can append; bounded, the oldest events go first.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from typing import Any, Optional

_MOST_BYTES = 1 << 20
_MOST_MESSAGE = 2048  # characters


class EventLog:
    def __init__(self, labels: Mapping[str, str], *, time_ms: int, most_bytes: int = _MOST_BYTES) -> None:
        self._first = _line({"time_ms": time_ms, "event": "application", "message": "", "labels": dict(labels)})
        self._lines: deque[bytes] = deque()
        self._most_bytes = most_bytes
        self._bytes = 0
        self._dropped = 0

    def append(self, event: str, message: str, task: Optional[str] = None, *, time_ms: int) -> None:
        fields: dict[str, Any] = {"time_ms": time_ms, "event": event, "message": message[-_MOST_MESSAGE:]}
        if task is not None:
            fields["task"] = task
        line = _line(fields)
        self._lines.append(line)
        self._bytes += len(line)
        while self._bytes > self._most_bytes:
            self._bytes -= len(self._lines.popleft())
            self._dropped += 1

    def content(self) -> bytes:
        """The whole file."""
        gap = [_line({"event": "dropped", "message": f"{self._dropped} older events"})] if self._dropped else []
        return b"".join([self._first, *gap, *self._lines])


def _line(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
