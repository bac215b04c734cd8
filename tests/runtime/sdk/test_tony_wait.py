"""Waiting until something listens."""

from __future__ import annotations

import socket
import threading

from tony_provider.runtime.sdk import tony_wait


def test_it_waits_until_something_listens() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        threading.Timer(0.5, server.listen).start()
        assert tony_wait.main("127.0.0.1", server.getsockname()[1], seconds=30.0) == ""


def test_it_says_for_what_it_waited_in_vain() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        assert f"no process listens at 127.0.0.1:{port} after 0.1 s" in tony_wait.main("127.0.0.1", port, seconds=0.1)
