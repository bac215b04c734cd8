"""Run the user processes of one start, write the stacks of processes that hang, and explain failed commands."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Callable, Optional

import attrs

from tony_provider.runtime.common import contract
from tony_provider.runtime.common.quantities import some
from tony_provider.runtime.common.text import masked, masked_bytes, without_cut_secret
from tony_provider.runtime.executor import processes
from tony_provider.runtime.executor.output import CappedFile, Capture, Output
from tony_provider.runtime.executor.ports import PortError
from tony_provider.runtime.executor.processes import OutOfMemoryWatch
from tony_provider.runtime.executor.start_context import ExecutorContext, StopRequest
from tony_provider.runtime.executor.start_preparation import ProcessLaunch
from tony_provider.runtime.protocol import limits, tony_pb2

log = logging.getLogger(__name__)


_QUOTED = 200  # characters of a quoted command or error line of the shell


def command_problem(command: str, exit_code: int, stderr: str) -> str:
    """Explain why the shell could not run the command. Return an empty text if the exit code has another meaning."""
    if exit_code == contract.EXIT_NOT_FOUND:
        said = _complaint(stderr, "not found", "No such file")
        return f"the command was not found: {_short(command)}{said}; it must be in files, in python_env or on PATH"
    if exit_code == contract.EXIT_NOT_EXECUTABLE:
        said = _complaint(stderr, "denied", "cannot execute", "Is a directory", "Exec format")
        return f"the command cannot be executed: {_short(command)}{said}"
    return ""


def _complaint(stderr: str, *words: str) -> str:
    lines = [line for line in stderr.splitlines() if any(word in line for word in words)]
    return f" ({_short(lines[-1])})" if lines else ""


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _QUOTED else line[: _QUOTED - 1] + "…"


_DRAIN_TIMEOUT = 5.0  # seconds for the end of the output after all processes have ended
_OOM_SCORE = 500  # of 1000, so that the kernel kills user processes before the executor when memory is short

# Set the score first, then run the command in the same process, so that all its children inherit the score.
_START = f'{{ echo {_OOM_SCORE} >/proc/self/oom_score_adj; }} 2>/dev/null; exec /bin/sh -c "$1"'


class UserProcess:
    """A process that runs the user's command, or a helper. ``start`` creates it."""

    def __init__(self, process: asyncio.subprocess.Process, launch: ProcessLaunch, capture: Capture) -> None:
        self.pid = process.pid
        self.rank = launch.rank
        self.name = launch.name  # name among several processes, for messages
        self.command = launch.command
        self.ending = asyncio.ensure_future(process.wait())
        self.capture = capture

    @classmethod
    async def start(cls, launch: ProcessLaunch, capture: Capture) -> UserProcess:
        """Start the process with its output connected to an open capture. Raises OSError if it cannot be started."""
        # The process stays in the session and group of its parent, because YARN kills the container's process group. It
        # inherits the open lock files of its GPUs, so the locks last until it ends. All other files are close-on-exec.
        process = await asyncio.create_subprocess_exec(
            "/bin/sh",
            *("-c", _START, "sh", "\n".join(filter(None, [launch.before, launch.command]))),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=capture.stdout,
            stderr=capture.stderr,
            close_fds=False,
            env=launch.environ,
        )
        capture.close_write_ends()
        return cls(process, launch, capture)

    @property
    def failed(self) -> bool:
        """Whether the process has ended with a failure."""
        return self.ending.done() and self.ending.result() != 0

    async def drain(self) -> None:
        """Wait for the end of the output of an ended process."""
        if not await self.capture.drained(_DRAIN_TIMEOUT):
            log.warning("another process still holds the output of process %d open", self.pid)


STACK_SIGNAL = signal.SIGUSR2
_INTERPRETERS = ("python", "pypy")  # prefixes of the program names of Python interpreters
_TIMEOUT = 3.0  # seconds in which all processes must write their stacks
_SILENT = 1.0  # seconds for one process to begin its output, which never happens if stderr is redirected
_QUIET = 0.15  # seconds without output after which the stacks of a process are complete
_POLL = 0.05
_LONGEST_COMMAND = 200  # characters
_LARGEST = 256 << 10  # bytes of one process's stacks that are searched, from the end
# Python marks the thread that handles the signal: the main thread, unless it blocks the signal.
_CURRENT = re.compile(r"^Current thread .*:\n((?:  .*\n)+)", re.MULTILINE)


async def write_stacks(running: Sequence[UserProcess], context: ExecutorContext) -> list[tony_pb2.ProcessStack]:
    """Make every process of this container write its stacks into the log.

    Return the frames of the user processes and their descendants that run Python, in the order of their start.
    Processes write one after the other, until ``_TIMEOUT`` has passed.

    :param running: the user processes by local rank.
    """
    output, until = context.output, time.monotonic() + _TIMEOUT
    table = await asyncio.to_thread(processes.descendants, os.getpid())
    rank_of = {pid: rank for rank, each in enumerate(running) for pid in (each.pid, *processes.below(table, each.pid))}
    found: list[tony_pb2.ProcessStack] = []
    in_time = True
    # The processes of a user process come first, the parents before their children.
    for process in sorted(table.values(), key=lambda each: (each.pid not in rank_of, each.started)):
        local_rank = rank_of.get(process.pid)
        stderr = output.processes[local_rank or 0].stderr
        if process.zombie:
            continue
        await asyncio.to_thread(_note, process.pid, output)
        before = stderr.written
        if not await asyncio.to_thread(_ask, process.pid):
            continue
        in_time = in_time and await _settle(stderr, before, until)
        if in_time and local_rank is not None and len(found) < limits.MOST_STACKS:
            frames = _frames((await asyncio.to_thread(stderr.since, before, _LARGEST)).data, context)
            found.append(
                tony_pb2.ProcessStack(
                    pid=process.pid,
                    command=_masked(_command(process.pid), context),
                    process=running[local_rank].name,
                    frames=frames,
                )
            )
    if not in_time:
        await asyncio.sleep(_QUIET)
    return found


def _note(pid: int, output: Output) -> None:
    output.note_error(f"process {pid}, {_waits(pid)}: {_command(pid)}")


def _ask(pid: int) -> bool:
    """Request the stacks of a process. Return False if the process has ended, or has no handler that writes stacks."""
    if not _answers(pid):
        return False
    try:
        os.kill(pid, STACK_SIGNAL)
    except ProcessLookupError:
        return False
    return True


async def _settle(stderr: CappedFile, before: int, until: float) -> bool:
    """Wait until a process has written its stacks. Return False if that takes longer than ``until`` (monotonic).

    ``before``: the number of bytes that had been written to the file when the process got the signal.
    """
    done_at = time.monotonic() + _SILENT
    while (now := time.monotonic()) < until:
        if stderr.written != before:
            before, done_at = stderr.written, now + _QUIET
        if now >= done_at:
            return True
        await asyncio.sleep(_POLL)
    return False


def _frames(written: bytes, context: ExecutorContext) -> list[str]:
    """Return the frames of the thread that has handled the signal, with paths relative to the container's directory."""
    current = _CURRENT.search(written.decode("utf-8", "replace"))
    lines = current[1].splitlines()[: limits.MOST_FRAMES] if current else []
    directory = f"{context.workspace.container}/"
    return [_masked(line.strip().replace(directory, ""), context)[: limits.LONGEST_LABEL] for line in lines]


def _masked(text: str, context: ExecutorContext) -> str:
    return masked(text, context.container.user_secrets.values())


def _answers(pid: int) -> bool:
    """Return whether a process is a Python that handles the signal. Without a handler, the signal would end it."""
    try:
        program = Path(f"/proc/{pid}/exe").readlink()
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return False
    if not program.name.startswith(_INTERPRETERS):
        return False
    caught = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> (STACK_SIGNAL - 1) & 1)


def _command(pid: int) -> str:
    return processes.command_of(pid, _LONGEST_COMMAND) or "(gone)"


def _waits(pid: int) -> str:
    """Return the kernel's state, such as ``state S in do_wait``: proc_pid_stat(5), proc_pid_wchan(5)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
        channel = Path(f"/proc/{pid}/wchan").read_text().strip("0\n")
    except OSError:
        return "state unknown"
    return f"state {state} in {channel}" if channel else f"state {state}"


_CHILDREN_SECONDS = 1.0  # seconds for processes that end together with their parent
_NAMED = 3  # processes that a warning names
LEFTOVER_GRACE = 5.0  # seconds between SIGTERM and SIGKILL for processes that user processes have left


class UserProcesses:
    """One run of the user's command in each of the container's processes. Call ``run`` once.

    The run is over when all processes have succeeded, or when a process or a needed helper has failed. Then the
    remaining processes are stopped.
    """

    def __init__(
        self,
        context: ExecutorContext,
        stop_request: StopRequest,
        warn: Callable[[str], None],
        send_stacks: Callable[[Sequence[tony_pb2.ProcessStack]], None],
    ) -> None:
        """Prepare a run.

        ``warn`` gets a warning about processes that have outlived the user's command. If the stop request includes
        stacks, ``send_stacks`` gets the stacks of the processes before they are stopped.
        """
        self._context = context
        self._send_stacks = send_stacks
        self._warn = warn
        self._stop_request = stop_request
        self._memory = OutOfMemoryWatch()
        self.running: list[UserProcess] = []  # by local rank; empty when all have ended
        self._helpers: list[UserProcess] = []  # in any order; empty when all have ended

    @property
    def pids(self) -> list[int]:
        """The PIDs of the processes by local rank, then those of the helpers."""
        return [process.pid for process in self._every]

    @property
    def _failed_helper(self) -> Optional[UserProcess]:
        return next((helper for helper in self._helpers if helper.failed), None)

    @property
    def _every(self) -> list[UserProcess]:
        return [*self.running, *self._helpers]

    async def read_memory(self) -> None:
        """Read the kernel's counters, so that earlier kills of other processes do not count. Call this regularly."""
        if self.running:
            await asyncio.to_thread(self._memory.read)

    async def run(
        self, launches: Sequence[ProcessLaunch], exited: tony_pb2.ProcessExited, started: Callable[[int], None]
    ) -> None:
        """Run the processes until they and all their descendants have ended.

        Fills ``exited`` with the result of the first process to fail, or else of local rank 0. ``started`` gets the PID
        of the first process. If a process cannot be started, kills the started processes and raises OSError.
        """
        await asyncio.to_thread(self._memory.read)
        async with AsyncExitStack() as captures:
            try:
                await self._start(launches, captures)
                started(self.running[0].pid)
                reported = await self._until_gone(exited)
            finally:
                for process in self._every:
                    process.ending.cancel()
                self.running, self._helpers = [], []
                self._reacquire_ports()
            # Mask secrets, because the lines go into messages, which have more readers than the job's log.
            secrets = self._context.container.user_secrets.values()
            lines = without_cut_secret(reported.capture.tail().encode(), secrets)
            exited.output_tail = masked_bytes(lines, secrets).decode("utf-8", "replace")
        if exited.signal == 0 and exited.exit_code:
            exited.error = command_problem(reported.command, exited.exit_code, exited.output_tail) or exited.error

    async def _start(self, launches: Sequence[ProcessLaunch], captures: AsyncExitStack) -> None:
        self._context.ports.release()
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
        """Wait for or stop the processes, and fill in ``exited``. Return the process that ``exited`` describes."""
        first_bad = await self._until_over()
        living = [process for process in self.running if not process.ending.done()]
        children_gone = first_bad is None and not living and await self._until_children_gone()
        if not living and not children_gone:
            first_bad = first_bad or self._failed_helper  # the children needed the helper that failed
        by_itself = first_bad is not None or children_gone
        exited.stopped = not by_itself
        killed = by_itself and await asyncio.to_thread(self._memory.killed_recently)
        if self._stop_request.stacks and not by_itself:
            self._send_stacks(await write_stacks(self.running, self._context))
        if first_bad and living:
            await asyncio.to_thread(self._context.output.note, f"{first_bad.name} has failed: stopping the others")
        grace = self._context.container.job.timeouts.grace if living else LEFTOVER_GRACE
        latest = time.monotonic() + grace if by_itself else float("inf")
        left = await processes.stop_all(os.getpid(), self.pids, lambda: min(latest, self._stop_request.kill_at()))
        await asyncio.wait({process.ending for process in self._every}, timeout=processes.KILL_TIMEOUT)
        await asyncio.gather(*map(UserProcess.drain, self._every))
        reported = first_bad or self.running[0]
        exited.process = first_bad.name if first_bad else ""
        if reported.ending.done():
            code = reported.ending.result()
            exited.exit_code = max(code, 0)
            exited.signal = contract.killing_signal(code) or max(-code, 0)
            exited.out_of_memory = killed and exited.signal == signal.SIGKILL
        else:
            exited.signal = signal.SIGKILL
        if left:
            log.error("cannot kill %d processes that the user processes %s had started", left, self.pids)
            exited.error = f"{left} of its processes could not be killed"
        return reported

    async def _until_over(self) -> Optional[UserProcess]:
        """Wait until all processes have ended, one or a helper fails, or a stop is requested. Return the failed one."""
        stopping = asyncio.ensure_future(self._stop_request.wait())
        try:
            while True:
                living = {process.ending for process in self.running if not process.ending.done()}
                first_bad = next((process for process in self.running if process.failed), None)
                if living or first_bad:  # if a helper has also failed, the helper is the cause
                    first_bad = self._failed_helper or first_bad
                if first_bad or not living or stopping.done():
                    return first_bad
                helping = {helper.ending for helper in self._helpers if not helper.ending.done()}
                await asyncio.wait({*living, *helping, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()

    async def _until_children_gone(self) -> bool:
        """Wait for the children of commands that ended with exit code 0. Return False if the wait must stop.

        Without ``wait_for_children``, wait only briefly. Then warn that the remaining children will be stopped.
        """
        root, waits = os.getpid(), self._context.container.spec.wait_for_children
        latest = float("inf") if waits else time.monotonic() + _CHILDREN_SECONDS
        helpers = [helper.pid for helper in self._helpers]  # stopped only after all other processes have ended

        def deadline() -> float:
            return min(latest, self._stop_request.asked_at, 0.0 if self._failed_helper and waits else latest)

        if not await processes.wait_until_gone(root, self.pids, deadline, helpers):
            return True
        if waits:
            return False
        left = await asyncio.to_thread(processes.descendants, root, helpers)
        commands = [processes.command_of(pid) for pid, process in sorted(left.items()) if not process.zombie]
        names = [_masked(each, self._context) for each in commands]
        what = "process that it had started is" if len(names) == 1 else "processes that it had started are"
        self._warn(
            f"the command has ended with exit code 0, so {len(names)} {what} stopped: {some(names, _NAMED)}. If they "
            "are part of the training, have the command wait for them, or set wait_for_children to true"
        )
        return True

    def _reacquire_ports(self) -> None:
        try:
            self._context.ports.reacquire()
        except PortError as error:
            log.warning("%s", error)
