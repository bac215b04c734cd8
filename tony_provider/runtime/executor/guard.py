"""The guard: a process beside an executor, outside the container's process group, that ends what a dead one has left.

YARN's kill goes to the process group of the container, and a quarter of a second after SIGTERM it is SIGKILL: on a busy
node an executor may die before it has stopped those descendants that went into sessions of their own. They carry a mark
in their environment, by which they are found once the executor has closed its end of a socket, however it ended.
What the executor has sent through it stays open until then: the locks on its GPUs, which nobody is to get before.

Also a program, with the standard library alone: it takes some megabytes, and a moment to start.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Optional

_TIMEOUT = 10.0  # seconds for those that fork while they are being killed
_POLL = 0.02  # seconds between two looks: nothing tells of the end of somebody else's child
_LOOKS = 3  # in a row that find nobody: one that is just forking, or becoming another program, may escape one of them


def post(mark: str) -> Optional[socket.socket]:
    """Start the guard of this process, all of whose user processes have ``mark`` (NAME=value) in their environment.

    To be called before there are threads, and before this process is a child subreaper: the guard is not to be below
    it. Where none can be started, that is said on stderr, and there is none.

    Returns the executor's end of the socket between them, which is to stay open for as long as this process lives, and
    no longer. The guard reads nothing: files that are sent to it stay open until it ends.
    """
    if os.getpid() == 1:
        return None  # the end of a container's first process ends all of it
    watched, own = socket.socketpair()  # close-on-exec
    try:
        child = os.fork()
    except OSError as error:
        sys.stderr.write(f"no guard could be started: {error}\n")
        return None
    if child == 0:
        _become(watched.fileno(), mark)
    watched.close()
    os.waitpid(child, 0)
    return own


def _become(watched: int, mark: str) -> None:
    """Does not return."""
    try:
        os.setsid()
        if os.fork() == 0:
            os.dup2(watched, 0)
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, 1)
            os.chdir("/")
            program = str(Path(__file__).resolve())
            os.execv(sys.executable, [sys.executable, "-I", "-S", program, mark])  # noqa: S606 - no shell is wanted
    except OSError as error:
        os.write(2, f"no guard could be started: {error}\n".encode())
    finally:
        os._exit(0)


def _marked(mark: bytes) -> list[int]:
    """Living processes of this user that have it."""
    found = []
    for name in os.listdir("/proc"):  # noqa: PTH208 - names are all that is wanted
        if not name.isdigit():
            continue
        try:
            environ = Path("/proc", name, "environ").read_bytes()  # a zombie's is empty
        except OSError:
            continue  # gone, or somebody else's
        if mark in environ.split(b"\0"):
            found.append(int(name))
    return found


def _end_all(mark: bytes) -> set[int]:
    """The numbers of those that had to be killed."""
    until = time.monotonic() + _TIMEOUT
    killed: set[int] = set()
    empty = 0
    while empty < _LOOKS and time.monotonic() < until:
        left = _marked(mark)
        empty = 0 if left else empty + 1
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue  # gone, or not ours to kill
            killed.add(pid)
        time.sleep(_POLL)
    return killed


def main() -> None:
    """Run the guard; standard input is the socket."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    end = select.poll()
    end.register(0, 0)  # for the end of the executor alone: what it sends is left unread
    end.poll()
    if killed := _end_all(os.fsencode(sys.argv[1])):
        sys.stderr.write(f"these processes of the task outlived the executor, and were killed: {sorted(killed)}\n")


if __name__ == "__main__":
    main()
