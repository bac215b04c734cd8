"""Horovod's rendezvous server next to rank 0 of a tony job: ``python -m tony_horovod``. Replaces horovodrun's server.

The server is an HTTP key-value store for Gloo's ``HTTPStore`` in Horovod. It supports PUT and GET of /scope/key, and
DELETE of /scope/rank when a process leaves. GET returns 404 until the value exists. As with horovodrun's server, every
client that can connect can read and write all values.
"""

from __future__ import annotations

import os
import socket
import socketserver
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MAX_VALUE = 1 << 20  # maximum bytes of a value; addresses of processes are far smaller
MAX_KEYS = 1 << 16


class KeyValueServer(ThreadingHTTPServer):
    """HTTP server that stores keys and values in memory."""

    daemon_threads = True
    request_queue_size = 1024  # every process polls many times a second
    allow_reuse_address = True

    def __init__(self, port: int, processes: int, address: str = "") -> None:
        """Listen at ``address``. If it is empty, listen at all addresses of this machine."""
        is_ipv6 = ":" in address if address else socket.has_dualstack_ipv6()
        self.address_family = socket.AF_INET6 if is_ipv6 else socket.AF_INET
        super().__init__((address, port), _Handler)
        self.processes = processes
        self.values: dict[str, bytes] = {}
        self.left: dict[str, set[str]] = {}  # deleted keys, by scope

    def server_bind(self) -> None:
        """Bind like TCPServer. HTTPServer would also resolve the host's full name, which can take seconds."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "", self.server_address[1]

    def delete(self, path: str) -> None:
        """Delete a key. After all processes have left a scope, also delete the scope, so that it can be used again."""
        scope, _, key = path.strip("/").rpartition("/")
        left = self.left.setdefault(scope, set())
        left.add(key)
        self.values.pop(path, None)
        if len(left) >= self.processes:
            del self.left[scope]
            for known in [each for each in self.values if each.startswith(f"/{scope}/")]:
                self.values.pop(known, None)


class _Handler(BaseHTTPRequestHandler):
    """Handler of one connection of a process."""

    protocol_version = "HTTP/1.1"
    timeout = 60.0  # seconds without a request after which a connection is closed
    server: KeyValueServer

    def do_GET(self) -> None:
        value = self.server.values.get(self.path)
        self._answer(404, b"") if value is None else self._answer(200, value)

    def do_PUT(self) -> None:
        length = self.headers.get("Content-Length") or ""
        if not length.isdecimal() or int(length) > MAX_VALUE or len(self.server.values) >= MAX_KEYS:
            self._answer(413, b"", close=True)  # close the connection, because the body was not read
            return
        self.server.values[self.path] = self.rfile.read(int(length))
        self._answer(200, b"")

    def do_DELETE(self) -> None:
        self.server.delete(self.path)
        self._answer(200, b"")

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing, because the log belongs to the user's program."""

    def _answer(self, status: int, body: bytes, *, close: bool = False) -> None:
        self.send_response(status)
        if close:
            self.send_header("Connection", "close")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    """Serve until the executor ends this process."""
    port = int(os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"])
    address = os.environ.get("TONY_LISTEN_ADDRESS", "")
    KeyValueServer(port, int(os.environ["HOROVOD_SIZE"]), address).serve_forever()


if __name__ == "__main__":
    main()
