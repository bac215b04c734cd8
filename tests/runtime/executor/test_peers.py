"""Whose process answers at a port of this node: one of this container, or of another container of the same user."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from tony_provider.runtime.executor.ports import ForeignListenerError, NoListenerError, expect_own

# Family and address of the server, and the address that the executor connects to.
PLACES = [
    ("AF_INET", "127.0.0.1", "127.0.0.1"),
    ("AF_INET", "0.0.0.0", "127.0.0.1"),
    ("AF_INET6", "::1", "::1"),
    ("AF_INET6", "::", "::1"),
    ("AF_INET6", "::", "127.0.0.1"),  # dual-stack
]
# Serves until its input ends. An orphan is not below this process, as the processes of another container are not.
SERVE = """
import os, socket, sys, threading
family, host, port, orphan, accepts = sys.argv[1:]
if orphan == "True" and os.fork():
    os._exit(0)
server = socket.create_server((host, int(port)), family=socket.AddressFamily[family],
                              dualstack_ipv6=host == "::", reuse_port=True)
print(os.getpid(), server.getsockname()[1], flush=True)
taken = []
def accept():
    taken.append(server.accept())
    print("accepted", flush=True)
if accepts == "True":
    threading.Thread(target=accept, daemon=True).start()
sys.stdin.read()
os._exit(0)
"""

Serve = Callable[..., "Server"]


class Server:
    """A process with a server; ``port`` 0 chooses a free one."""

    def __init__(self, family: str, host: str, *, port: int = 0, orphan: bool, accepts: bool = True) -> None:
        words = [family, host, str(port), str(orphan), str(accepts)]
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-c", SERVE, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout
        line = self.process.stdout.readline().split()
        if not line:
            pytest.skip("IPv6 is off here")
        self.pid, self.port = map(int, line)
        self.accepts = accepts

    def until_accepted(self) -> None:
        assert self.process.stdout
        assert not self.accepts or self.process.stdout.readline() == "accepted\n"


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[Server] = []

    def start(*arguments: str, **more: int) -> Server:
        servers.append(Server(*arguments, **more))  # type: ignore[arg-type]
        return servers[-1]

    yield start
    for server in servers:
        server.process.communicate()  # whose input ends with it


def check(connection: socket.socket) -> None:
    asyncio.run(expect_own(connection, connection.getpeername()[1]))


@pytest.mark.parametrize("accepts", [True, False])
@pytest.mark.parametrize(("family", "host", "to"), PLACES)
def test_a_server_of_this_container(serve: Serve, family: str, host: str, to: str, accepts: bool) -> None:
    server = serve(family, host, orphan=False, accepts=accepts)
    with socket.create_connection((to, server.port)) as connection:
        server.until_accepted()
        check(connection)


@pytest.mark.parametrize("accepts", [True, False])
@pytest.mark.parametrize(("family", "host", "to"), PLACES)
def test_a_server_of_another_container_of_the_same_user(
    serve: Serve, family: str, host: str, to: str, accepts: bool
) -> None:
    server = serve(family, host, orphan=True, accepts=accepts)
    with socket.create_connection((to, server.port)) as connection:
        server.until_accepted()
        with pytest.raises(
            ForeignListenerError, match=f"port {server.port} belongs to a process outside of this task's"
        ):
            check(connection)


def test_two_containers_that_listen_together_on_one_port(serve: Serve) -> None:
    """The kernel chooses which of them has a connection. Until a server accepts it, either may be that one."""
    own = serve("AF_INET", "127.0.0.1", orphan=False, accepts=False)
    serve("AF_INET", "127.0.0.1", port=own.port, orphan=True, accepts=False)
    with socket.create_connection(("127.0.0.1", own.port)) as connection, pytest.raises(ForeignListenerError):
        check(connection)


def test_a_connection_whose_server_has_ended(serve: Serve) -> None:
    server = serve("AF_INET", "127.0.0.1", orphan=False)
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        port = server.port
        server.process.kill()
        server.process.wait()
        with pytest.raises(NoListenerError):
            asyncio.run(expect_own(connection, port))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_a_server_of_another_user() -> None:
    program = 'import os, socket, sys; os.setuid(4001); s = socket.create_server(("127.0.0.1", 0)); '
    program += "print(s.getsockname()[1], flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-I", "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert process.stdin
        with socket.create_connection(("127.0.0.1", int(process.stdout.readline()))) as connection:
            with pytest.raises(ForeignListenerError, match=r"another user of this node \(user 4001\)"):
                check(connection)
            process.stdin.close()
