"""The job's windows: outside of them it is suspended by itself, and in the next one it goes on."""

from __future__ import annotations

from collections.abc import Sequence

from tony_provider.runtime.am.session.state.session_state import SessionState
from tony_provider.runtime.am.session.suspension import Suspension
from tony_provider.runtime.spec.opening_hours import Week, ZoneOffset, read_hours


class OpeningTimes:
    """The part of the session that looks whether one of the job's windows is open.

    Times are the session's, in seconds.
    """

    def __init__(self, state: SessionState, suspension: Suspension, offsets: Sequence[ZoneOffset]) -> None:
        """``offsets``: of the windows' time zone."""
        self._epoch = state.epoch
        self._suspension = suspension
        self._windows = state.job.windows
        self._week = Week(map(read_hours, self._windows.open), offsets) if self._windows else None

    def tick(self, now: float) -> None:
        """Have the job go on, or suspended, as its windows say. One without windows is left alone."""
        if self._week is None or self._windows is None:
            return
        moment = self._epoch + now
        if self._week.is_open(moment):
            self._suspension.open("one of its windows is open", now)
        else:
            opening = self._week.in_words(self._week.next_opening(moment))
            self._suspension.close(f"none of its windows is open; the next one opens {opening} ({self._windows.zone})")
