"""What root may do and others may not."""

from __future__ import annotations

import ctypes
import os

_PR_CAPBSET_DROP = 24  # linux/prctl.h
_CAPABILITIES = (1, 2)  # linux/capability.h: CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH


def as_an_ordinary_user() -> None:
    """For processes that this thread starts from now on, what is locked is locked, also when they are root's.

    There is no way back, so the thread should be one of the test's own. Raises PermissionError where not even root may.
    """
    if os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in _CAPABILITIES:
        if libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "a right of root could not be dropped")
