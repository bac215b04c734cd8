"""Whose processes listen on a port."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tony_provider.runtime.common.network import _listening_sockets, peer_users

NOBODY = 65534
LISTEN = f"""
import os, socket
os.setuid({NOBODY})
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
input()
"""


def listening_users(port: int, host: str = "127.0.0.1", proc: Path = Path("/proc")) -> set[int]:
    return {each.user for each in _listening_sockets(port, host, proc)}


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_our_own_server(family: socket.AddressFamily) -> None:
    with socket.create_server(("", 0), family=family, dualstack_ipv6=family is socket.AF_INET6) as server:
        port = server.getsockname()[1]
        assert listening_users(port) == {os.getuid()}
    assert listening_users(port) == set()


def test_another_address_is_another_place() -> None:
    """Seen: who listened on 127.0.0.2 kept TensorBoard and the local master, on 127.0.0.1, from being asked."""
    with socket.socket() as kept_free:
        kept_free.bind(("127.0.0.1", 0))  # a test beside this one may listen on a port of the same number there
        port = kept_free.getsockname()[1]
        with socket.create_server(("127.0.0.2", port)):
            assert listening_users(port) == set()
            assert listening_users(port, "127.0.0.2") == {os.getuid()}


def test_a_socket_that_is_bound_and_does_not_listen() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert listening_users(bound.getsockname()[1]) == set()


def test_without_ipv6(tmp_path: Path) -> None:
    assert listening_users(1, proc=tmp_path) == set()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_a_neighbours_server() -> None:
    with subprocess.Popen(
        [sys.executable, "-I", "-c", LISTEN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as neighbour:
        assert neighbour.stdin is not None
        assert neighbour.stdout is not None
        assert listening_users(int(neighbour.stdout.readline())) == {NOBODY}
        neighbour.stdin.close()


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_who_has_the_other_end(family: socket.AddressFamily) -> None:
    with socket.create_server(("", 0), family=family, dualstack_ipv6=family is socket.AF_INET6) as server:
        with socket.create_connection(("127.0.0.1", server.getsockname()[1])) as connection:
            assert peer_users(connection) == {os.getuid()}, "nobody has accepted it yet"
            accepted, _ = server.accept()
            with accepted:
                assert peer_users(connection) == {os.getuid()}
        assert peer_users(connection) == set()


TOGGLES = f"""
import os, socket
os.setuid({NOBODY})
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
accepted, _ = server.accept() if input() == "accept" else (None, None)
print(flush=True)
input()
if accepted:
    server.close()
    print(flush=True)
    print(accepted.recv(100), flush=True)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize("accepts", [True, False])
def test_a_neighbour_who_was_there_when_it_was_connected_and_is_away_when_it_is_looked(accepts: bool) -> None:
    """Seen: asked before or after the connection, the kernel had named the user who listened then, at the ninth try."""
    with subprocess.Popen(
        [sys.executable, "-I", "-c", TOGGLES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as neighbour:
        assert neighbour.stdin is not None
        assert neighbour.stdout is not None

        def say(line: str) -> None:
            assert neighbour.stdin is not None
            print(line, file=neighbour.stdin, flush=True)

        port = int(neighbour.stdout.readline())
        with socket.create_connection(("127.0.0.1", port)) as connection:
            say("accept" if accepts else "leave it")
            neighbour.stdout.readline()
            assert peer_users(connection) == {NOBODY}
            say("")
            if not accepts:  # who goes takes what was not accepted along
                neighbour.wait()
                assert peer_users(connection) == set()
                return
            neighbour.stdout.readline()
            with socket.create_server(("127.0.0.1", port)):
                assert listening_users(port) == {os.getuid()}
                assert peer_users(connection) == {NOBODY}
        assert neighbour.stdout.readline() == "b''\n"
