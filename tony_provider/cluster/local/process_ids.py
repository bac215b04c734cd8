"""Processes that may outlive us, told apart from later ones with the same number. Linux: /proc."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import attrs

_POLL = 0.05  # seconds; these processes are not our children, so that there is nothing to wait on


@attrs.frozen
class ProcessId:
    """A process for good, by its number and its start time (clock ticks since boot): numbers are used again."""

    pid: int
    start: int

    @classmethod
    def of_stat(cls, stat: str) -> ProcessId:
        """The process that the text of ``/proc/<pid>/stat`` describes. Raises ValueError."""
        # The second field is the program's name in brackets, and may hold anything, brackets and blanks included.
        head, _, tail = stat.rpartition(")")
        fields = tail.split()
        try:
            return cls(int(head.split(" ", 1)[0]), int(fields[19]))  # starttime, field 22
        except (ValueError, IndexError) as error:
            raise ValueError(f"not a process's stat: {stat[:100]!r}") from error

    @classmethod
    def of_running(cls, pid: int) -> ProcessId | None:
        """The process that has this number now; None when there is none, or only its zombie."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return None
        if stat.rpartition(")")[2].split()[0] in ("Z", "X"):
            return None
        return cls.of_stat(stat)

    @property
    def alive(self) -> bool:
        return self.of_running(self.pid) == self

    def signal(self, number: signal.Signals) -> None:
        """Send the process a signal. Nothing happens when it is gone."""
        if self.alive:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return

    def wait_gone(self, seconds: float) -> bool:
        """Wait for the process to be gone, up to ``seconds``; returns whether it is."""
        return wait_all_gone([self], seconds)


def wait_all_gone(processes: list[ProcessId], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while any(process.alive for process in processes):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL)
    return True


def processes_of(leaders: list[ProcessId], marks: set[bytes]) -> list[ProcessId]:
    """Running processes in the groups of ``leaders``, or that have one of ``marks`` (NAME=value) in their environment.

    A group is taken for its leader's only while that leader itself is there: afterwards the number may be another's.
    Only this user's processes are looked at.
    """
    groups = {leader.pid for leader in leaders if leader.alive}
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            belongs = os.getpgid(int(entry.name)) in groups or not marks.isdisjoint(
                (entry / "environ").read_bytes().split(b"\0")
            )
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if belongs and (process := ProcessId.of_running(int(entry.name))) is not None:
            found.append(process)
    return found


def kill_all(find: Callable[[], list[ProcessId]], seconds: float = 10.0) -> bool:
    """Kill everything that ``find`` finds (SIGKILL), until it finds nothing; whether that was so within ``seconds``."""
    deadline = time.monotonic() + seconds
    while left := find():
        for process in left:
            process.signal(signal.SIGKILL)
        if not wait_all_gone(left, max(0.0, deadline - time.monotonic())):
            return False
    return True
