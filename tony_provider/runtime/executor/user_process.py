"""The user's command as a process: started, watched, stopped with everything that it started."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Mapping
from typing import Any, Callable, Optional

from tony_provider.runtime import shell
from tony_provider.runtime.executor import processes, stacks
from tony_provider.runtime.executor.executor_context import ExecutorContext
from tony_provider.runtime.executor.out_of_memory import OutOfMemoryWatch
from tony_provider.runtime.executor.output import Capture
from tony_provider.runtime.executor.ports import PortError
from tony_provider.runtime.executor.process_stop import ProcessStop
from tony_provider.runtime.executor.shell_failures import command_problem
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.text import masked

log = logging.getLogger(__name__)

LEFTOVER_GRACE = 5.0  # seconds that what a user process leaves running gets between SIGTERM and SIGKILL
_DRAIN_TIMEOUT = 5.0  # seconds for the end of the output, once nobody is left to write it
_OOM_SCORE = 500  # of 1000: the kernel, short of memory, takes the user process rather than its executor

# The score first, then the command in the same process: whatever it starts inherits it.
_START = f'{{ echo {_OOM_SCORE} >/proc/self/oom_score_adj; }} 2>/dev/null; exec /bin/sh -c "$1"'


class UserProcess:
    """One run of the user's command. ``run`` it once."""

    def __init__(self, context: ExecutorContext, stopping: ProcessStop) -> None:
        self.pid: Optional[int] = None  # while it runs
        self._context = context
        self._stopping = stopping
        self._memory = OutOfMemoryWatch()

    async def look_at_memory(self) -> None:
        """Forget what the kernel killed up to now: it was not the user process. Call it regularly while that runs."""
        if self.pid is not None:
            await asyncio.to_thread(self._memory.look)

    async def run(
        self,
        command: str,
        environ: Mapping[str, str],
        exited: tony_pb2.ProcessExited,
        started: Callable[[int], None],
    ) -> None:
        """Run the command until it and everything that it started are gone. Raises OSError when it cannot be started.

        ``exited`` is filled in with how it ended. ``started`` gets its number.
        """
        await asyncio.to_thread(self._memory.look)
        async with Capture(self._context.output) as capture:
            process = await self._start(command, environ, capture)
            started(process.pid)
            ending = asyncio.ensure_future(process.wait())
            try:
                await self._until_gone(process.pid, ending, exited)
            finally:
                ending.cancel()
                self.pid = None
                self._take_ports_back()
            if not await capture.drained(_DRAIN_TIMEOUT):
                log.warning("something still holds the output of process %d", process.pid)
            # It goes into messages, which more people read than the job's log.
            exited.output_tail = masked(capture.tail(), self._context.container.user_secrets.values())
        if exited.signal == 0 and exited.exit_code:
            exited.error = (
                command_problem(self._context.container.command, exited.exit_code, exited.output_tail) or exited.error
            )

    async def _start(self, command: str, environ: Mapping[str, str], capture: Capture) -> asyncio.subprocess.Process:
        self._context.ports.make_way()
        # No session and no group of its own: YARN's kill goes to the container's process group. And nothing that would
        # keep Python 3.9 from posix_spawn (cwd, close_fds): its fork would run gRPC's handlers, which break the child.
        # All our files are close-on-exec, and the working directory is the container's.
        process = await asyncio.create_subprocess_exec(
            "/bin/sh",
            *("-c", _START, "sh", command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=capture.stdout,
            stderr=capture.stderr,
            close_fds=False,
            env=environ,
        )
        capture.started()
        self.pid = process.pid
        return process

    async def _until_gone(self, pid: int, ending: asyncio.Future[Any], exited: tony_pb2.ProcessExited) -> None:
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({ending, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
        by_itself = ending.done()
        exited.stopped = not by_itself
        killed = by_itself and await asyncio.to_thread(self._memory.killed_recently)
        if self._stopping.stacks and not by_itself:
            await stacks.write(os.getpid(), self._context.output)
        latest = time.monotonic() + LEFTOVER_GRACE if by_itself else float("inf")
        left = await processes.stop_all(os.getpid(), pid, lambda: min(latest, self._stopping.kill_at()))
        await asyncio.wait({ending}, timeout=processes.KILL_TIMEOUT)
        if ending.done():
            code = ending.result()
            exited.exit_code, exited.signal = max(code, 0), max(-code, 0)
            exited.signal = shell.killed_by(code) or exited.signal
            exited.out_of_memory = killed and exited.signal == signal.SIGKILL
        else:
            exited.signal = signal.SIGKILL
        if left:
            log.error("%d processes that process %d had started cannot be killed", left, pid)
            exited.error = f"{left} of its processes could not be killed"

    def _take_ports_back(self) -> None:
        try:
            self._context.ports.take_back()
        except PortError as error:
            log.warning("%s", error)
