"""The limit on restarts: how often something may start again without getting anywhere, and how soon."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Optional

from tony_provider.runtime.spec.model import RestartPolicy


class RestartBudget:
    """The restarts that are left, by the job's restart policy.

    Times are the session's, in seconds.
    """

    def __init__(self, policy: RestartPolicy, times: Iterable[float] = ()) -> None:
        """``times`` are those of the restarts so far, oldest first."""
        self._policy = policy
        self.times = list(times)

    def spend(self, now: float) -> Optional[float]:
        """Take one restart; returns the seconds to wait before it, None when there may be no more."""
        self.times = [time for time in self.times if now - time < self._policy.window]
        spent = len(self.times)
        if spent >= self._policy.budget:
            return None
        self.times.append(now)
        return self._wait(spent)

    def progress(self) -> None:
        """Forget the restarts so far: it got somewhere."""
        self.times = []

    def _wait(self, spent: int) -> float:
        if not spent:
            return 0.0
        doubled = self._policy.backoff * 2.0 ** min(spent - 1, 64)
        return min(doubled, self._policy.max_backoff)
