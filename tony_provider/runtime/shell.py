"""A shell's exit codes, and what they say about the command it was given (POSIX, Shell & Utilities, 2.8.2)."""

from __future__ import annotations

import signal
from typing import Optional

NOT_EXECUTABLE = 126
NOT_FOUND = 127
_SIGNAL_BASE = 128


def killed_by(exit_code: int) -> Optional[int]:
    """The signal that killed the command, for the exit codes that say so."""
    number = exit_code - _SIGNAL_BASE
    return number if 0 < number <= signal.SIGRTMAX else None


def exit_code(signal_number: int) -> int:
    """The exit code for a command that this signal killed."""
    return _SIGNAL_BASE + signal_number
