"""The event log: what happened in the application, in order, one JSON object per line.

Keys are ``time_ms`` (epoch), ``event``, ``message``, ``task`` where it is about one, ``data`` where a later application
master needs it, and ``labels`` in the first line (where the job came from).

Kept in memory and written as a whole, since not every store can append; bounded, the oldest events go first. What they
carried as data is kept, folded into one.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Callable, Optional

from tony_provider.runtime.am.session.recovery.history import merge

log = logging.getLogger(__name__)

_MOST_BYTES = 1 << 20
_MOST_MESSAGE = 2048  # characters
_FIRST = "application"
_DROPPED = "dropped"


class EventLog:
    """The events of one application, as a file's content. Begins empty, or with what ``take_over`` is given."""

    def __init__(self, labels: Mapping[str, str], *, time_ms: int, most_bytes: int = _MOST_BYTES) -> None:
        self._first = _line({"time_ms": time_ms, "event": _FIRST, "message": "", "labels": dict(labels)})
        self._lines: deque[bytes] = deque()
        self._most_bytes = most_bytes
        self._bytes = 0
        self._dropped = 0
        self._dropped_ms = time_ms
        self._folded: dict[str, Any] = {}  # data of those that were dropped

    def append(
        self,
        event: str,
        message: str,
        task: Optional[str] = None,
        *,
        data: Optional[Mapping[str, Any]] = None,
        time_ms: int,
    ) -> None:
        fields: dict[str, Any] = {"time_ms": time_ms, "event": event, "message": message[-_MOST_MESSAGE:]}
        if task is not None:
            fields["task"] = task
        if data:
            fields["data"] = dict(data)
        self._add(_line(fields))

    def take_over(self, content: bytes) -> None:
        """Go on after what a former application master wrote. To be called before the first ``append``."""
        for event in read_events(content):
            if event.get("event") == _FIRST and not self._lines and not self._dropped:
                self._first = _line(event)
            elif event.get("event") == _DROPPED and not self._lines:
                self._drop(event)
            else:
                self._add(_line(event))

    def content(self) -> bytes:
        """The content of the whole file."""
        return self.snapshot()()

    def snapshot(self) -> Callable[[], bytes]:
        """A function that makes the whole file as it is at this moment, in whatever thread it is called."""
        return partial(b"".join, [self._first, *self._gap(), *self._lines])

    def _add(self, line: bytes) -> None:
        self._lines.append(line)
        self._bytes += len(line)
        while self._bytes > self._most_bytes:
            oldest = self._lines.popleft()
            self._bytes -= len(oldest)
            self._drop(json.loads(oldest))

    def _drop(self, event: Mapping[str, Any]) -> None:
        number, data, time_ms = event.get(_DROPPED, 1), event.get("data"), event.get("time_ms")
        self._dropped += number if isinstance(number, int) else 1
        if isinstance(data, Mapping):
            self._folded = merge(self._folded, data)
        if isinstance(time_ms, int):
            self._dropped_ms = time_ms

    def _gap(self) -> Iterator[bytes]:
        if self._dropped:
            message = f"{self._dropped} older events"
            fields = {"time_ms": self._dropped_ms, "event": _DROPPED, "message": message, _DROPPED: self._dropped}
            yield _line({**fields, "data": self._folded} if self._folded else fields)


def read_events(content: bytes) -> list[dict[str, Any]]:
    """The events of a log's content, oldest first. Lines that are none are passed over; the log says so."""
    events: list[dict[str, Any]] = []
    for number, line in enumerate(content.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            event = json.loads(line)
        except (ValueError, RecursionError) as error:
            log.warning("line %d of the former application master's events is not read: %s", number, error)
            continue
        if isinstance(event, dict):
            events.append(event)
        else:
            log.warning("line %d of the former application master's events is no event", number)
    return events


def _line(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"
