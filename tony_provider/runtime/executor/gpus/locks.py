"""Locks on the GPUs of a node: names of abstract sockets (unix(7)), each of which the kernel gives to one at a time.

All users of the node share these names, and nobody can take one from its holder. A name is free
again when the last process that has its socket is gone, however that ended. Locks on files would need a directory that
all users write: whoever owns it could remove a lock that is held, and so could what tidies up temporary files.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Optional

_PREFIX = "tony-gpu/"
_LONGEST = 107  # bytes of such a name, struct sockaddr_un
_CREDENTIALS = struct.Struct("3i")  # struct ucred: process, user, group
_ASKERS = 8  # connections that nobody accepts


def take(device: str) -> Optional[socket.socket]:
    """Take the lock on a device; None when somebody has it. It is held until the socket, and each copy, is closed.

    Raises OSError.
    """
    held = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        held.bind(_address(device))
        held.listen(_ASKERS)  # so that others can ask who has it
    except OSError as error:
        held.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise
    return held


def holders(device: str) -> list[str]:
    """Who has the lock on a device, for people: each process as its number and name, ``1234 (python)``.

    The one that took it, if it is there still, and those with a copy of the lock, as far as they show: only to their
    own user. Blocks.
    """
    pids = {*_with_socket(_number_of(device)), *_taker(device)}
    return [f"{pid} ({name})" for pid in sorted(pids) if (name := _name(pid)) is not None]


def _address(device: str) -> bytes:
    return b"\0" + (_PREFIX + device).encode()[: _LONGEST - 1]


def _taker(device: str) -> Iterator[int]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.setblocking(False)
        try:
            asking.connect(_address(device))
            yield _CREDENTIALS.unpack(asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[0]
        except OSError:
            return  # it was let go meanwhile, or its holder does not say


def _number_of(device: str) -> Optional[str]:
    """The inode of the lock's socket. Fields of a line as in proc(5), the name last."""
    name = "@" + _address(device)[1:].decode(errors="replace")
    for line in Path("/proc/net/unix").read_text(errors="replace").splitlines():
        fields = line.split(maxsplit=7)
        if fields[7:] == [name]:
            return fields[6]
    return None


def _with_socket(number: Optional[str]) -> Iterator[int]:
    for process in os.listdir("/proc") if number else ():  # noqa: PTH208 - names are all that is wanted
        if process.isdigit() and f"socket:[{number}]" in _open_files(process):
            yield int(process)


def _open_files(process: str) -> Iterator[str]:
    directory = f"/proc/{process}/fd"
    try:
        for descriptor in os.listdir(directory):  # noqa: PTH208 - names are all that is wanted
            yield os.readlink(f"{directory}/{descriptor}")  # noqa: PTH115 - it leads nowhere
    except OSError:
        return  # gone, or another user's


def _name(pid: int) -> Optional[str]:
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return None
