"""The packet filter of the rows that cut an executor off."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.faults.sockets import cut_off
from tests.hadoop.processes import Process

SERVER = """
import socket
with socket.create_server(("127.0.0.1", 0)) as listening:
    print(listening.getsockname()[1], flush=True)
    connection = listening.accept()[0]
    while data := connection.recv(100):
        connection.sendall(data)
"""
CLIENT = """
import socket, sys
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
print("connected", flush=True)
for line in sys.stdin:
    connection.sendall(b"x")
    connection.settimeout(float(line))
    try:
        print(connection.recv(100).decode(), flush=True)
    except TimeoutError:
        print("nothing", flush=True)
"""


@contextmanager
def python(code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", code, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def say(process: subprocess.Popen[str], line: str = "") -> str:
    """What a process answers to a line."""
    assert process.stdin is not None
    assert process.stdout is not None
    if line:
        process.stdin.write(line + "\n")
        process.stdin.flush()
    return process.stdout.readline().strip()


def test_no_packet_passes_until_the_end() -> None:
    with python(SERVER) as server:
        port = say(server)
        with python(CLIENT, port) as client:
            assert say(client) == "connected"
            assert say(client, "20") == "x"
            one, other = Process.of(client.pid), Process.of(server.pid)
            assert one is not None
            assert other is not None
            with cut_off(one, other):
                assert say(client, "1") == "nothing"
                with pytest.raises(TimeoutError):
                    socket.create_connection(("127.0.0.1", int(port)), timeout=1)
            assert say(client, "20").startswith("x")
