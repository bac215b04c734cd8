"""Waiting, in a thread, for a store that is out of reach."""

from __future__ import annotations

import logging
import threading
import time
from typing import Callable, Optional, TypeVar

from tony_provider.runtime.checkpoint.errors import Cancelled
from tony_provider.runtime.storage import StorageUnreachable

log = logging.getLogger(__name__)

T = TypeVar("T")

_SOONEST = 1.0  # seconds between the first tries, doubled up to
_LATEST = 15.0


def patiently(work: Callable[[], T], seconds: float, cancelled: threading.Event) -> T:
    """Do ``work`` again and again while the store is out of reach, for so many seconds from the first failure on.

    Blocks. Raises the last StorageUnreachable, Cancelled, and whatever else ``work`` does.
    """
    until: Optional[float] = None
    pause = _SOONEST
    while True:
        try:
            return work()
        except StorageUnreachable as error:
            now = time.monotonic()
            if until is None:
                until = now + seconds
                log.warning("waiting up to %g s for the store: %s", seconds, error)
            if now + pause > until:
                raise
        if cancelled.wait(pause):
            raise Cancelled("waiting for the store was cancelled")
        pause = min(2 * pause, _LATEST)
