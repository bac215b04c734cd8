"""Waiting for an application to end, by asking the cluster again and again."""

from __future__ import annotations

import time
from collections.abc import Callable

from tony_provider.cluster.base import Application

_POLL = 0.5  # seconds


def wait_for_end(look: Callable[[], Application | None], seconds: float) -> Application | None:
    """The application as it still is after that time; None once it has ended, or is not known to the cluster."""
    deadline = time.monotonic() + seconds
    while (application := look()) is not None and not application.is_final:
        if time.monotonic() >= deadline:
            return application
        time.sleep(_POLL)
    return None
