"""The stacks of a user process that is about to be stopped, written into its log: what it is doing.

Python processes write the stacks of all their threads themselves, on the signal that sdk/sitecustomize.py has
prepared them for. Of others there is one line: what they are and what they wait for in the kernel.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from pathlib import Path

from tony_provider.runtime.executor import processes
from tony_provider.runtime.executor.output import Output

log = logging.getLogger(__name__)

SIGNAL = signal.SIGUSR2
_INTERPRETERS = ("python", "pypy")  # how the names of their programs begin
_TIMEOUT = 3.0  # seconds for the stacks to be written
_QUIET = 0.3  # seconds without output, after which they have been
_POLL = 0.1
_LONGEST_COMMAND = 200  # characters


async def write(root: int, output: Output) -> None:
    """Have every process below ``root`` write what it is doing.

    Returns once the answers are in the log, or after ``_TIMEOUT`` seconds.
    """
    asked = await asyncio.to_thread(_ask_all, root, output)
    if asked:
        await _settle(output)


def _ask_all(root: int, output: Output) -> int:
    asked = 0
    for process in processes.descendants(root).values():
        if process.zombie:
            continue
        line = f"process {process.pid}, {_waits(process.pid)}: {_command(process.pid)}"
        output.note_error(line)
        if _answers(process.pid):
            try:
                os.kill(process.pid, SIGNAL)
            except ProcessLookupError:
                continue
            asked += 1
    return asked


async def _settle(output: Output) -> None:
    until = time.monotonic() + _TIMEOUT
    before, changed_at = output.errors_written, float("inf")
    while (now := time.monotonic()) < until and now < changed_at + _QUIET:
        await asyncio.sleep(_POLL)
        if output.errors_written != before:
            before, changed_at = output.errors_written, time.monotonic()


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
