"""How much of the series' bytes may be used, and when: so that any number of tasks fits in, for any length of time.

While a job doubles its age, its samples take the same number of bytes, up to the age of a week; from then on the same
part of what is left. So the beginning is seen closely, later samples are further apart, and the bound is never reached.
For a thousand tasks that makes a sample in ten seconds or less in the first minutes, one in five minutes after an hour,
one in two hours after a day, and one in half a day after a week.
"""

from __future__ import annotations

import math

import attrs

MOST_BYTES = 8 << 20  # of an application: what a page can read in a second or two, and small beside any checkpoint
_SOONEST = 3.0  # seconds between two samples of a task, at the beginning of a job
_LATER = 10.0  # seconds between them at least, once the job is older
_PART = 0.02  # of the job's age, in between
_HORIZON = 7 * 86400.0  # seconds, see above
_TAIL = 2.0  # one part in so many of what is left is used while an older job's age grows by a factor of e
_LEADER = 8  # one part in so many is the leader's: it has the curves that people look at
_FIRST_BYTES = 150.0  # of a line, before any is known
_FIRST_RATIO = 0.35  # what compression makes of a line, before any is known


@attrs.define
class _Share:
    """Part of the bytes. Sizes of lines are those before compression."""

    most: float
    lines: int = 0
    size: float = 0.0

    def seconds(self, elapsed: float, tasks: int, ratio: float) -> float:
        """Between two samples of each of so many tasks."""
        left = self.most - self.size * ratio
        line = self.size / self.lines if self.lines else _FIRST_BYTES
        if left <= 0:
            return float("inf")
        soonest = min(max(_SOONEST, _PART * elapsed), _LATER)
        folds = _TAIL + max(0.0, math.log(_HORIZON / max(elapsed, 1.0)))  # by e, that ``left`` is for
        return max(soonest, elapsed * folds * tasks * line * ratio / left)


class SeriesBudget:
    """The bytes of one application's series, those of its former application masters included."""

    def __init__(self, kept: int = 0, most: int = MOST_BYTES) -> None:
        """``kept``: bytes that former application masters have used."""
        self._most = most
        self._used = kept
        self._size = 0.0  # of the lines that ``_used`` is of, before compression
        self._leader = _Share(most / _LEADER)
        self._others = _Share(most - most / _LEADER)
        self._ratio = _FIRST_RATIO
        for share in (self._leader, self._others):
            share.size = kept * share.most / most / self._ratio
        self._former = kept

    def seconds(self, elapsed: float, tasks: int, *, leads: bool) -> float:
        """How far apart a task's samples are to be, in a job of so many tasks that has run for ``elapsed`` seconds."""
        share = self._leader if leads else self._others
        return share.seconds(elapsed, 1 if leads else max(1, tasks - 1), self._ratio)

    def allows(self, pending: int) -> bool:
        """Whether so many bytes may be used that are not yet."""
        return self._used + pending <= self._most

    def sampled(self, size: int, *, leads: bool) -> None:
        """A sample's line has so many bytes, before compression."""
        share = self._leader if leads else self._others
        share.lines += 1
        share.size += size

    def used(self, size: int, compressed: int) -> None:
        """A segment has been made of lines of so many bytes."""
        self._used += compressed
        self._size += size
        if self._size:
            self._ratio = (self._used - self._former) / self._size
