"""Whether anybody works in a Jupyter server: by its kernels and terminals, and by the files that change.

Requests are no sign of it: a page that was left open in a browser asks every few seconds, for days.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional

_START = 300.0  # seconds that a server may take until it answers


@dataclass(frozen=True)
class ServerActivity:
    """What one look at the server has shown."""

    busy: bool  # a kernel computes
    messages: dict[str, str]  # by kernel or terminal: when its last one was, as the server says it

    @classmethod
    def of(cls, kernels: Any, terminals: Any) -> ServerActivity:
        """Of the answers of ``/api/kernels`` and ``/api/terminals``; what is not of their form says nothing."""
        listed = [*_objects(kernels), *_objects(terminals)]
        messages = {str(each.get("id", each.get("name"))): str(each.get("last_activity")) for each in listed}
        return cls(any(each.get("execution_state") == "busy" for each in listed), messages)


def _objects(answer: Any) -> Sequence[dict[str, Any]]:
    return [each for each in answer if isinstance(each, dict)] if isinstance(answer, list) else []


class Idleness:
    """For how long nothing has gone on. Times are those of a clock that only goes on, in seconds."""

    def __init__(self, now: float) -> None:
        self._since = now
        self._starts_until: Optional[float] = now + _START  # None: it has answered
        self._known: dict[str, str] = {}

    def look(self, seen: Optional[ServerActivity], now: float, *, changed: bool) -> float:
        """Take one look into account; returns for how many seconds nothing has gone on.

        ``seen`` is None when the server did not answer, which says nothing; its start is no idleness. ``changed``: a
        file has.
        """
        if seen is not None:
            self._starts_until = None
        elif self._starts_until is not None and now < self._starts_until:
            self._since = now
        messages = {} if seen is None else seen.messages
        if changed or (seen is not None and seen.busy) or messages.items() - self._known.items():
            self._since = now
        self._known.update(messages)
        return now - self._since
