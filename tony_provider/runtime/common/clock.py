"""Timestamps for records, times as texts, and the clocks of HTTP servers. ``quantities`` formats durations."""

from __future__ import annotations

import time
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Optional

from tony_provider.runtime.common.quantities import span

TOLERANCE = 5.0  # seconds; the clock of an HTTP server is known to about one second
_LAST_YEAR = 253_402_300_799_000  # ms; the end of the year 9999, after which Python has no dates


_correction_ms = 0


def epoch_ms() -> int:
    """Return the time in milliseconds since the epoch, by the clock that this process follows."""
    return time.time_ns() // 1_000_000 + _correction_ms


def follow(ahead: Optional[float]) -> None:
    """Make ``epoch_ms`` follow another clock, so that times of several machines can be compared.

    ``ahead``: seconds by which the other clock is ahead of this machine's; None: unknown. A difference within TOLERANCE
    is ignored.
    """
    global _correction_ms
    _correction_ms = 0 if ahead is None or abs(ahead) <= TOLERANCE else round(ahead * 1000)


def correction() -> float:
    """Return how many seconds the clock of ``epoch_ms`` is ahead of this machine's clock."""
    return _correction_ms / 1000


def difference(ahead: float) -> str:
    """Describe a clock that is ``ahead`` seconds ahead of another one: ``2 h ahead of``, ``50 s behind``."""
    return f"{span(abs(ahead))} {'ahead of' if ahead > 0 else 'behind'}"


def moment(epoch_ms: int) -> str:
    """Format a date and time in UTC, with the zone so that readers do not take it for local time."""
    at = datetime.fromtimestamp(min(max(0, epoch_ms), _LAST_YEAR) / 1000, timezone.utc)
    return at.strftime("%Y-%m-%d %H:%M:%S UTC")


def time_of_day(epoch_ms: int) -> str:
    """Format the time of day in UTC, for places where the date is known."""
    return time.strftime("%H:%M:%S UTC", time.gmtime(epoch_ms / 1000))


_ROUNDING = 0.5  # seconds: the header has whole seconds, rounded down
_LONGEST = 2.0  # seconds; the header of a slower answer is too imprecise


def server_clock_ahead(
    date: Optional[str], asked: float, answered: float, known: Optional[float] = None
) -> Optional[float]:
    """Return the seconds by which a server's clock is ahead of this machine's.

    ``date`` is the Date header of an answer. ``asked`` and ``answered`` are the times of request and answer, in epoch
    seconds of this machine. Returns ``known``, the result of an earlier answer, if the header is missing or malformed,
    or if the answer took too long.
    """
    if date is None or not 0 <= answered - asked <= _LONGEST:
        return known
    try:
        theirs = parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):
        return known
    return theirs + _ROUNDING - (asked + answered) / 2
