"""Connections to a server that says nothing."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from http.client import HTTPConnection

import pytest

from tony_provider.runtime.storage.webhdfs.transport import SilenceTimeoutError, watch

SILENCE = 0.05  # seconds


class DeadError(Exception):
    """What a probe finds."""


@pytest.fixture
def connection() -> Iterator[HTTPConnection]:
    """A connection to a process that hangs: the kernel takes the request, and no answer comes."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        found = HTTPConnection("datanode")
        found.sock = ours
        yield found


@pytest.mark.parametrize("patience", [SILENCE, 4 * SILENCE])
def test_a_silent_server_is_probed_before_the_wait_ends(connection: HTTPConnection, patience: float) -> None:
    def probe() -> None:
        raise DeadError

    watch(connection, patience, SILENCE, probe)
    connection.request("GET", "/")
    with pytest.raises(DeadError):
        connection.getresponse()


def test_the_wait_for_a_server_that_answers_probes_ends(connection: HTTPConnection) -> None:
    probes: list[None] = []
    watch(connection, 4 * SILENCE, SILENCE, lambda: probes.append(None))
    connection.request("GET", "/")
    with pytest.raises(SilenceTimeoutError, match=r"^no bytes within 0\.2 s$"):
        connection.getresponse()
    assert len(probes) > 1
