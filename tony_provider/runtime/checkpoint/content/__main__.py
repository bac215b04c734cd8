"""Helper process that reads checkpoint files for another process, with limits on memory and time.

Standard input is a socket for requests and answers, each a line of JSON. A request names one of ``readers.READERS``:
``{"reader": "torch", "path": "/…", "seconds": 30}``. The answer has ``value``, or ``unreadable`` with the reason, or
``errno`` and ``strerror``. If a request needs more than ``seconds`` of processor time, the kernel kills the helper
process. The helper process also ends if the client closes the socket, or sends no request for a while.
"""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path
from typing import Any, BinaryIO

from tony_provider.runtime.checkpoint.content.readers import read_here
from tony_provider.runtime.checkpoint.content.zips import Unreadable
from tony_provider.runtime.common import helper_processes

MEMORY = 1 << 30  # limit of the address space in bytes
_IDLE = 15.0  # seconds without a request after which the process ends
_MOST_ANSWER = 16 << 20  # size limit of an answer in bytes


def main() -> None:
    """Serve requests from standard input until it is closed or idle."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the client may still need this process when a container ends
    helper_processes.limit_memory(MEMORY)
    with socket.socket(fileno=0) as asking:
        serve(asking)


def serve(asking: socket.socket) -> None:
    """Answer each request, one after the other."""
    asking.settimeout(_IDLE)
    requests = asking.makefile("rb")
    while line := _next(requests):
        request = json.loads(line)
        helper_processes.limit_time(request["seconds"])
        asking.settimeout(None)  # the client may read a long answer slowly
        asking.sendall(_answer(request["reader"], request["path"]) + b"\n")
        asking.settimeout(_IDLE)


def _next(requests: BinaryIO) -> bytes:
    try:
        return requests.readline()
    except OSError:  # no request for a while, or the client has ended
        return b""


def _answer(reader: str, path: str) -> bytes:
    answer: dict[str, Any]
    try:
        answer = {"value": read_here(reader, Path(path))}
    except Unreadable as error:
        answer = {"unreadable": str(error)[:1000]}
    except OSError as error:
        answer = {"errno": error.errno, "strerror": error.strerror or type(error).__name__}
    try:
        encoded = json.dumps(answer, separators=(",", ":")).encode()
        if len(encoded) <= _MOST_ANSWER:
            return encoded
    except MemoryError:
        encoded = b""
    return json.dumps({"unreadable": "its content is too large"}).encode()


if __name__ == "__main__":
    main()
