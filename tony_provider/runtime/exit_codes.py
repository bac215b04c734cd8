"""Exit codes of our own programs in a container. What ends a user process travels as a message, never as one of these.

65 to 78 are what sysexits.h gives to faults of input and surroundings; YARN's own are negative or above 127.
"""

from __future__ import annotations

OK = 0
NO_PYTHON = 65  # launcher.sh found no Python that the runtime archive was built for, and repeats this number
BAD_CONTAINER = 66  # its description, credentials or variables are missing or malformed, or it has no free port
REFUSED = 67  # the application master does not accept this executor: it was replaced, or its token is wrong
MASTER_LOST = 68  # the application master could not be reached for too long
INTERNAL = 70  # a fault of the runtime itself
TERMINATED = 143  # by SIGTERM
