"""Events that are not kept: how many there were, and what later application masters need of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Optional

import attrs

from tony_provider.runtime.am.session.recovery.history import merge
from tony_provider.runtime.history.event_segments import APPLICATION, DROPPED, encode_event


@attrs.define
class DroppedEvents:
    """Events in a row that one event stands for, with what they carried as data folded into one.

    The application's first event, which has its labels, is kept beside it.
    """

    first: Optional[Mapping[str, Any]] = None
    number: int = 0
    time_ms: int = 0  # of the newest
    data: dict[str, Any] = attrs.field(factory=dict)

    def __bool__(self) -> bool:
        return self.first is not None or self.number > 0

    @property
    def events(self) -> int:
        """How many there were."""
        return self.number + (self.first is not None)

    def add(self, event: Mapping[str, Any]) -> None:
        """The next event; it may be one that stands for others."""
        if event.get("event") == APPLICATION and not self:
            self.first = event
            return
        number, data, time_ms = event.get(DROPPED, 1), event.get("data"), event.get("time_ms")
        self.number += number if isinstance(number, int) else 1
        if isinstance(data, Mapping):
            self.data = merge(self.data, data)
        if isinstance(time_ms, int):
            self.time_ms = time_ms

    def lines(self) -> Iterator[bytes]:
        """The events that are left of them, as lines."""
        if self.first is not None:
            yield encode_event(self.first)
        if self.number:
            message = f"{self.number} older events"
            event = {"time_ms": self.time_ms, "event": DROPPED, "message": message, DROPPED: self.number}
            yield encode_event({**event, "data": self.data} if self.data else event)
