"""The user processes of one start, of which a container runs one or several, and their helpers: they end together."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Callable, Optional

import attrs

from tony_provider.runtime import shell
from tony_provider.runtime.executor import processes, stacks
from tony_provider.runtime.executor.executor_context import ExecutorContext
from tony_provider.runtime.executor.out_of_memory import OutOfMemoryWatch
from tony_provider.runtime.executor.output import Capture
from tony_provider.runtime.executor.ports import PortError
from tony_provider.runtime.executor.preparation import ProcessLaunch
from tony_provider.runtime.executor.process_stop import ProcessStop
from tony_provider.runtime.executor.shell_failures import command_problem
from tony_provider.runtime.executor.user_process import UserProcess
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.quantities import some
from tony_provider.runtime.text import masked_bytes, without_cut_secret

log = logging.getLogger(__name__)

_CHILDREN_SECONDS = 1.0  # for what ends together with its parent
_NAMED = 3  # processes that a warning names
LEFTOVER_GRACE = 5.0  # seconds that what user processes leave running gets between SIGTERM and SIGKILL


class UserProcesses:
    """One run of the user's command, in each of the container's processes. ``run`` it once.

    It is over when all have ended well, or the first has not, or a helper that they need: then the others are stopped.
    """

    def __init__(
        self,
        context: ExecutorContext,
        stopping: ProcessStop,
        warn: Callable[[str], None],
        tell_stacks: Callable[[Sequence[tony_pb2.ProcessStack]], None],
    ) -> None:
        """Prepare a run.

        ``warn`` is called with a warning about processes that have outlived the user's command, ``tell_stacks`` with
        the stacks of processes that are to be stopped, if they were requested.
        """
        self._context = context
        self._tell_stacks = tell_stacks
        self._warn = warn
        self._stopping = stopping
        self._memory = OutOfMemoryWatch()
        self.running: list[UserProcess] = []  # by local rank, until all are gone
        self._helpers: list[UserProcess] = []  # in any order, until all are gone

    @property
    def pids(self) -> list[int]:
        """Their numbers by local rank, then those of their helpers."""
        return [process.pid for process in self._every]

    @property
    def _failed_helper(self) -> Optional[UserProcess]:
        return next((helper for helper in self._helpers if helper.failed), None)

    @property
    def _every(self) -> list[UserProcess]:
        return [*self.running, *self._helpers]

    async def look_at_memory(self) -> None:
        """Forget what the kernel killed up to now: it was no user process. Call it regularly while they run."""
        if self.running:
            await asyncio.to_thread(self._memory.look)

    async def run(
        self, launches: Sequence[ProcessLaunch], exited: tony_pb2.ProcessExited, started: Callable[[int], None]
    ) -> None:
        """Run the processes until they and everything that they started are gone.

        ``exited`` is filled in with how they ended: of several by the first that failed. ``started`` gets the number of
        the first process. Raises OSError when one cannot be started; then none is left.
        """
        await asyncio.to_thread(self._memory.look)
        async with AsyncExitStack() as captures:
            try:
                await self._start(launches, captures)
                started(self.running[0].pid)
                told = await self._until_gone(exited)
            finally:
                for process in self._every:
                    process.ending.cancel()
                self.running, self._helpers = [], []
                self._take_ports_back()
            # It goes into messages, which more people read than the job's log.
            secrets = self._context.container.user_secrets.values()
            lines = without_cut_secret((await told.last_lines()).encode(), secrets)
            exited.output_tail = masked_bytes(lines, secrets).decode("utf-8", "replace")
        if exited.signal == 0 and exited.exit_code:
            exited.error = command_problem(told.command, exited.exit_code, exited.output_tail) or exited.error

    async def _start(self, launches: Sequence[ProcessLaunch], captures: AsyncExitStack) -> None:
        self._context.ports.make_way()
        try:
            for local_rank, launch in enumerate(launches):
                for helper in launch.helpers:
                    name = f"{helper.name} (a helper process)"
                    as_helper = attrs.evolve(launch, before="", command=helper.command, name=name)
                    self._helpers.append(await self._start_one(as_helper, local_rank, captures))
                self.running.append(await self._start_one(launch, local_rank, captures))
        except OSError:
            await processes.kill_all(os.getpid(), self.pids, processes.KILL_TIMEOUT)
            raise

    async def _start_one(self, launch: ProcessLaunch, local_rank: int, captures: AsyncExitStack) -> UserProcess:
        capture = await captures.enter_async_context(Capture(self._context.output, local_rank))
        return await UserProcess.start(launch, capture)

    async def _until_gone(self, exited: tony_pb2.ProcessExited) -> UserProcess:
        """Fill in ``exited``. Returns the process that it tells of."""
        first_bad = await self._until_over()
        living = [process for process in self.running if not process.ending.done()]
        children_gone = first_bad is None and not living and await self._until_children_gone()
        if not living and not children_gone:
            first_bad = first_bad or self._failed_helper  # children that are waited for have needed it
        by_itself = first_bad is not None or children_gone
        exited.stopped = not by_itself
        killed = by_itself and await asyncio.to_thread(self._memory.killed_recently)
        if self._stopping.stacks and not by_itself:
            self._tell_stacks(await stacks.write(self.running, self._context))
        if first_bad and living:
            await asyncio.to_thread(self._context.output.note, f"{first_bad.name} has failed, the others are stopped")
        grace = self._context.container.job.timeouts.grace if living else LEFTOVER_GRACE
        latest = time.monotonic() + grace if by_itself else float("inf")
        left = await processes.stop_all(os.getpid(), self.pids, lambda: min(latest, self._stopping.kill_at()))
        await asyncio.wait({process.ending for process in self._every}, timeout=processes.KILL_TIMEOUT)
        told = first_bad or self.running[0]
        exited.process = first_bad.name if first_bad else ""
        if told.ending.done():
            code = told.ending.result()
            exited.exit_code, exited.signal = max(code, 0), max(-code, 0)
            exited.signal = shell.killed_by(code) or exited.signal
            exited.out_of_memory = killed and exited.signal == signal.SIGKILL
        else:
            exited.signal = signal.SIGKILL
        if left:
            log.error("%d processes that the user processes %s had started cannot be killed", left, self.pids)
            exited.error = f"{left} of its processes could not be killed"
        return told

    async def _until_over(self) -> Optional[UserProcess]:
        """Until all have ended, one or a helper has failed, or they are to stop. Returns what has failed first."""
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            while True:
                living = {process.ending for process in self.running if not process.ending.done()}
                first_bad = next((process for process in self.running if process.failed), None)
                if living or first_bad:  # if both have failed, the helper is the cause
                    first_bad = self._failed_helper or first_bad
                if first_bad or not living or stopping.done():
                    return first_bad
                helping = {helper.ending for helper in self._helpers if not helper.ending.done()}
                await asyncio.wait({*living, *helping, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()

    async def _until_children_gone(self) -> bool:
        """Wait for what the commands have started, after they ended with exit code 0. Return False if it has to stop.

        Without ``wait_for_children``, warn that it will be stopped.
        """
        root, waits = os.getpid(), self._context.container.spec.wait_for_children
        latest = float("inf") if waits else time.monotonic() + _CHILDREN_SECONDS
        helpers = [helper.pid for helper in self._helpers]  # they are stopped when all others are gone

        def deadline() -> float:
            return min(latest, self._stopping.asked_at, 0.0 if self._failed_helper and waits else latest)

        if not await processes.wait_until_gone(root, self.pids, deadline, helpers):
            return True
        if waits:
            return False
        left = await asyncio.to_thread(processes.descendants, root, helpers)
        secrets = self._context.container.user_secrets.values()
        commands = [processes.command_of(pid) for pid, process in sorted(left.items()) if not process.zombie]
        names = [masked_bytes(each.encode(), secrets).decode("utf-8", "replace") for each in commands]
        what = "process that it had started is" if len(names) == 1 else "processes that it had started are"
        self._warn(
            f"the command has ended with exit code 0, so {len(names)} {what} stopped: {some(names, _NAMED)}. If they "
            "are part of the training, have the command wait for them, or set wait_for_children to true"
        )
        return True

    def _take_ports_back(self) -> None:
        try:
            self._context.ports.take_back()
        except PortError as error:
            log.warning("%s", error)
