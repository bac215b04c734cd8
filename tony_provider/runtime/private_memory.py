"""Memory that no other process of the same user may read."""

from __future__ import annotations

import ctypes
import os

_PR_SET_DUMPABLE = 4  # linux/prctl.h


def keep_memory_private() -> None:
    """Keep processes of the same user from tracing this one, and from its memory and environment in /proc.

    Whom it starts may be traced as ever; prctl(2) has the rest. Raises OSError.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl(PR_SET_DUMPABLE): {os.strerror(number)}")
