"""Ports that a task's user process will listen on, kept from everyone else until it does."""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Sequence

from tony_provider.runtime.spec.model import PortRange


class PortError(Exception):
    """No port is free, or one that was given up before a start is taken now."""


class HeldPorts:
    """Bound sockets that keep ports free for the user process, one per name, not listening.

    Raises PortError when the range has no free port left.
    """

    def __init__(self, names: Sequence[str], port_range: PortRange, *, share: bool) -> None:
        """``share``: the user process binds the same ports with SO_REUSEPORT, so that they need never be given up."""
        self._share = share
        self._sockets: dict[str, socket.socket] = {}
        self.numbers: dict[str, int] = {}
        for name in names:
            held = _bind_any(port_range, share=share)
            self._sockets[name] = held
            self.numbers[name] = held.getsockname()[1]

    def make_way(self) -> None:
        """Give the ports up, just before the user process starts."""
        if not self._share:
            self.close()

    def take_back(self) -> None:
        """Hold the ports again after the user process has ended, for the next one.

        Raises PortError when somebody was quicker.
        """
        for name, number in self.numbers.items():
            if name not in self._sockets:
                try:
                    self._sockets[name] = _bind(number, share=self._share, again=True)
                except OSError as error:
                    raise PortError(f"port {number} ({name}) was taken between two generations: {error}") from error

    def close(self) -> None:
        for held in self._sockets.values():
            held.close()
        self._sockets.clear()


def _bind_any(port_range: PortRange, *, share: bool) -> socket.socket:
    ports = range(port_range.first, port_range.last + 1)
    # Executors that start together on one node should not all try the same ones.
    begin = random.choice(ports)  # noqa: S311 - nothing secret
    for port in (*range(begin, ports.stop), *range(ports.start, begin)):
        try:
            return _bind(port, share=share)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise PortError(f"cannot bind a port: {error}") from error
    raise PortError(f"no free port in the job's port_range {port_range.first}-{port_range.last}")


def _bind(port: int, *, share: bool, again: bool = False) -> socket.socket:
    # On every address, since the frameworks' servers do so. Not with SO_REUSEPORT from the start: then two executors
    # of one user could bind the same port. Set afterwards it lets the user process in, and no other first-time binder.
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        # Connections of a process that has just ended linger for a minute; somebody who listens is in the way as ever.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(again))
        held.bind(("", port))
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        if share:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except BaseException:
        held.close()
        raise
    return held
