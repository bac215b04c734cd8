"""A mail server on the loopback that keeps what it is given: as much of SMTP as a client needs."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes
from email.message import Message
from email.policy import default


class _Handler(socketserver.StreamRequestHandler):
    server: Mailbox

    def handle(self) -> None:
        self._say("220 mailbox")
        while word := self.rfile.readline().strip().upper():
            if word.startswith(b"DATA"):
                self._say("354 go on")
                self._take()
            elif word.startswith(b"QUIT"):
                self._say("221 bye")
                return
            self._say("250 mailbox")

    def _take(self) -> None:
        lines = []
        while (read := self.rfile.readline()) != b".\r\n":
            lines.append(read[1:] if read.startswith(b".") else read)
        self.server.mails.append(message_from_bytes(b"".join(lines), policy=default))

    def _say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())


class Mailbox(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.mails: list[Message] = []

    @property
    def port(self) -> int:
        return int(self.server_address[1])


@contextmanager
def mailbox() -> Iterator[Mailbox]:
    with Mailbox() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
