"""Servers for what a healthy cluster does not do: silence, lost answers, broken transfers, nonsense."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import attrs

from tests.hadoop.ports import free_ports


@attrs.frozen
class Request:
    method: str
    path: str
    op: str
    params: dict[str, str]


@attrs.frozen
class Reply:
    """``body`` may be shorter than ``length`` says: then the connection is closed within it."""

    code: int
    body: bytes = b""
    location: str | None = None
    length: int | None = None
    proof: str | None = None  # WWW-Authenticate


def remote_exception(name: str, message: str) -> Reply:
    """As a real NameNode words it."""
    body = {"RemoteException": {"exception": name, "javaClassName": f"org.apache.hadoop.{name}", "message": message}}
    return Reply(403, json.dumps(body).encode())


STANDBY = remote_exception("ipc.StandbyException", "Operation category READ is not supported in state standby")


@contextmanager
def scripted(answer: Callable[[Request], Reply | None], tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """The address of a server that says what ``answer`` says; None closes the connection without a word."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            self.rfile.read(length)
            parts = urlsplit(self.path)
            params = {key: values[0] for key, values in parse_qs(parts.query).items()}
            reply = answer(Request(self.command, self.path, params.get("op", ""), params))
            self.close_connection = True
            if reply is None:
                return
            self.send_response(reply.code)
            if reply.location is not None:
                self.send_header("Location", reply.location)
            if reply.proof is not None:
                self.send_header("WWW-Authenticate", reply.proof)
            self.send_header("Content-Length", str(len(reply.body) if reply.length is None else reply.length))
            self.end_headers()
            self.wfile.write(reply.body)

        do_GET = do_PUT = do_DELETE = do_POST = answer

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", free_ports(1)[0]), Handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


class KeepingServer:
    """A NameNode that keeps connections open, answers each request, and counts both."""

    def __init__(self) -> None:
        self.connections: list[socket.socket] = []
        self.requests = 0
        self.loses = 0  # so many of the next requests get no answer: the connection is closed
        keeping = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                keeping.connections.append(self.request)
                super().setup()

            def do_GET(self) -> None:
                keeping.requests += 1
                if keeping.loses:
                    keeping.loses -= 1
                    self.close_connection = True
                    return
                body = b'{"FileStatuses": {"FileStatus": []}}'
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", free_ports(1)[0]), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> KeepingServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


def forward(address: str, request: Request) -> Reply:
    """Ask a real server the same."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=30)
    try:
        connection.request(request.method, request.path)
        response = connection.getresponse()
        return Reply(response.status, response.read(), response.getheader("Location"))
    finally:
        connection.close()


@contextmanager
def silent() -> Iterator[str]:
    """The address of a server that takes connections and never answers."""
    with _listening() as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def saying(raw: bytes) -> Iterator[str]:
    """The address of a server that answers each connection with the same bytes, whatever is asked, and closes it."""
    with _listening() as listener:
        stopping = threading.Event()

        def serve() -> None:
            while True:
                connection, _ = listener.accept()
                with connection:
                    if stopping.is_set():
                        return
                    connection.recv(65536)
                    connection.sendall(raw)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            stopping.set()
            socket.create_connection(listener.getsockname(), timeout=10).close()
            thread.join(10)


def refusing() -> str:
    """An address where nobody listens."""
    return f"http://127.0.0.1:{free_ports(1)[0]}"


@contextmanager
def _listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", free_ports(1)[0])) as listener:
        yield listener
