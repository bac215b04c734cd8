"""The processes below this one, as /proc shows them: who they are, what they use, and how to stop them all.

The executor is a child subreaper, so that whatever its user process starts, however often it forks, is below the
executor and nowhere else. What the executor starts for itself it claims: that is not counted, nor stopped.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Optional

import attrs

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
_COMMAND = 80  # characters of a command line
_STOP_POLL = 0.05  # seconds between looks at processes that are ending: nothing tells of a grandchild's end
KILL_TIMEOUT = 10.0  # seconds for the kernel to end what got SIGKILL; a process stuck in a device may take for ever

Table = dict[int, "Process"]

_claimed: set[int] = set()  # process numbers


@attrs.frozen
class Process:
    """A process as /proc has shown it."""

    pid: int
    parent: int
    zombie: bool
    started: int  # ticks since boot; with the pid it names one process for good
    cpu_ticks: int
    rss_bytes: int


@attrs.frozen
class Usage:
    """The memory and processor time that a set of processes uses."""

    rss_bytes: int  # summed over the processes: pages that they share count once for each
    cpu_percent: float  # 100 is one core, over the time since the last look


def become_subreaper() -> None:
    """Make this process adopt the orphans below it. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl(PR_SET_CHILD_SUBREAPER): {os.strerror(number)}")


def claim(pid: int) -> None:
    """Have a child left out of ``descendants`` from now on: it is this process's own, which also waits for it."""
    _claimed.add(pid)


def disclaim(pid: int) -> None:
    """Forget a claim: the child has been waited for."""
    _claimed.discard(pid)


def descendants(root: int, without: Collection[int] = ()) -> Table:
    """Every process below ``root``, but what is claimed. Blocks for as long as it takes to read /proc.

    ``without``: processes to leave out, with all of their descendants.
    """
    return below(root, {pid: each for pid, each in _everyone().items() if pid not in {*_claimed, *without}})


def container() -> Table:
    """Return the processes of this container: this process, the executor, and all its descendants. Blocks."""
    everyone, own = _everyone(), os.getpid()
    return {own: everyone[own], **below(own, everyone)}


def _everyone() -> Table:
    return {each.pid: each for each in map(_read, _pids()) if each is not None}


def below(root: int, everyone: Table) -> Table:
    """Those of ``everyone`` that are below ``root``."""
    children: dict[int, list[int]] = {}
    for process in everyone.values():
        children.setdefault(process.parent, []).append(process.pid)
    found: Table = {}
    pending = list(children.get(root, ()))
    while pending:
        pid = pending.pop()
        if pid not in found:
            found[pid] = everyone[pid]
            pending.extend(children.get(pid, ()))
    return found


def open_sockets(pid: int) -> set[str]:
    """Return the inodes of a process's open sockets; empty if it has ended or belongs to another user. Blocks."""
    directory = f"/proc/{pid}/fd"
    try:
        names = os.listdir(directory)  # noqa: PTH208 - names are all that is wanted
    except OSError:
        return set()
    return {inode for name in names if (inode := _socket_inode(f"{directory}/{name}"))}


def hold_sockets(table: Table, inodes: set[str]) -> bool:
    """Return whether the processes of ``table`` together have all these sockets open. Blocks."""
    left = set(inodes)
    for pid, process in table.items():
        found = left & open_sockets(pid)
        # The PID may already belong to a later process, which is not in the table.
        if found and (now := _read(pid)) is not None and now.started == process.started:
            left -= found
        if not left:
            return True
    return False


def command_of(pid: int) -> str:
    """Return the first words of a process's command line; empty if it has ended. Blocks."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return ""
    return words[:_COMMAND]


def _socket_inode(path: str) -> str:
    try:
        target = os.readlink(path)  # noqa: PTH115 - the link has no target file
    except OSError:
        return ""  # the socket was closed meanwhile
    return target[len("socket:[") : -1] if target.startswith("socket:[") else ""


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - names are all that is wanted


def _read(pid: int) -> Optional[Process]:
    """None when it is gone. Fields as in proc_pid_stat(5); the second, the name, may hold anything."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    fields = text.rpartition(")")[2].split()
    return Process(
        pid=pid,
        parent=int(fields[1]),
        zombie=fields[0] in ("Z", "X"),
        started=int(fields[19]),
        cpu_ticks=int(fields[11]) + int(fields[12]),
        rss_bytes=int(fields[21]) * _PAGE,
    )


@attrs.define
class UsageMeter:
    """Memory and processor time of a set of processes that changes between looks."""

    _before: Table = attrs.field(factory=dict)
    _at: Optional[float] = None

    def measure(self, table: Table, now: float) -> Usage:
        """What these processes use. ``now`` in seconds of any steady clock."""
        percent = 0.0
        if self._at is not None and now > self._at:
            ticks = sum(process.cpu_ticks - self._spent_before(process) for process in table.values())
            percent = 100.0 * ticks / _TICKS / (now - self._at)
        self._before, self._at = table, now
        return Usage(sum(process.rss_bytes for process in table.values()), percent)

    def _spent_before(self, process: Process) -> int:
        before = self._before.get(process.pid)
        return before.cpu_ticks if before is not None and before.started == process.started else 0


def reap_orphans(table: Table, parent: int, keep: Collection[int]) -> None:
    """Collect adopted children that ended. ``keep`` are the children that somebody else waits for."""
    for process in table.values():
        if process.zombie and process.parent == parent and process.pid not in keep:
            try:
                os.waitpid(process.pid, os.WNOHANG)
            except ChildProcessError:
                continue  # collected meanwhile


def send(number: int, table: Table) -> bool:
    """Send a signal to every process of the table; returns whether there was any."""
    living = [process for process in table.values() if not process.zombie]
    for process in living:
        try:
            os.kill(process.pid, number)
        except (ProcessLookupError, PermissionError):
            continue  # ended meanwhile, or a set-user-id program, which is not ours to stop and shows as left over
    return bool(living)


async def stop_all(root: int, keep: Collection[int], deadline: Callable[[], float]) -> int:
    """End everything below ``root``: SIGTERM, SIGKILL at the deadline. Returns how many withstood even that.

    ``deadline`` in seconds of ``time.monotonic``; it is asked again and again, and may come to be earlier. ``keep``
    are the children that somebody else waits for.
    """
    if send(signal.SIGTERM, await _look(root, keep)) and await _wait_gone(root, keep, deadline, None):
        return await kill_all(root, keep, KILL_TIMEOUT)
    return 0


async def kill_all(root: int, keep: Collection[int], seconds: float) -> int:
    """Kill everything below ``root`` (SIGKILL); returns how many were still there after so many seconds."""
    until = time.monotonic() + seconds
    return await _wait_gone(root, keep, lambda: until, signal.SIGKILL)


async def wait_until_gone(
    root: int, keep: Collection[int], deadline: Callable[[], float], without: Collection[int]
) -> int:
    """Wait until nothing is left below ``root``, as ``stop_all`` does. Returns how many are left at the deadline.

    ``without``: processes to leave out, with all of their descendants.
    """
    return await _wait_gone(root, keep, deadline, None, without)


async def _wait_gone(
    root: int,
    keep: Collection[int],
    deadline: Callable[[], float],
    number: Optional[int],
    without: Collection[int] = (),
) -> int:
    while True:
        table = await _look(root, keep, without)
        left = sum(not process.zombie for process in table.values())
        if left and number is not None:
            send(number, table)  # again and again: it may be forking
        if not left or time.monotonic() >= deadline():
            return left
        await asyncio.sleep(_STOP_POLL)


async def _look(root: int, keep: Collection[int], without: Collection[int] = ()) -> Table:
    table = await asyncio.to_thread(descendants, root, without)
    reap_orphans(table, root, keep)
    return table
