"""The store of keys and values by which Horovod's processes meet."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.client import HTTPConnection

import pytest

from tony_provider.runtime.sdk.tony_horovod import MAX_VALUE, KeyValueServer


@pytest.fixture
def connection() -> Iterator[HTTPConnection]:
    with KeyValueServer(0, processes=2) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            made = HTTPConnection("127.0.0.1", server.server_port, timeout=10)
            yield made
            made.close()
        finally:
            server.shutdown()
            thread.join()


def ask(connection: HTTPConnection, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    connection.request(method, path, body)
    response = connection.getresponse()
    return response.status, response.read()


def test_a_value_is_there_once_it_was_put(connection: HTTPConnection) -> None:
    assert ask(connection, "GET", "/global/0") == (404, b"")
    assert ask(connection, "PUT", "/global/0", b"\0an address") == (200, b"")
    assert ask(connection, "GET", "/global/0") == (200, b"\0an address")
    assert ask(connection, "GET", "/local/0") == (404, b"")


def test_a_scope_is_forgotten_once_all_have_left_it(connection: HTTPConnection) -> None:
    for path in ("/global/0", "/global/1", "/global/more", "/local/0"):
        ask(connection, "PUT", path, b"here")
    assert ask(connection, "DELETE", "/global/1") == (200, b"")
    assert ask(connection, "GET", "/global/more") == (200, b"here")
    ask(connection, "DELETE", "/global/0")
    for path in ("/global/0", "/global/1", "/global/more"):
        assert ask(connection, "GET", path) == (404, b""), "a second hvd.init() would find dead addresses"
    assert ask(connection, "GET", "/local/0") == (200, b"here")


@pytest.mark.parametrize("length", [str(MAX_VALUE + 1), "-1", "many"])
def test_no_value_fills_the_memory(connection: HTTPConnection, length: str) -> None:
    connection.putrequest("PUT", "/global/0")
    connection.putheader("Content-Length", length)
    connection.endheaders()
    response = connection.getresponse()
    assert (response.status, response.will_close) == (413, True)
