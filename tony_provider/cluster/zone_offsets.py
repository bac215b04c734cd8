"""A time zone as nodes are told of it, which may have no data of zones, or older data."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from tony_provider.runtime.spec.opening_hours import ZoneOffset
from tony_provider.runtime.spec.units import MAX_DURATION

_DAY = 86400.0
_EXACT = 60.0  # seconds; clocks are changed at whole minutes


def zone_offsets(zone: str, now: float) -> list[ZoneOffset]:
    """How far a zone is ahead of UTC from ``now`` (epoch) on, for longer than any application lives.

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
    """The moment in between, to the minute."""
    seconds = _offset(info, after)
    while after - before > _EXACT:
        middle = (before + after) / 2
        before, after = (before, middle) if _offset(info, middle) == seconds else (middle, after)
    return ZoneOffset(math.floor(after / _EXACT) * _EXACT, seconds)


def _offset(info: ZoneInfo, moment: float) -> int:
    ahead = datetime.fromtimestamp(moment, UTC).astimezone(info).utcoffset()
    return int(ahead.total_seconds()) if ahead is not None else 0
