"""Events that are not on the store yet."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator

import attrs

from tony_provider.runtime.am.history.dropped_events import DroppedEvents

_MOST_BYTES = 1 << 20  # of their lines, while the store takes none


@attrs.define
class EventBacklog:
    """Lines of events, oldest first, within a bound of bytes: what is older is dropped."""

    most_bytes: int = _MOST_BYTES
    size: int = 0  # of the lines
    _dropped: DroppedEvents = attrs.field(factory=DroppedEvents)
    _lines: deque[bytes] = attrs.field(factory=deque)

    @property
    def events(self) -> int:
        """How many there are, the dropped ones included."""
        return self._dropped.events + len(self._lines)

    def add(self, line: bytes) -> None:
        self._lines.append(line)
        self.size += len(line)
        while self.size > self.most_bytes:
            self._drop()

    def extend(self, later: EventBacklog) -> None:
        """Add what came later."""
        if later._dropped:
            while self._lines:
                self._drop()
            for line in later._dropped.lines():
                self._dropped.add(json.loads(line))
        for line in later._lines:
            self.add(line)

    def lines(self) -> Iterator[bytes]:
        """All that is left of them."""
        yield from self._dropped.lines()
        yield from self._lines

    def _drop(self) -> None:
        oldest = self._lines.popleft()
        self.size -= len(oldest)
        self._dropped.add(json.loads(oldest))
