"""The readiness probe: whether the user process is ready for those that wait for it, looked at while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Optional

from tony_provider.runtime import contract
from tony_provider.runtime.deadline import within
from tony_provider.runtime.executor import processes
from tony_provider.runtime.executor.executor_container import ExecutorContainer
from tony_provider.runtime.executor.peers import NotThereError, StrangerError, expect_own
from tony_provider.runtime.listeners import Connected, is_of_this_machine
from tony_provider.runtime.spec.model import ReadinessProbe

log = logging.getLogger(__name__)

_PAUSE = 1.0  # seconds between two looks
_CONNECT = 2.0  # seconds for the program to accept a connection
_COMMAND = 30.0  # seconds for the probe's command


class Readiness:
    """The probe of one start of a user process. What was ready stays so: others have begun by then."""

    def __init__(self, container: ExecutorContainer, probe: ReadinessProbe, environ: Mapping[str, str]) -> None:
        """``environ`` is that of the user process."""
        self._container = container
        self._probe = probe
        self._environ = environ
        self._watching: Optional[asyncio.Task[None]] = None
        self._told = False  # whether the warning about another container or user was logged
        self.ready = False
        self.pid: Optional[int] = None  # of the probe's command, while it runs

    def start(self) -> None:
        """Look from now on, until it is ready or ``close``."""
        self._watching = asyncio.ensure_future(self._watch())

    async def close(self) -> None:
        """Look no more."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching})

    async def _watch(self) -> None:
        while not self.ready:
            self.ready = await self._look()
            await asyncio.sleep(_PAUSE)
        log.info("the readiness probe has succeeded")

    async def _look(self) -> bool:
        if self._probe.file is not None:
            # Not Path.exists, which raises what is wrong on the way there: that may be mended while the program runs.
            return await asyncio.to_thread(os.path.exists, Path(self._container.directory, self._probe.file))
        if self._probe.command is not None:
            return await self._succeeds(self._probe.command)
        return await self._accepts(self._probe.port or int(self._environ[contract.ENV_PORT]))

    async def _accepts(self, port: int) -> bool:
        """At this machine's name or at the loopback: a program may listen at either alone."""
        for host in (self._container.host, "localhost"):
            with contextlib.suppress(OSError, asyncio.TimeoutError):
                _, writer = await within(asyncio.open_connection(host, port), _CONNECT)
                with contextlib.closing(writer):
                    connection: Connected = writer.get_extra_info("socket")
                    # Another machine is reached only through a mapped port, which belongs to the container.
                    if not is_of_this_machine(connection.getpeername()[0]) or await self._is_own(connection, port):
                        return True
        return False

    async def _is_own(self, connection: Connected, port: int) -> bool:
        """Return whether a process of this container answers, because another process may have taken the port first."""
        try:
            await expect_own(connection, port)
        except NotThereError:
            return False
        except StrangerError as error:
            if not self._told:
                self._told = True
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
            return await within(process.wait(), _COMMAND) == 0
        except asyncio.TimeoutError:
            log.warning("the readiness probe's command takes more than %g s; it is ended, and tried again", _COMMAND)
            return False
        finally:
            if process.returncode is None:
                await _end(process)
            self.pid = None


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill the shell, and whatever it has started: each look would leave one more of them otherwise."""
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGSTOP)  # or it would go on with its next command
    await processes.kill_all(process.pid, (), processes.KILL_TIMEOUT)
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()
