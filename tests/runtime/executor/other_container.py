"""A server of another container of the same user: of a process that is not below the one that starts it."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

PORTS = range(20000, 32000)  # the port_range of a job that gives none
_SERVE = """
import os, socket, sys, threading
if os.fork():
    os._exit(0)
server = socket.create_server((sys.argv[2], int(sys.argv[1])))
print("listens", flush=True)
taken = []
def serve():
    while True:
        taken.append(server.accept()[0])
        taken[-1].sendall(b"the other container's")
threading.Thread(target=serve, daemon=True).start()
sys.stdin.read()
os._exit(0)
"""


@contextmanager
def other_container(host: str = "127.0.0.1") -> Iterator[int]:
    """The port of such a server on an address of the loopback, which greets each connection."""
    for port in random.sample(PORTS, 100):
        with subprocess.Popen(
            [sys.executable, "-I", "-c", _SERVE, str(port), host],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as process:
            assert process.stdin
            assert process.stdout
            if process.stdout.readline():
                yield port
                process.stdin.close()
                return
    raise AssertionError("no port is free")
