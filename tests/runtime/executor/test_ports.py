from __future__ import annotations

import socket

import pytest

from tony_provider.runtime.executor.ports import HeldPorts, PortError
from tony_provider.runtime.jobspec.model import PortRange

RANGE = PortRange(28000, 28999)


def listen(port: int, *, share: bool, reuse: bool = False) -> socket.socket:
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(reuse))
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(share))
    try:
        server.bind(("127.0.0.1", port))
        server.listen()
    except BaseException:
        server.close()
        raise
    return server


@pytest.mark.parametrize("share", [True, False])
def test_a_held_port_is_nobody_elses(share: bool) -> None:
    first = HeldPorts(["main"], RANGE, share=share)
    port = first.numbers["main"]
    try:
        with pytest.raises(OSError, match="in use"):
            listen(port, share=False)
        with pytest.raises(PortError, match=f"no free port in the job's port_range {port}-{port}"):
            HeldPorts(["main"], PortRange(port, port), share=share)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 5)
    finally:
        first.close()


def test_a_shared_port_stays_held_while_the_user_process_listens() -> None:
    held = HeldPorts(["main", "other"], RANGE, share=True)
    assert len(set(held.numbers.values())) == 2
    port = held.numbers["main"]
    try:
        held.release()
        with listen(port, share=True) as server, socket.create_connection(("127.0.0.1", port), 5):
            server.accept()[0].close()
        with pytest.raises(PortError):
            HeldPorts(["main"], PortRange(port, port), share=True)
    finally:
        held.close()


def test_a_port_that_is_not_shared_is_given_up_and_taken_back() -> None:
    held = HeldPorts(["main"], RANGE, share=False)
    port = held.numbers["main"]
    try:
        held.release()
        taken = rf"port {port} \(main\) was taken between two generations"
        with listen(port, share=False), pytest.raises(PortError, match=taken):
            held.reacquire()
        held.reacquire()
        with pytest.raises(OSError, match="in use"):
            listen(port, share=False)
    finally:
        held.close()


@pytest.mark.parametrize("share", [True, False])
def test_connections_that_linger_keep_nobody_from_taking_it_back(share: bool) -> None:
    held = HeldPorts(["main"], RANGE, share=share)
    port = held.numbers["main"]
    try:
        held.release()
        server = listen(port, share=share, reuse=True)  # as servers do
        with server, socket.create_connection(("127.0.0.1", port), 5) as client:
            server.accept()[0].close()  # first, as the end of a process does: its end stays in TIME_WAIT
            assert client.recv(1) == b""
        held.reacquire()
        with pytest.raises(OSError, match="in use"):
            listen(port, share=False)
        with pytest.raises(PortError):
            HeldPorts(["main"], PortRange(port, port), share=share)
    finally:
        held.close()
