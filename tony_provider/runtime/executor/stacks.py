"""The stacks of user processes that are about to be stopped: in the log, and for a comparison with other tasks.

Python processes write the stacks of all their threads themselves, on the signal that sdk/sitecustomize.py has
prepared them for. Of others there is one line: what they are and what they wait for in the kernel.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from tony_provider.runtime.executor import processes
from tony_provider.runtime.executor.executor_context import ExecutorContext
from tony_provider.runtime.executor.output import CappedFile, Output
from tony_provider.runtime.executor.user_process import UserProcess
from tony_provider.runtime.protocol import limits, tony_pb2
from tony_provider.runtime.text import masked

log = logging.getLogger(__name__)

SIGNAL = signal.SIGUSR2
_INTERPRETERS = ("python", "pypy")  # how the names of their programs begin
_TIMEOUT = 3.0  # seconds for the stacks of all processes to be written
_SILENT = 1.0  # seconds for one process to begin, which may have sent its stderr elsewhere
_QUIET = 0.15  # seconds without output, after which a process has written its stacks
_POLL = 0.05
_LONGEST_COMMAND = 200  # characters
_LARGEST = 256 << 10  # bytes of one process's stacks that are searched, from the end
# Python marks the thread that handles the signal: the main thread, unless it blocks the signal.
_CURRENT = re.compile(r"^Current thread .*:\n((?:  .*\n)+)", re.MULTILINE)


async def write(running: Sequence[UserProcess], context: ExecutorContext) -> list[tony_pb2.ProcessStack]:
    """Have every process of this container write into the log what it does.

    Return where the Python processes among the user processes and below them hang, in the order in which they began.
    Processes write one after the other, as long as ``_TIMEOUT`` lasts.

    :param running: the user processes by local rank.
    """
    output, until = context.output, time.monotonic() + _TIMEOUT
    table = await asyncio.to_thread(processes.descendants, os.getpid())
    rank_of = {pid: rank for rank, each in enumerate(running) for pid in (each.pid, *processes.below(each.pid, table))}
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
    """Request the stacks of a process. Return False if it would not write them."""
    if not _answers(pid):
        return False
    try:
        os.kill(pid, SIGNAL)
    except ProcessLookupError:
        return False
    return True


async def _settle(stderr: CappedFile, before: int, until: float) -> bool:
    """Wait until a process has written its stacks. Return False if the time is over before.

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
    """Return the frames of the thread that has handled the signal, with paths below the container's directory."""
    current = _CURRENT.search(written.decode("utf-8", "replace"))
    lines = current[1].splitlines()[: limits.MOST_FRAMES] if current else []
    directory = f"{context.workspace.container}/"
    return [_masked(line.strip().replace(directory, ""), context)[: limits.LONGEST_LABEL] for line in lines]


def _masked(text: str, context: ExecutorContext) -> str:
    return masked(text, context.container.user_secrets.values())


def _answers(pid: int) -> bool:
    """Whether it is a Python that handles the signal. Without a handler it would end it."""
    try:
        program = Path(f"/proc/{pid}/exe").readlink()
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return False
    if not program.name.startswith(_INTERPRETERS):
        return False
    caught = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> (SIGNAL - 1) & 1)


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return "(gone)"
    return b" ".join(words).decode("utf-8", "replace")[:_LONGEST_COMMAND].replace("\n", " ")


def _waits(pid: int) -> str:
    """``state S in do_wait``, as far as the kernel tells: proc_pid_stat(5), proc_pid_wchan(5)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
        channel = Path(f"/proc/{pid}/wchan").read_text().strip("0\n")
    except OSError:
        return "state unknown"
    return f"state {state} in {channel}" if channel else f"state {state}"
