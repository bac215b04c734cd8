"""A server that answers as Jupyter does, for tests of what looks after it: ``python -m`` runs it.

What its kernels do is in the file KERNELS; it ends with the code that is in the file END, once that is there.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

(PORT,) = [int(each.partition("=")[2]) for each in sys.argv if each.startswith("--ServerApp.port=")]


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        allowed = self.headers["Authorization"] == f"token {os.environ['JUPYTER_TOKEN']}"
        known = allowed and self.path == "/api/kernels"
        with Path(os.environ["ASKED"]).open("a") as file:
            file.write(f"{self.path} {allowed}\n")
        body = Path(os.environ["KERNELS"]).read_bytes() if known else b"{}"
        self.send_response(200 if known else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", PORT), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Path(os.environ["JUPYTER_RUNTIME_DIR"], f"jpserver-{os.getpid()}.json").touch()
    end = Path(os.environ["END"])
    while not end.exists():
        time.sleep(0.05)
    os._exit(int(end.read_text()))


if __name__ == "__main__":
    main()
