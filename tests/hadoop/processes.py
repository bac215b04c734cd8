"""Processes that outlive the Python that started them: known by pid and start time, so that no other is ever hurt."""

from __future__ import annotations

import errno
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# A child must be reaped by us once it has ended; those of an earlier Python are init's.
_children: dict[int, subprocess.Popen[bytes]] = {}


@dataclass(frozen=True)
class Process:
    """One process: a pid alone may be another's by now, with its start time (clock ticks since boot) it cannot."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> Process | None:
        """The process that has this pid now; None when there is none, or only a dead one not yet reaped."""
        child = _children.get(pid)
        if child is not None and child.poll() is not None:
            del _children[pid]
        try:
            state, started = _state_and_start(pid)
        except (FileNotFoundError, ProcessLookupError):
            return None
        return None if state in "ZX" else cls(pid, started)

    def alive(self) -> bool:
        return Process.of(self.pid) == self

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        handle = self._handle()
        if handle is None:
            return
        try:
            # Looked at after the handle is open: from here on it can only mean this very process.
            if self.alive():
                signal.pidfd_send_signal(handle, number)
        except ProcessLookupError:
            return
        finally:
            os.close(handle)

    def wait_gone(self, deadline: float) -> bool:
        """Wait until it has ended, at most to `deadline` (of time.monotonic); whether it has."""
        handle = self._handle()
        if handle is None:
            return True
        try:
            if self.alive():
                select.select([handle], [], [], max(0.0, deadline - time.monotonic()))
        finally:
            os.close(handle)
        return not self.alive()

    def _handle(self) -> int | None:
        """A handle of the process that has this pid. None if no process has it, but perhaps a thread."""
        try:
            return os.pidfd_open(self.pid)
        except OSError as error:
            if error.errno not in (errno.ESRCH, errno.ENOENT, errno.EINVAL):  # a thread: EINVAL, ENOENT since Linux 6.9
                raise
            return None

    def resident_bytes(self) -> int:
        """Memory in RAM, 0 once it has ended."""
        try:
            pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        except (FileNotFoundError, ProcessLookupError):
            return 0
        return pages * os.sysconf("SC_PAGE_SIZE")


def spawn(command: Sequence[str], *, log: Path, cwd: Path, env: Mapping[str, str], user: str | None = None) -> Process:
    """Start a process in a session of its own, its output appended to `log`; as another `user`, by root only."""
    with log.open("ab") as output:
        child = subprocess.Popen(
            command,
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            user=user,
        )
    _children[child.pid] = child
    # It cannot be recycled before we reap it, so its stat is there even if it ended at once.
    return Process(child.pid, _state_and_start(child.pid)[1])


def stop(processes: Iterable[Process], grace: float) -> None:
    """SIGTERM to all, and SIGKILL to those that are still there after `grace` seconds."""
    waiting = list(processes)
    for process in waiting:
        process.signal(signal.SIGTERM)
    deadline = time.monotonic() + grace
    waiting = [process for process in waiting if not process.wait_gone(deadline)]
    for process in waiting:
        process.signal(signal.SIGKILL)
    deadline = time.monotonic() + 10
    for process in waiting:
        if not process.wait_gone(deadline):
            raise TimeoutError(f"process {process.pid} did not end within 10 s of SIGKILL")


def _state_and_start(pid: int) -> tuple[str, int]:
    """Fields 3 and 22."""
    fields = _stat(pid)
    return fields[0], int(fields[19])


def _stat(pid: int) -> list[str]:
    """Fields of proc_pid_stat(5) from the third on; the second, the name, may hold anything."""
    return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()


def pids() -> list[int]:
    """Of every process of this machine, zombies included."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def parent_of(pid: int) -> int | None:
    """None when the process has ended, reaped or not."""
    try:
        fields = _stat(pid)
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[1])


def with_environment(needle: bytes) -> Iterator[Process]:
    """Every live process whose initial environment holds `needle`."""
    for pid in pids():
        try:
            found = needle in Path(f"/proc/{pid}/environ").read_bytes()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if found and (process := Process.of(pid)) is not None:
            yield process
