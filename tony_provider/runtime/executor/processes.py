"""The guard: a process beside an executor, outside the container's process group, that ends what a dead one has left.

YARN's kill goes to the process group of the container, and a quarter of a second after SIGTERM it is SIGKILL: on a busy
node an executor may die before it has stopped those descendants that went into sessions of their own. They carry a mark
in their environment, by which they are found once the executor is gone, however it ended. The guard keeps
the locks that the executor has sent until then. So no other container gets the GPUs or the path of the checkpoint
directory before.

It is a shell, which waits in a tenth of the memory of a Python, and needs no file of the container's: those may be
removed by then.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import pkgutil
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn, Optional

import attrs

log = logging.getLogger(__name__)

_LOCKS = 3  # its descriptor of the socket; 0 is the pipe that tells of the executor's end


def start_guard(mark: str) -> Optional[socket.socket]:
    """Start the guard of this process, all of whose user processes have ``mark`` (NAME=value) in their environment.

    To be called before there are threads, and before this process is a child subreaper: the guard is not to be below
    it. Where none can be started, that is said on stderr, and there is none.

    Returns the executor's end of a socket between them: files that are sent through it stay open until the guard ends,
    which reads nothing. That it lives the guard sees by a pipe, of which this process never closes its end.
    """
    if os.getpid() == 1:
        return None  # the end of a container's first process ends all of it
    watched, own = socket.socketpair()  # close-on-exec, as the pipe is
    ended, _ = os.pipe()
    try:
        program = (pkgutil.get_data(__package__, "guard.sh") or b"").decode()
        child = os.fork()
    except OSError as error:
        sys.stderr.write(f"no guard could be started: {error}\n")
        return None
    if child == 0:
        _become(program, mark, ended, watched.fileno())
    watched.close()
    os.close(ended)
    os.waitpid(child, 0)
    return own


def hold_with_guard(guard: Optional[socket.socket], descriptors: Sequence[int]) -> None:
    """Have the guard, if there is one, keep files open until all processes of the container have ended."""
    if guard is None:
        return
    try:
        socket.send_fds(guard, [b"\0"], list(descriptors))
    except OSError as error:
        log.warning("no guard holds the locks until every process of this container is gone: %s", error)


def _become(program: str, mark: str, ended: int, watched: int) -> NoReturn:
    try:
        os.setsid()
        if os.fork() == 0:
            # Above all that they are to become: neither is to be overwritten by the other.
            ended, watched = (os.dup(each) for each in (ended, watched))
            os.dup2(ended, 0)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(watched, _LOCKS)
            os.chdir("/")
            # Without the container's environment: whoever looks for what a container has left finds neither the guard
            # nor the programs that it starts, which come and go.
            only = {"PATH": os.environ.get("PATH", "")}
            os.execve("/bin/sh", ["/bin/sh", "-c", program, "tony-guard", mark], only)  # noqa: S606 - it is the shell
    except OSError as error:
        os.write(2, f"no guard could be started: {error}\n".encode())
    finally:
        os._exit(0)


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


def container_processes() -> Table:
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


def signal_all(number: int, table: Table) -> bool:
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
    if signal_all(signal.SIGTERM, await _look(root, keep)) and await _wait_gone(root, keep, deadline, None):
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
            signal_all(number, table)  # again and again: it may be forking
        if not left or time.monotonic() >= deadline():
            return left
        await asyncio.sleep(_STOP_POLL)


async def _look(root: int, keep: Collection[int], without: Collection[int] = ()) -> Table:
    table = await asyncio.to_thread(descendants, root, without)
    reap_orphans(table, root, keep)
    return table


_ACCESS_MODE = 0o3  # of a file's flags in /proc/PID/fdinfo: 0 for files that are open for reading only
_SHARED = "s"
_DELETED = " (deleted)"  # after the path of a deleted file
_ABANDONED = 30.0  # seconds; by then, a process that was killed has stopped the others of its container


class Writers:
    """Follows which files of a directory are being written."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._before: dict[str, set[tuple[int, int]]] = {}  # PIDs and start times of the writers, by path
        self._abandoned: dict[str, float] = {}  # when the writers of a path were found to be gone

    def look(self, table: Mapping[int, Process], now: float) -> set[str]:
        """Return the paths that any of the processes can write into. Blocks shortly. ``now`` in monotonic seconds.

        A path whose writers have all ended since the last look is one of them for some seconds more: a process that was
        killed may have written only half of the file.
        """
        living = {pid: (pid, process.started) for pid, process in table.items() if not process.zombie}
        found = {path: {living[pid] for pid in pids} for path, pids in writers_of(self._directory, living).items()}
        present = set(living.values())
        for path, writers in self._before.items():
            if path not in found and not writers & present:
                self._abandoned[path] = now
        self._abandoned = {
            path: since for path, since in self._abandoned.items() if path not in found and now - since < _ABANDONED
        }
        self._before = found
        return {*found, *self._abandoned}


def writers_of(directory: Path, pids: Iterable[int]) -> dict[str, set[int]]:
    """Return the processes that can write into paths below the directory, by path.

    Processes that have ended, and those of other users, are skipped.
    """
    root = os.path.realpath(directory) + "/"
    found: dict[str, set[int]] = {}
    for pid in pids:
        for path in (*_open(pid, root), *_mapped(pid, root)):
            found.setdefault(path[len(root) :].removesuffix(_DELETED), set()).add(pid)
    return found


def _open(pid: int, root: str) -> Iterator[str]:
    try:
        names = os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208 - names are enough
    except OSError:
        return
    for name in names:
        try:
            path = os.readlink(f"/proc/{pid}/fd/{name}")  # noqa: PTH115 - many of them
            if path.startswith(root) and _is_for_writing(f"/proc/{pid}/fdinfo/{name}"):
                yield path
        except OSError:
            continue


def _is_for_writing(fdinfo: str) -> bool:
    with open(fdinfo) as file:  # noqa: PTH123 - many of them
        for line in file:
            if line.startswith("flags:"):
                return int(line.split()[1], 8) & _ACCESS_MODE != 0
    return False


def _mapped(pid: int, root: str) -> Iterator[str]:
    try:
        with open(f"/proc/{pid}/maps", errors="surrogateescape") as file:  # noqa: PTH123 - long
            for line in file:
                if root not in line:
                    continue
                _, permissions, _, _, _, path = line.rstrip("\n").split(None, 5)
                if "w" in permissions and permissions.endswith(_SHARED) and path.startswith(root):
                    yield path
    except (OSError, ValueError):
        return


_MOUNT = Path("/sys/fs/cgroup")


class OutOfMemoryWatch:
    """Tells whether the kernel has killed for want of memory lately.

    ``look`` regularly: what was killed before the last look but one was somebody else.
    """

    def __init__(self) -> None:
        self._source = next((path for path in _sources() if _kills(path) is not None), None)
        self._seen: deque[int] = deque([self._count()], maxlen=2)

    def look(self) -> None:
        """Read the counters. Blocks shortly."""
        self._seen.append(self._count())

    def killed_recently(self) -> bool:
        """Whether the kernel has killed since the last look but one. Blocks shortly."""
        return self._count() > self._seen[0]

    def _count(self) -> int:
        return (_kills(self._source) or 0) if self._source else 0


def _sources() -> Iterator[Path]:
    """Files with an ``oom_kill`` line, the most telling first."""
    for group in _own_groups():
        number, controllers, path = group.split(":", 2)
        if number == "0" and not controllers:
            yield _MOUNT / path.lstrip("/") / "memory.events"
            yield _MOUNT / "unified" / path.lstrip("/") / "memory.events"
        elif "memory" in controllers.split(","):
            yield _MOUNT / "memory" / path.lstrip("/") / "memory.oom_control"
    yield Path("/proc/vmstat")


def _own_groups() -> list[str]:
    try:
        return Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []  # a kernel without control groups


def _kills(path: Path) -> Optional[int]:
    try:
        text = path.read_text()
    except OSError:
        return None  # not this kernel's way of counting
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill" and value.strip().isdigit():
            return int(value)
    return None
