"""A browser of this user's, led to an address that others of this machine must not learn."""

from __future__ import annotations

import os
import threading
import time
import webbrowser
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any

from tony_provider.runtime.listeners import peer_users

_HOST = "127.0.0.1"
_LOOK = 0.5  # seconds between two looks whether the browser has come
_SECONDS = 120.0  # that it may take to come


def open_browser(url: str) -> None:
    """Have a browser show this address, which is on no command line: everybody on this machine could read it there.

    What is there leads on to it, once, and only processes of this user.
    """
    door = _Door(url)
    threading.Thread(target=door.keep, name="browser", daemon=True).start()
    webbrowser.open(f"http://{_HOST}:{door.server_address[1]}/")


class _Door(ThreadingTCPServer):
    daemon_threads = True
    timeout = _LOOK

    def __init__(self, url: str) -> None:
        super().__init__((_HOST, 0), _Doorman)
        self.url = url
        self.is_passed = threading.Event()

    def keep(self) -> None:
        """Until somebody has come in, or nobody has for long."""
        until = time.monotonic() + _SECONDS
        with self:
            while not self.is_passed.is_set() and time.monotonic() < until:
                self.handle_request()

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return peer_users(request) == {os.getuid()}


class _Doorman(BaseHTTPRequestHandler):
    server: _Door
    timeout = _SECONDS  # of a connection by which nothing comes

    def do_GET(self) -> None:
        if self.path != "/" or self.server.is_passed.is_set():
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        self.server.is_passed.set()
        self.send_response(HTTPStatus.FOUND)
        self.send_header("Location", self.server.url)
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """It has the terminal to itself."""
