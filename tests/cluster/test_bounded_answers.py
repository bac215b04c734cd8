"""Answers that are longer, or slower, than anybody's should be."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import requests

from tony_provider.cluster.http import AnswerTooLong, bounded_request, json_object

MOST = 1 << 20


class Server(BaseHTTPRequestHandler):
    """Answers as its path says."""

    stop = threading.Event()

    def do_GET(self) -> None:
        self.send_response(200)
        if self.path == "/gzip":
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        if self.path == "/endless":
            while not self.stop.is_set():
                self.wfile.write(bytes(1 << 16))
        elif self.path == "/slow":
            while not self.stop.wait(0.05):
                self.wfile.write(b" ")
                self.wfile.flush()
        elif self.path == "/gzip":
            self.wfile.write(gzip.compress(bytes(64 << 20)))
        elif self.path == "/deep":
            self.wfile.write(b"[" * 100_000)
        else:
            self.wfile.write(b'{"state": "RUNNING"}')

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def address() -> Iterator[str]:
    Server.stop.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        Server.stop.set()
        server.shutdown()
        thread.join()


def test_one_like_ours(address: str) -> None:
    with requests.Session() as session:
        assert json_object(bounded_request(session, "GET", f"{address}/", MOST, 30, timeout=30)) == {"state": "RUNNING"}


@pytest.mark.parametrize("path", ["/endless", "/gzip"])
def test_one_that_is_too_long(address: str, path: str) -> None:
    with requests.Session() as session, pytest.raises(AnswerTooLong, match="more than 1048576 bytes"):
        bounded_request(session, "GET", address + path, MOST, 30, timeout=30)


def test_one_that_drips(address: str) -> None:
    with requests.Session() as session, pytest.raises(requests.RequestException):
        bounded_request(session, "GET", f"{address}/slow", MOST, 0.3, timeout=30)


def test_one_that_is_no_json_of_ours(address: str) -> None:
    with requests.Session() as session:
        assert json_object(bounded_request(session, "GET", f"{address}/deep", MOST, 30, timeout=30)) is None
