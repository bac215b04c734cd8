"""A point in time as records have it, and as people read it. How long something takes: see quantities."""

from __future__ import annotations

import time
from datetime import datetime, timezone

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
