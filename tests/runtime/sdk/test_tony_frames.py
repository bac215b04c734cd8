"""Messages that prove to come from the same job."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tony_provider.runtime.sdk.tony_mpi import Frames, NotAuthenticError

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    one, other = socket.socketpair()
    with one, other:
        for each in (one, other):
            each.settimeout(20)
        yield one, other


def meet(one: socket.socket, other: socket.socket, *secrets: bytes) -> tuple[Frames, Frames]:
    with ThreadPoolExecutor(1) as beside:
        server = beside.submit(Frames, one, secrets[0], server=True)
        client = Frames(other, secrets[-1], server=False)
        return server.result(20), client


def test_both_sides_are_heard_in_order(pair: Pair) -> None:
    server, client = meet(*pair, b"secret")
    messages: list[dict[str, Any]] = [{"command": "echo ä"}, {"number": 1}, {}]
    for message in messages:
        client.send(message)
    server.send({"exit": 0})
    assert [server.receive() for _ in messages] == messages
    assert client.receive() == {"exit": 0}


def test_who_does_not_know_the_secret_is_not_heard(pair: Pair) -> None:
    server, client = meet(*pair, b"secret", b"guess")
    client.send({"command": "rm -r /"})
    with pytest.raises(NotAuthenticError, match="has no valid signature of this job"):
        server.receive()


def recorded(client: Frames, listener: socket.socket, *messages: dict[str, Any]) -> list[bytes]:
    """What is sent for each message."""
    sent = []
    for message in messages:
        client.send(message)
        sent.append(listener.recv(4096))
    return sent


@pytest.mark.parametrize("change", ["flipped", "again", "reflected", "other connection", "too long"])
def test_nobody_between_can_change_or_repeat_a_message(change: str, pair: Pair) -> None:
    one, other = pair
    server, client = meet(one, other, b"secret")
    first, second = recorded(client, one, {"command": "one"}, {"command": "two"})
    again, _client = meet(one, other, b"secret")
    forged = {
        "flipped": first[:-2] + bytes([first[-2] ^ 1]) + first[-1:],
        "again": second,
        "reflected": first,
        "other connection": first,
        "too long": b"\xff" * 4 + first[4:],
    }[change]
    receiver = again if change == "other connection" else client if change == "reflected" else server
    (one if change == "reflected" else other).sendall(forged)
    with pytest.raises(NotAuthenticError):
        receiver.receive()


def test_the_end_of_the_other_side_is_told(pair: Pair) -> None:
    server, client = meet(*pair, b"secret")
    client.send({"command": "true"})
    pair[1].close()
    assert server.receive() == {"command": "true"}
    with pytest.raises(EOFError, match="has closed the connection"):
        server.receive()


def test_each_connection_has_other_proofs(pair: Pair) -> None:
    made = []
    for _ in range(3):
        _server, client = meet(*pair, b"secret")
        made += recorded(client, pair[0], {"command": "the same"})
    assert len(set(made)) == len(made)
