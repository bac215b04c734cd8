"""Rate limiter in bytes per second, shared by several threads."""

from __future__ import annotations

import threading
import time
from typing import Optional

from tony_provider.runtime.cancellation import Cancelled

_BURST = 0.25  # seconds' worth of bytes that may pass at once after a pause


class Throttle:
    """Limits the bytes per second of all threads that share it."""

    def __init__(self, rate: Optional[float]) -> None:
        """``rate``: in bytes per second; None for no limit."""
        self._rate = rate
        self._lock = threading.Lock()
        self._free_at = float("-inf")  # when all reserved bytes have passed at the rate

    def take(self, count: int, cancelled: threading.Event) -> None:
        """Wait until ``count`` bytes may pass. Blocks. Raises Cancelled."""
        wait = self.reserve(count, time.monotonic())
        if cancelled.wait(wait) if wait > 0 else cancelled.is_set():
            raise Cancelled("the copy was cancelled")

    def reserve(self, count: int, now: float) -> float:
        """Reserve ``count`` bytes and return the seconds to wait for them. ``now``: seconds of a monotonic clock."""
        if not self._rate:
            return 0.0
        with self._lock:
            self._free_at = max(self._free_at, now - _BURST) + count / self._rate
            return self._free_at - now
