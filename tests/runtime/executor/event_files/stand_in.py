"""Runs where TensorBoard would: tells what it was asked, so that a test sees what comes through and what comes back."""

from __future__ import annotations

import json
import os
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

ROOT = os.environ["TONY_TENSORBOARD_PATH"]


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if not url.path.startswith(ROOT):
            self._answer(404, "text/plain", b"not the way here")
        elif url.path.startswith(f"{ROOT}/bytes/"):
            self._answer(200, "image/png", b"x" * int(url.path.rpartition("/")[2]))
        elif url.path == f"{ROOT}/never":
            time.sleep(1000)
        else:
            self._echo()

    do_POST = do_GET

    def _echo(self) -> None:
        directory = Path(os.environ["TONY_TENSORBOARD_DIR"])
        said = {
            "method": self.command,
            "target": self.path.removeprefix(ROOT),
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "body": self.rfile.read(int(self.headers.get("Content-Length", 0))).decode(),
            "files": sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()),
        }
        self._answer(200, "application/json", json.dumps(said).encode())

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Set-Cookie", "not=wanted")
        self.send_header("Cache-Control", "private")
        self.end_headers()
        self.wfile.write(body)


ThreadingHTTPServer(("127.0.0.1", int(os.environ["TONY_PORT"])), Handler).serve_forever()
