"""Ports of a task: reserved ports, the check that a listener belongs to the container, and the readiness probe."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import random
import signal
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Optional

from tony_provider.runtime.common import contract
from tony_provider.runtime.common.concurrency import wait_with_timeout
from tony_provider.runtime.common.network import Connected, is_of_this_machine, peer_sockets
from tony_provider.runtime.executor import processes
from tony_provider.runtime.executor.executor_container import ExecutorContainer
from tony_provider.runtime.jobspec.model import PortRange, ReadinessProbe

log = logging.getLogger(__name__)


class PortError(Exception):
    """No port is free, or a port that was released before a start is now in use."""


class HeldPorts:
    """Bound sockets that reserve one port per name for the user process. They do not listen.

    Raises PortError if the range has no free port.
    """

    def __init__(self, names: Sequence[str], port_range: PortRange, *, share: bool) -> None:
        """Bind the ports. ``share``: the user process binds them with SO_REUSEPORT, so they are never released."""
        self._share = share
        self._sockets: dict[str, socket.socket] = {}
        self.numbers: dict[str, int] = {}
        for name in names:
            held = _bind_any(port_range, share=share)
            self._sockets[name] = held
            self.numbers[name] = held.getsockname()[1]

    def release(self) -> None:
        """Release the ports just before the user process starts."""
        if not self._share:
            self.close()

    def reacquire(self) -> None:
        """Bind the ports again after the user process has ended, for the next start.

        Raises PortError if another process has taken a port.
        """
        for name, number in self.numbers.items():
            if name not in self._sockets:
                try:
                    self._sockets[name] = _bind(number, share=self._share, again=True)
                except OSError as error:
                    raise PortError(f"port {number} ({name}) was taken between two generations: {error}") from error

    @contextlib.contextmanager
    def listening(self, name: str) -> Iterator[socket.socket]:
        """Lend the socket of a port to a server of this process. Afterwards, reserve the port with a new socket.

        Raises PortError if another process has taken the port before or meanwhile.
        """
        self.reacquire()
        try:
            with self._sockets.pop(name) as lent:
                yield lent
        finally:
            self.reacquire()

    def close(self) -> None:
        for held in self._sockets.values():
            held.close()
        self._sockets.clear()


def _bind_any(port_range: PortRange, *, share: bool) -> socket.socket:
    ports = range(port_range.first, port_range.last + 1)
    # Executors that start together on a node should not all try the same ports.
    begin = random.choice(ports)  # noqa: S311 - nothing secret
    for port in (*range(begin, ports.stop), *range(ports.start, begin)):
        try:
            return _bind(port, share=share)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise PortError(f"cannot bind a port: {error}") from error
    raise PortError(f"no free port in the job's port_range {port_range.first}-{port_range.last}")


def _bind(port: int, *, share: bool, again: bool = False) -> socket.socket:
    # Bind all addresses, because the frameworks' servers do so. Set SO_REUSEPORT only after the bind: otherwise two
    # executors of one user could bind the same port. The user process can still bind it, but no other executor can.
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        # Connections of an ended process linger for a minute, and must not prevent the bind. A listener still does so.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(again))
        held.bind(("", port))
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        if share:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except BaseException:
        held.close()
        raise
    return held


_CHECKS, _CHECK_PAUSE = 5, 0.02  # the pause is in seconds; one check may miss a process that forks or accepts


class NoListenerError(Exception):
    """No process listens on the port."""


class ForeignListenerError(Exception):
    """A process outside of this container listens on the port; the message names its user or container."""


async def expect_own(connection: Connected, port: int) -> None:
    """Check that a connection to a port of this node leads to a process of this container.

    The check finds the process at the other end of this connection, even if another process listens on the port by now.
    Call it before sending data. Raises NoListenerError, ForeignListenerError, OSError.
    """
    await asyncio.to_thread(_expect_own, connection, port)


def _expect_own(connection: Connected, port: int) -> None:
    for _ in range(_CHECKS):
        ends = peer_sockets(connection)
        if not ends:
            raise NoListenerError(f"no process listens on port {port} of this node")
        if strangers := sorted({each.user for each in ends} - {os.getuid()}):
            users = ", ".join(map(str, strangers))
            raise ForeignListenerError(f"port {port} belongs to a process of another user of this node (user {users})")
        if processes.hold_sockets(processes.container_processes(), {each.inode for each in ends}):
            return
        time.sleep(_CHECK_PAUSE)
    raise ForeignListenerError(f"port {port} belongs to a process outside of this task's container")


_PAUSE = 1.0  # seconds between two probes
_CONNECT = 2.0  # seconds for the program to accept a connection
_COMMAND = 30.0  # seconds for the probe's command


class ReadinessWatch:
    """The readiness probe of one start of a user process. Once true, ``ready`` stays true: other tasks rely on it."""

    def __init__(self, container: ExecutorContainer, probe: ReadinessProbe, environ: Mapping[str, str]) -> None:
        """Prepare the probe. ``environ``: the environment of the user process."""
        self._container = container
        self._probe = probe
        self._environ = environ
        self._watching: Optional[asyncio.Task[None]] = None
        self._warned = False  # whether the warning about another container or user was logged
        self.ready = False
        self.pid: Optional[int] = None  # PID of the probe's command while it runs

    def start(self) -> None:
        """Start to probe, until the task is ready or ``close`` is called."""
        self._watching = asyncio.ensure_future(self._watch())

    async def close(self) -> None:
        """Stop probing."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching})

    async def _watch(self) -> None:
        while not self.ready:
            self.ready = await self._probe_once()
            await asyncio.sleep(_PAUSE)
        log.info("the readiness probe has succeeded")

    async def _probe_once(self) -> bool:
        if self._probe.file is not None:
            # Path.exists raises some errors, which may be temporary while the program runs.
            return await asyncio.to_thread(os.path.exists, Path(self._container.directory, self._probe.file))
        if self._probe.command is not None:
            return await self._succeeds(self._probe.command)
        return await self._accepts(self._probe.port or int(self._environ[contract.ENV_PORT]))

    async def _accepts(self, port: int) -> bool:
        """Connect to this machine's name and to the loopback, because a program may listen at only one of them."""
        for host in (self._container.host, "localhost"):
            with contextlib.suppress(OSError, asyncio.TimeoutError):
                _, writer = await wait_with_timeout(asyncio.open_connection(host, port), _CONNECT)
                with contextlib.closing(writer):
                    connection: Connected = writer.get_extra_info("socket")
                    # An answer of another machine, the Docker host, comes from a mapped port of this container.
                    if not is_of_this_machine(connection.getpeername()[0]) or await self._is_own(connection, port):
                        return True
        return False

    async def _is_own(self, connection: Connected, port: int) -> bool:
        """Return whether the answer comes from this container: another process may have taken the port first."""
        try:
            await expect_own(connection, port)
        except NoListenerError:
            return False
        except ForeignListenerError as error:
            if not self._warned:
                self._warned = True
                log.warning(
                    "the readiness probe ignores an answer: %s; let the program listen on another port, such as the "
                    "value of %s",
                    error,
                    contract.ENV_PORT,
                )
            return False
        return True

    async def _succeeds(self, command: str) -> bool:
        try:
            process = await asyncio.create_subprocess_exec(
                *("/bin/sh", "-c", command),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                env=dict(self._environ),
            )
        except OSError as error:
            log.warning("the readiness probe could not be started: %s", error)
            return False
        self.pid = process.pid
        try:
            return await wait_with_timeout(process.wait(), _COMMAND) == 0
        except asyncio.TimeoutError:
            log.warning("the readiness probe's command took more than %g s: stopping and retrying it", _COMMAND)
            return False
        finally:
            if process.returncode is None:
                await _end(process)
            self.pid = None


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill the shell and its descendants. Otherwise each probe would leave another process running."""
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGSTOP)  # so that the shell does not start its next command
    await processes.kill_all(process.pid, (), processes.KILL_TIMEOUT)
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()
