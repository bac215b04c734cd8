"""Exit codes of our own programs in a container. What ends a user process travels as a message, never as one of these.

65 to 78 are what sysexits.h gives to faults of input and surroundings; YARN's own are negative or above 127.
"""

from __future__ import annotations

import signal
from typing import Optional

OK = 0
NO_PYTHON = 65  # launcher.sh found no Python that the runtime archive was built for, and repeats this number
BAD_CONTAINER = 66  # its description, credentials or variables are missing or malformed, or it has no free port
REFUSED = 67  # the application master does not accept this executor: it was replaced, or its token is wrong
MASTER_LOST = 68  # the application master could not be reached for too long
INTERNAL = 70  # a fault of the runtime itself
TERMINATED = 143  # by SIGTERM

NOT_EXECUTABLE = 126
NOT_FOUND = 127
_SIGNAL_BASE = 128


def killing_signal(exit_code: int) -> Optional[int]:
    """The signal that killed the command, for the exit codes that say so."""
    number = exit_code - _SIGNAL_BASE
    return number if 0 < number <= signal.SIGRTMAX else None


def exit_code(signal_number: int) -> int:
    """The exit code for a command that this signal killed."""
    return _SIGNAL_BASE + signal_number
