"""So much a second, for one who may mean harm."""

from __future__ import annotations


class Allowance:
    """An amount for each second, and so much in one go after a pause."""

    def __init__(self, rate: float, in_one_go: float) -> None:
        self._rate = rate
        self._most_ahead = in_one_go / rate  # seconds
        self._free_at = float("-inf")  # when all that was taken will have gone at the rate

    def take(self, amount: float, now: float) -> float:
        """Take an amount; returns the seconds to wait once this has been taken. ``now``: of any steady clock."""
        self._free_at = max(self._free_at, now - self._most_ahead) + amount / self._rate
        return self._free_at - now

    def take_if_free(self, amount: float, now: float) -> bool:
        """Take an amount that is there without waiting; False: it is not, and nothing was taken."""
        if max(self._free_at, now - self._most_ahead) + amount / self._rate > now:
            return False
        self.take(amount, now)
        return True
