"""Time limits of an application, and time zone offsets for the nodes.

The submission computes the offsets, because a node may have no time zone data or outdated data.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from tony_provider.runtime.jobspec.model import JobSpec, Timeouts
from tony_provider.runtime.jobspec.opening_hours import Week, ZoneOffset, read_hours
from tony_provider.runtime.jobspec.units import MAX_DURATION

_DAY = 86400.0
_EXACT = 60.0  # precision in seconds; offsets change at whole minutes


def zone_offsets(zone: str, now: float) -> list[ZoneOffset]:
    """Return a zone's offsets from UTC, from ``now`` (epoch seconds) until after the end of any application.

    Raises ZoneInfoNotFoundError.
    """
    info = ZoneInfo(zone)
    found = [ZoneOffset(now, _offset(info, now))]
    for day in range(int(MAX_DURATION / _DAY)):
        end = now + (day + 1) * _DAY
        if _offset(info, end) != found[-1].seconds:
            found.append(_change(info, end - _DAY, end))
    return found


def _change(info: ZoneInfo, before: float, after: float) -> ZoneOffset:
    """Return the offset that starts between two moments (epoch seconds), and its start, rounded to a minute."""
    seconds = _offset(info, after)
    while after - before > _EXACT:
        middle = (before + after) / 2
        before, after = (before, middle) if _offset(info, middle) == seconds else (middle, after)
    return ZoneOffset(math.floor(after / _EXACT) * _EXACT, seconds)


def _offset(info: ZoneInfo, moment: float) -> int:
    ahead = datetime.fromtimestamp(moment, UTC).astimezone(info).utcoffset()
    return int(ahead.total_seconds()) if ahead is not None else 0


def seconds_left(timeouts: Timeouts, now: float) -> float | None:
    """Return the seconds that an application started at ``now`` (epoch) may live, or None if there is no limit."""
    limits = [
        *([timeouts.lifetime] if timeouts.lifetime is not None else []),
        *([timeouts.deadline - now] if timeouts.deadline is not None else []),
    ]
    return min(limits, default=None)


def problems(job: JobSpec, now: float) -> list[str]:
    """Return a problem if the deadline has passed or if the job ends before a window opens, otherwise []."""
    deadline = job.timeouts.deadline
    if deadline is not None and deadline <= now:
        return [f"timeouts.deadline: {_written(deadline)} is in the past; set a future time"]
    left = seconds_left(job.timeouts, now)
    if job.windows is None or left is None:
        return []
    week = Week(map(read_hours, job.windows.open), zone_offsets(job.windows.zone, now))
    opening = week.next_opening(now)
    if opening - now < left:
        return []
    when = f"{week.in_words(opening)} ({job.windows.zone})"
    return [
        f"windows: no window opens before the job ends: the next one opens at {when}, but the job's time ends at "
        f"{_written(now + left)} (timeouts.lifetime, timeouts.deadline)"
    ]


def _written(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds")
