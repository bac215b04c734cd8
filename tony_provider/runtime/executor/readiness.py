"""The readiness probe: whether the user process is ready for those that wait for it, looked at while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from tony_provider.runtime.deadline import within
from tony_provider.runtime.spec.model import ReadinessProbe

_CONNECT = 2.0  # seconds for the program to accept a connection
_COMMAND = 30.0  # seconds for the probe's command


class Readiness:
    """The probe of one start of a user process. What was ready stays so: others have begun by then."""

    def __init__(self, probe: ReadinessProbe, directory: Path, environ: Mapping[str, str], port: int) -> None:
        """``environ`` is that of the user process, and ``port`` its own, for a probe of port 0."""
        self._probe = probe
        self._directory = directory
        self._environ = environ
        self._port = probe.port or port
        self._ready = False

    async def look(self) -> bool:
        """Look once, unless it was ready before."""
        if not self._ready:
            self._ready = await self._look()
        return self._ready

    async def _look(self) -> bool:
        if self._probe.file is not None:
            return await asyncio.to_thread((self._directory / self._probe.file).exists)
        if self._probe.command is not None:
            return await self._succeeds(self._probe.command)
        return await self._accepts()

    async def _accepts(self) -> bool:
        """At any of this machine's addresses: a program may listen at the loopback, or at its node's alone."""
        for host in ("localhost", os.environ.get("TONY_NODE_HOST", "")):
            if host:
                with contextlib.suppress(OSError, asyncio.TimeoutError):
                    _, writer = await within(asyncio.open_connection(host, self._port), _CONNECT)
                    writer.close()
                    return True
        return False

    async def _succeeds(self, command: str) -> bool:
        # As the user's own, see UserProcess: what keeps Python 3.9 from posix_spawn breaks the child.
        process = await asyncio.create_subprocess_exec(
            *("/bin/sh", "-c", command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            close_fds=False,
            env=dict(self._environ),
        )
        try:
            return await within(process.wait(), _COMMAND) == 0
        except asyncio.TimeoutError:
            return False
        finally:
            if process.returncode is None:
                process.kill()
