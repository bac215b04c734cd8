"""How often something may start again without getting anywhere, and how soon."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Optional

from tony_provider.runtime.spec.model import RestartPolicy


class RestartBudget:
    """Times are the session's, in seconds."""

    def __init__(self, policy: RestartPolicy, times: Iterable[float] = ()) -> None:
        """``times`` are those of the restarts so far, oldest first."""
        self._policy = policy
        self.times = list(times)

    def spend(self, now: float) -> Optional[float]:
        """Seconds to wait before one more restart; None when there may be no more."""
        self.times = [time for time in self.times if now - time < self._policy.window]
        spent = len(self.times)
        if spent >= self._policy.budget:
            return None
        self.times.append(now)
        return self._wait(spent)

    def progress(self) -> None:
        """It got somewhere: what was is forgotten."""
        self.times = []

    def _wait(self, spent: int) -> float:
        if not spent:
            return 0.0
        doubled = self._policy.backoff * 2.0 ** min(spent - 1, 64)
        return min(doubled, self._policy.max_backoff)
