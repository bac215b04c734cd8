"""Times as records have them, and as people read them."""

from __future__ import annotations

import time
from datetime import datetime, timezone

_SPANS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_LAST_YEAR = 253_402_300_799_000  # ms; the end of the year 9999, after which Python has no dates


def epoch_ms() -> int:
    """The time now, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def moment(epoch_ms: int) -> str:
    """A time in words, in UTC, which nobody mistakes for a time of their own."""
    at = datetime.fromtimestamp(min(max(0, epoch_ms), _LAST_YEAR) / 1000, timezone.utc)
    return at.strftime("%Y-%m-%d %H:%M:%S UTC")


def time_of_day(epoch_ms: int) -> str:
    """The time of day in words, in UTC, where the day is plain."""
    return time.strftime("%H:%M:%S UTC", time.gmtime(epoch_ms / 1000))


def span(seconds: float) -> str:
    """A duration in words, by its two largest units: ``2 h 5 min``, ``12 s``."""
    left = max(0, round(seconds))
    for at, (length, unit) in enumerate(_SPANS):
        if left >= length:
            whole, rest = divmod(left, length)
            smaller, name = _SPANS[min(at + 1, len(_SPANS) - 1)]
            more = f" {rest // smaller} {name}" if rest >= smaller else ""
            return f"{whole} {unit}{more}"
    return "0 s"
