"""Check that a connection leads to this container, because another user or container may listen on a port."""

from __future__ import annotations

import asyncio
import os
import time

from tony_provider.runtime.executor import processes
from tony_provider.runtime.listeners import Connected, peer_sockets

_CHECKS, _PAUSE = 5, 0.02  # the pause is in seconds; one check may miss a process that forks or accepts


class NotThereError(Exception):
    """No process listens on the port."""


class StrangerError(Exception):
    """A process outside of this container listens on the port; the message names its user or container."""


async def expect_own(connection: Connected, port: int) -> None:
    """Check that a connection to a port of this node leads to a process of this container.

    The check finds the process at the other end of this connection, even if another process listens on the port by now.
    Call it before sending data. Raises NotThereError, StrangerError, OSError.
    """
    await asyncio.to_thread(_expect_own, connection, port)


def _expect_own(connection: Connected, port: int) -> None:
    for _ in range(_CHECKS):
        ends = peer_sockets(connection)
        if not ends:
            raise NotThereError(f"no process listens on port {port} of this node")
        if strangers := sorted({each.user for each in ends} - {os.getuid()}):
            users = ", ".join(map(str, strangers))
            raise StrangerError(f"port {port} belongs to a process of another user of this node (user {users})")
        if processes.hold_sockets(processes.container(), {each.inode for each in ends}):
            return
        time.sleep(_PAUSE)
    raise StrangerError(f"port {port} belongs to a process outside of this task's container")
