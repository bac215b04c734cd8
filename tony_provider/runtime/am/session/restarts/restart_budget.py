"""Limit and delay of restarts without progress."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Optional

from tony_provider.runtime.spec.model import RestartPolicy


class RestartBudget:
    """The remaining restarts, by the job's restart policy.

    Times are the session's, in seconds.
    """

    def __init__(self, policy: RestartPolicy, times: Iterable[float] = ()) -> None:
        """``times``: of the restarts so far, oldest first."""
        self._policy = policy
        self.times = list(times)

    def spend(self, now: float) -> Optional[float]:
        """Use one restart. Return the seconds to wait before it, or None if the budget is exhausted."""
        self.times = [time for time in self.times if now - time < self._policy.window]
        spent = len(self.times)
        if spent >= self._policy.budget:
            return None
        self.times.append(now)
        return self._wait(spent)

    def progress(self) -> None:
        """Forget the restarts so far, because the job has made progress."""
        self.times = []

    def _wait(self, spent: int) -> float:
        if not spent:
            return 0.0
        doubled = self._policy.backoff * 2.0 ** min(spent - 1, 64)
        return min(doubled, self._policy.max_backoff)
