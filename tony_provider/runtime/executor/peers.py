"""Check which container a connection leads to: a port of the node may belong to another user or container."""

from __future__ import annotations

import asyncio
import os
import time

from tony_provider.runtime.executor import processes
from tony_provider.runtime.listeners import Connected, peer_sockets

_CHECKS, _PAUSE = 5, 0.02  # a process that forks or accepts at this moment may be missed once; seconds


class NotThereError(Exception):
    """No process is at the port."""


class StrangerError(Exception):
    """The process at the port is not of this container; the text says whose it is."""


async def expect_own(connection: Connected, port: int) -> None:
    """Check that a connection to a port of this node leads to a process of this container.

    The check is about this very connection, whichever process listens on the port by now. Call it before sending
    anything. Raises NotThereError, StrangerError, OSError.
    """
    await asyncio.to_thread(_expect_own, connection, port)


def _expect_own(connection: Connected, port: int) -> None:
    for _ in range(_CHECKS):
        ends = peer_sockets(connection)
        if not ends:
            raise NotThereError(f"no process listens on port {port} of this node any more")
        if strangers := sorted({each.user for each in ends} - {os.getuid()}):
            users = ", ".join(map(str, strangers))
            raise StrangerError(f"port {port} belongs to a process of another user of this node (user {users})")
        if processes.hold_sockets(processes.container(), {each.inode for each in ends}):
            return
        time.sleep(_PAUSE)
    raise StrangerError(f"port {port} belongs to a process that is not of this task's container")
