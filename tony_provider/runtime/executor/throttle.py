"""A limit on bytes a second that several threads share."""

from __future__ import annotations

import threading
import time
from typing import Optional

from tony_provider.runtime.checkpoint.errors import Cancelled

_BURST = 0.25  # seconds' worth that may go at once after a pause


class Throttle:
    """A limit on bytes a second, shared by the threads that take from it."""

    def __init__(self, rate: Optional[float]) -> None:
        """``rate`` in bytes a second; None: no limit."""
        self._rate = rate
        self._lock = threading.Lock()
        self._free_at = float("-inf")  # when all that was taken will have gone at the rate

    def take(self, count: int, cancelled: threading.Event) -> None:
        """Wait until ``count`` bytes may go. Blocks; raises Cancelled."""
        wait = self.reserve(count, time.monotonic())
        if cancelled.wait(wait) if wait > 0 else cancelled.is_set():
            raise Cancelled("the copy was given up")

    def reserve(self, count: int, now: float) -> float:
        """Seconds to wait before ``count`` bytes may go; ``now`` in seconds of any steady clock."""
        if not self._rate:
            return 0.0
        with self._lock:
            self._free_at = max(self._free_at, now - _BURST) + count / self._rate
            return self._free_at - now
