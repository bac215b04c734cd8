"""Exit codes of the runtime's programs in a container, and of shells (POSIX, Shell & Utilities, 2.8.2).

These codes never describe a user process: the executor reports in a message how that process ended. 65 to 78 are the
codes of sysexits.h for errors of input and environment. YARN's exit codes are negative or above 127.
"""

from __future__ import annotations

import signal
from typing import Optional

OK = 0
NO_PYTHON = 65  # launcher.sh found no Python that the runtime archive supports; launcher.sh repeats this number
BAD_CONTAINER = 66  # description, credentials or variables are missing or malformed, or no port is free
REFUSED = 67  # the application master does not accept this executor: it was replaced, or its token is wrong
MASTER_LOST = 68  # the application master was unreachable for too long
INTERNAL = 70  # internal error of the runtime
TERMINATED = 143  # ended by SIGTERM

NOT_EXECUTABLE = 126
NOT_FOUND = 127
_SIGNAL_BASE = 128


def killing_signal(exit_code: int) -> Optional[int]:
    """Return the signal that killed the command, or None if the exit code does not name a signal."""
    number = exit_code - _SIGNAL_BASE
    return number if 0 < number <= signal.SIGRTMAX else None


def exit_code(signal_number: int) -> int:
    """Return the exit code of a command that this signal killed."""
    return _SIGNAL_BASE + signal_number
