"""Locks on the GPUs of a node: names of abstract Unix sockets (unix(7)), which the kernel binds only once at a time.

A name is free again when the last process that has its socket open has ended, also after SIGKILL. All users of the node
share the names, so any local user can listen at any name. A user's own lock is therefore proven by the user's processes
that have its socket open. The lock of another user cannot be proven, and the caller may ignore it.

Lock files would need a directory that all users can write, and its owner could remove a lock that is held.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Optional

import attrs

from tony_provider.runtime.executor import processes

_LENGTH = 107  # bytes of an abstract name, struct sockaddr_un
_FILLER = b"/"
_LISTENING = 0x10000  # __SO_ACCEPTCON, of linux/net.h
# A line of /proc/net/unix, as the kernel writes it: address, references, protocol, flags, type, state, inode, name.
# Names may contain line breaks. The names of locks are padded to the maximum length. So a line within another socket's
# name is always too short to look like the line of a lock.
_LINE = re.compile(
    rb"[0-9a-f]{8,16}: [0-9A-F]{8} [0-9A-F]{8} ([0-9A-F]{8}) [0-9A-F]{4} [0-9A-F]{2} +(\d+) "
    rb"@(tony-gpu/(\d+)/[0-9a-f]*/(.*))"
)


@attrs.frozen
class _Lock:
    """A lock that a process holds."""

    inode: str
    user: int  # number of the user, as the lock's name claims


def take(device: str, *, heed_others: bool = True) -> Optional[socket.socket]:
    """Take the lock on a device. The lock is held until the returned socket and all its copies are closed.

    Return None if another container of this user has the lock, or if ``heed_others`` and another user seems to have it.
    Raises OSError.
    """
    # The second name is needed if another user listens at the first name.
    for name in (_name(device), _name(device, secrets.token_hex(4))):
        if _is_taken(device, heed_others):
            return None
        if (held := _listen(name)) is None:
            continue
        # Two containers that take the lock at the same time see each other only after both listen.
        if _is_taken(device, heed_others, but=str(os.fstat(held.fileno()).st_ino)):
            held.close()
            return None
        return held
    return None


def holders(device: str) -> list[str]:
    """Return the holders of a device's lock, for messages: this user's processes as ``1234 (python)``, or other users.

    Blocks.
    """
    locks = list(_locks(device))
    own = _own_processes({each.inode for each in locks})
    found = [f"{pid} ({name})" for pid in sorted(own) if (name := _process_name(pid)) is not None]
    return found or sorted({f"user {each.user}" for each in locks})


def _is_taken(device: str, heed_others: bool, but: str = "") -> bool:
    inodes = {each.inode for each in _locks(device)} - {but}
    return bool(inodes) and (heed_others or bool(_own_processes(inodes)))


def _name(device: str, more: str = "") -> bytes:
    name = f"tony-gpu/{os.getuid()}/{more}/{device}".encode()
    if len(name) > _LENGTH:
        raise OSError(errno.ENAMETOOLONG, f"the name of GPU {device} is too long for a lock")
    return b"\0" + name.ljust(_LENGTH, _FILLER)


def _listen(name: bytes) -> Optional[socket.socket]:
    """Listen at this name. Return None if a process already listens there."""
    held = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        held.bind(name)
        held.listen(0)
    except OSError as error:
        held.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise
    return held


def _locks(device: str) -> Iterator[_Lock]:
    for line in Path("/proc/net/unix").read_bytes().split(b"\n"):
        match = _LINE.fullmatch(line)
        if match is None or len(match[3]) != _LENGTH or not int(match[1], 16) & _LISTENING:
            continue
        if match[5].rstrip(_FILLER) == device.encode():
            yield _Lock(match[2].decode(), int(match[4]))


def _own_processes(inodes: set[str]) -> list[int]:
    """Return the PIDs of this user's processes that have one of these sockets open."""
    if not inodes:
        return []
    found = []
    for process in os.listdir("/proc"):  # noqa: PTH208 - names are all that is wanted
        if process.isdigit() and _is_own(process) and inodes & processes.open_sockets(int(process)):
            found.append(int(process))
    return found


def _is_own(process: str) -> bool:
    """Return whether a process is this user's. The check is needed because root can read all users' processes."""
    try:
        return Path("/proc", process).stat().st_uid == os.getuid()
    except OSError:
        return False  # the process has ended


def _process_name(pid: int) -> Optional[str]:
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return None
