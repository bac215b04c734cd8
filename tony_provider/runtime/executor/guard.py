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

import logging
import os
import pkgutil
import socket
import sys
from collections.abc import Sequence
from typing import NoReturn, Optional

log = logging.getLogger(__name__)

_LOCKS = 3  # its descriptor of the socket; 0 is the pipe that tells of the executor's end


def post(mark: str) -> Optional[socket.socket]:
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


def keep_open(guard: Optional[socket.socket], descriptors: Sequence[int]) -> None:
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
