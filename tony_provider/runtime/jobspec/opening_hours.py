"""Hours of the week, such as ``Mon-Fri 22:00-06:00``: when a job may have containers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Optional

import attrs

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
WEEK = 7 * 1440  # minutes
_DAY = 1440
_MONDAY = 4 * 86400  # seconds from the epoch, a Thursday, to its first Monday
_LONGEST = 60  # characters, enough for all days and the hours
_TIMES = re.compile(r"([0-9]{1,2}):([0-9]{2}) ?- ?([0-9]{1,2}):([0-9]{2})")
_ALLOWED = "write days, hours or both, such as 22:00-06:00, Sat-Sun, or Mon-Fri 22:00-06:00"


@attrs.frozen
class ZoneOffset:
    """Offset of a time zone from UTC, valid from a point in time until the next offset begins."""

    since: float  # seconds since the epoch
    seconds: int  # east of UTC


@attrs.frozen
class Hours:
    """Spans of the week, in minutes from Monday 00:00. An end is after its start, and may be in the next week."""

    spans: tuple[tuple[int, int], ...]

    def covers(self, minute: float) -> bool:
        return any(start <= minute < end or start <= minute + WEEK < end for start, end in self.spans)

    def overlap(self, other: Hours) -> bool:
        """Return whether any minute of the week belongs to these hours and to ``other``."""
        return any(
            one[0] < two[1] + shift and two[0] + shift < one[1]
            for one in self.spans
            for two in other.spans
            for shift in (-WEEK, 0, WEEK)
        )


def read_hours(text: str) -> Hours:
    """Parse hours of the week. Hours that end before they begin extend into the next day. Raises ValueError."""
    words = text.split()
    times = None
    if len(text) <= _LONGEST and words and ":" in words[-1]:
        times = _TIMES.fullmatch(words.pop())
        if times is None:
            raise ValueError(f"not hours; {_ALLOWED}")
    if len(text) > _LONGEST or len(words) > 1 or not (words or times):
        raise ValueError(f"not hours of the week; {_ALLOWED}")
    days = _days(words[0]) if words else list(range(7))
    first, last = _times(*map(int, times.groups())) if times else (0, _DAY)
    return Hours(tuple((day * _DAY + first, day * _DAY + last) for day in days))


def _times(hour: int, minute: int, until_hour: int, until_minute: int) -> tuple[int, int]:
    first, last = hour * 60 + minute, until_hour * 60 + until_minute
    if max(minute, until_minute) > 59 or first >= _DAY or last > _DAY:
        raise ValueError("hours go from 00:00 to 24:00")
    if first == last:
        raise ValueError("ends when it begins, so it never opens; leave out the hours for whole days")
    return first, last if last > first else last + _DAY


def _days(text: str) -> list[int]:
    days: list[int] = []
    for part in text.split(","):
        first, separator, last = part.partition("-")
        begin = _day(first)
        end = _day(last) if separator else begin
        days += [day % 7 for day in range(begin, end + 1 if end >= begin else end + 8)]
    twice = next((day for day in days if days.count(day) > 1), None)
    if twice is not None:
        raise ValueError(f"names {DAYS[twice]} twice")
    return days


def _day(text: str) -> int:
    name = text.strip().capitalize()
    if name not in DAYS:
        raise ValueError(f"{text!r} is not a day; the days are {', '.join(DAYS)}")
    return DAYS.index(name)


class Week:
    """Opening hours by the clock of a time zone. Times are seconds since the epoch."""

    def __init__(self, hours: Iterable[Hours], offsets: Sequence[ZoneOffset]) -> None:
        """``offsets`` are the offsets of the time zone, the oldest first. If there are none, the time zone is UTC."""
        self._hours = list(hours)
        self._offsets = offsets

    def is_open(self, now: float) -> bool:
        minute = self._minute(now)
        return any(each.covers(minute) for each in self._hours)

    def next_opening(self, now: float) -> float:
        """Return when the hours open next, or ``now`` if they are open. Ignores hours that a clock change skips."""
        starts = [start for each in self._hours for start, _ in each.spans]
        while not self.is_open(now):
            later = float(round(now + 60 * min((start - self._minute(now)) % WEEK for start in starts)))
            change = min((each.since for each in self._offsets if each.since > now), default=math.inf)
            if later < change:
                return later
            now = change
        return now

    def in_words(self, moment: float) -> str:
        """Format a moment by the zone's clock: ``Mon 22:00``."""
        day, minute = divmod(round(self._minute(moment)) % WEEK, _DAY)
        return f"{DAYS[day]} {minute // 60:02d}:{minute % 60:02d}"

    def _minute(self, now: float) -> float:
        """Return the minute of the week, by the zone's clock."""
        return (now + self._offset(now) - _MONDAY) / 60 % WEEK

    def _offset(self, now: float) -> int:
        known: Optional[ZoneOffset] = None
        for each in self._offsets:
            if known is not None and each.since > now:
                break
            known = each
        return known.seconds if known else 0
