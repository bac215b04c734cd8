"""Tells of what keeps a watcher from news of a job: when it begins, now and then, and when it is over."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

import attrs

from tony_provider.runtime.clock import moment, span

FIRST_REMINDER = 60.0  # seconds after it began; the pauses double up to LONGEST_PAUSE
LONGEST_PAUSE = 600.0


@attrs.define
class _Trouble:
    what: str
    since: float
    since_ms: int
    remind_at: float
    said: str = ""
    pause: float = FIRST_REMINDER
    told: bool = False  # since it began; False of one that was just over and is there again

    @property
    def line(self) -> str:
        return f"{self.what} since {moment(self.since_ms)}" + (f": {self.said}" if self.said else "")


class Troubles:
    """The troubles that go on now, and when each is to be told again.

    ``tell`` is given the lines: few, also of what comes and goes. Times are the clock's, in seconds.
    """

    def __init__(self, tell: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._tell = tell
        self._clock = clock
        self._troubles: dict[Hashable, _Trouble] = {}
        self._former: dict[Hashable, tuple[_Trouble, float]] = {}  # the last of its kind, and when it was over

    @property
    def lines(self) -> list[str]:
        """The lines of the troubles that go on."""
        return [trouble.line for trouble in self._troubles.values()]

    def __contains__(self, key: Hashable) -> bool:
        return key in self._troubles

    def goes_on(self, key: Hashable, what: str, said: str = "", *, since: float | None = None) -> None:
        """Say that a trouble goes on: ``what``, such as "The store does not answer", and what is ``said`` of it.

        ``since``: when it began; None: now. Told at once, again when something is said where nothing was, and then at
        growing intervals.
        """
        now = self._clock()
        if key not in self._troubles:
            self._troubles[key] = self._begin(key, now, now if since is None else since)
        trouble = self._troubles[key]
        is_reminder, says_more = now >= trouble.remind_at, bool(said) and not trouble.said
        trouble.what, trouble.said = what, said or trouble.said
        if is_reminder:
            trouble.pause = min(2 * trouble.pause, LONGEST_PAUSE)
            trouble.remind_at = now + trouble.pause
            self._say(trouble, f"{trouble.line} (for {span(now - trouble.since)})" if trouble.told else trouble.line)
        elif key not in self._former and (says_more or not trouble.told):
            self._say(trouble, trouble.line)

    def _begin(self, key: Hashable, now: float, since: float) -> _Trouble:
        since_ms = int((time.time() - (now - since)) * 1000)
        former, over = self._former.get(key, (None, 0.0))
        if former is not None and now - over < FIRST_REMINDER:
            return attrs.evolve(former, since=since, since_ms=since_ms, said="", told=False)
        self._former.pop(key, None)
        return _Trouble("", since, since_ms, now + FIRST_REMINDER)

    def _say(self, trouble: _Trouble, line: str) -> None:
        trouble.told = True
        self._tell(line)

    def is_over(self, key: Hashable, line: str) -> None:
        """Say that a trouble is over, with ``line``, such as "The store answers again". Nothing where none was told."""
        trouble, now = self._troubles.pop(key, None), self._clock()
        if trouble is None:
            return
        self._former[key] = trouble, now
        if trouble.told:
            self._tell(f"{line}, after {span(now - trouble.since)}")

    def forget(self, key: Hashable) -> None:
        """Drop a trouble without a word: something else is told in its place."""
        self._troubles.pop(key, None)
