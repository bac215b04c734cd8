"""Connections to a NameNode stay open between two requests."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPConnection

import pytest

from tests.runtime.storage.conftest import Place
from tests.runtime.storage.servers import KeepingServer
from tests.waiting import until
from tony_provider.runtime.storage import Storage, WebHdfsConfig, WebHdfsStorage
from tony_provider.runtime.storage.webhdfs.transport import Deadline, IdleConnections, Transport


@pytest.fixture
def server() -> Iterator[KeepingServer]:
    with KeepingServer() as server:
        yield server


@pytest.fixture
def storage(server: KeepingServer) -> Iterator[Storage]:
    with WebHdfsStorage(WebHdfsConfig([server.address], user="alice", timeout=5)) as storage:
        yield storage


def test_many_requests_take_one_connection(server: KeepingServer, storage: Storage) -> None:
    for _ in range(10):
        assert storage.list("hdfs:///a") == []
    assert (server.requests, len(server.connections)) == (10, 1)


def test_closing_the_storage_closes_the_connection(server: KeepingServer, storage: Storage) -> None:
    storage.list("hdfs:///a")
    storage.close()
    until(lambda: server.connections[0].fileno() == -1, "the server to see the end of the connection")


@pytest.mark.parametrize("half", [socket.SHUT_WR, socket.SHUT_RDWR])
def test_a_connection_that_the_server_closed_is_not_used(
    server: KeepingServer, storage: Storage, half: int, caplog: pytest.LogCaptureFixture
) -> None:
    storage.list("hdfs:///a")
    with suppress(OSError):
        server.connections[0].shutdown(half)
    assert storage.list("hdfs:///a") == []
    assert (server.requests, len(server.connections)) == (2, 2)
    assert caplog.record_tuples == []


def test_a_request_whose_kept_connection_breaks_is_sent_again_at_once(
    server: KeepingServer, storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    storage.list("hdfs:///a")
    server.loses = 1
    with caplog.at_level(logging.WARNING):
        assert storage.list("hdfs:///a") == []
    assert (server.requests, len(server.connections)) == (3, 2)
    assert caplog.record_tuples == []  # nobody has waited


def test_connections_kept_too_long_are_closed(server: KeepingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tony_provider.runtime.storage.webhdfs.transport._LONGEST_IDLE", 0.0)
    with WebHdfsStorage(WebHdfsConfig([server.address], user="alice")) as storage:
        storage.list("hdfs:///a")
        storage.list("hdfs:///a")
    assert len(server.connections) == 2


def test_a_real_namenode_keeps_the_connection(hdfs: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    connect = Transport.connect

    def counted(self: Transport, url: str, deadline: Deadline) -> HTTPConnection:
        opened.append(url)
        return connect(self, url, deadline)

    monkeypatch.setattr(Transport, "connect", counted)
    for _ in range(5):
        assert hdfs.names() == []
    assert len(opened) <= 1


def test_nothing_is_kept_after_the_end(server: KeepingServer) -> None:
    idle = IdleConnections()
    idle.close()
    connection = Transport(WebHdfsConfig([server.address])).connect(server.address, Deadline(5))
    idle.keep(connection)
    assert connection.sock is None
    assert idle.take() is None
