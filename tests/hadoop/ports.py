"""Free listening ports."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack

# Below 32768: from there on the kernel hands ports to outgoing connections, and a daemon's may be gone when it binds.
# And apart from those that jobs take by default (JobSpec.port_range), which may run while a cluster starts.
FIRST, LAST = 10000, 19999


def free_ports(count: int) -> list[int]:
    """Different ports on which nothing listens on any address.

    Picked at random, so that clusters that start side by side do not meet. Raises OSError when the range is full.
    """
    with ExitStack() as held:
        ports: list[int] = []
        for port in random.sample(range(FIRST, LAST + 1), LAST + 1 - FIRST):
            if len(ports) == count:
                return ports
            probe = held.enter_context(socket.socket())
            try:
                probe.bind(("", port))
            except OSError:
                continue
            ports.append(port)
    raise OSError(f"fewer than {count} free ports between {FIRST} and {LAST}")
