"""A program that reads files of checkpoints for another process, within limits: see ``readers``.

A request is a line, ``{"reader": "torch", "path": "/…", "seconds": 30}``. The answer is a line with ``value``, with
``unreadable`` and the reason, or with ``errno``. ``seconds`` limits the processor time; the system ends a program that
needs more. Standard input is a socket. The program ends when the socket is closed or idle for a while.
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

MEMORY = 1 << 30  # bytes of addresses
_IDLE = 15.0  # seconds; while a program writes, requests come more often
_MOST_ANSWER = 16 << 20  # bytes


def main() -> None:
    """Serve requests from standard input until it ends."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # sent at the end of a container, but the client decides when to stop
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
    except OSError:  # the client sent nothing for long, or has ended
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
