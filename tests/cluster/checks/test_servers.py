from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.hadoop.ports import free_ports
from tony_provider.cluster.checks.daemons import expect_servers, expect_store
from tony_provider.cluster.errors import ClusterUnreachable, StagingFailed
from tony_provider.cluster.settings import YarnSettings
from tony_provider.runtime.storage.webhdfs.transport import WebHdfsConfig

NOWHERE = "http://no-such-host.invalid:8088"


@pytest.fixture
def server() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", free_ports(1)[0])) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def closed() -> str:
    return f"http://127.0.0.1:{free_ports(1)[0]}"


def settings(managers: list[str], namenodes: list[str], **more: bool) -> YarnSettings:
    return YarnSettings(managers, WebHdfsConfig(namenodes), **more)  # type: ignore[arg-type]


def test_where_nobody_listens(server: str, closed: str) -> None:
    port = closed.rpartition(":")[2]
    with pytest.raises(ClusterUnreachable) as raised:
        expect_servers(settings([closed, NOWHERE], [server]), timeout=0.1)
    assert str(raised.value) == (
        f"no ResourceManager accepts connections: nothing listens on port {port} of 127.0.0.1; cannot resolve host "
        "'no-such-host.invalid' (for 0.1 s); check the addresses in the tony connection, and that the server runs"
    )
    with pytest.raises(StagingFailed, match=rf"^no NameNode accepts connections: nothing listens on port {port}"):
        expect_servers(settings([server], [closed]), timeout=0.1)
    with pytest.raises(StagingFailed, match=rf"^no NameNode accepts connections: nothing listens on port {port}"):
        expect_store(settings([server], [closed]), timeout=0.1)
    expect_store(settings([closed], [server]), timeout=0.1)


def test_one_that_listens_is_enough(server: str, closed: str) -> None:
    expect_servers(settings([closed, server], [NOWHERE, server]), timeout=0.1)


def test_one_that_is_silent_is_waited_for_by_the_calls_themselves(server: str, closed: str) -> None:
    with socket.create_server(("127.0.0.1", free_ports(1)[0]), backlog=0) as busy, ExitStack() as waiting:
        for _ in range(2):  # more than it has room for, so that the next one gets no answer
            each = waiting.enter_context(socket.socket())
            each.setblocking(False)
            each.connect_ex(busy.getsockname())
        expect_servers(settings([closed, f"http://127.0.0.1:{busy.getsockname()[1]}"], [server]), timeout=0.1)


def test_one_that_is_just_starting_is_waited_for(server: str) -> None:
    port = free_ports(1)[0]
    listening: list[socket.socket] = []
    timer = threading.Timer(1.0, lambda: listening.append(socket.create_server(("127.0.0.1", port))))
    timer.start()
    try:
        expect_servers(settings([f"http://127.0.0.1:{port}"], [server]), timeout=60.0)
        timer.join()
    finally:
        timer.cancel()
        for each in listening:
            each.close()


def test_a_proxy_knows_names_that_we_do_not(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", server)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    expect_servers(settings([NOWHERE], [server], trust_env=True), timeout=0.1)
    with pytest.raises(ClusterUnreachable):
        expect_servers(settings([NOWHERE], [server]), timeout=0.1)
