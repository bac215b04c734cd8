"""Strangers who connect to a port of this machine and say nothing that would prove anything, again and again."""

from __future__ import annotations

import contextlib
import selectors
import socket
import sys
import threading
import time
from collections.abc import Iterator

_LOOPBACK = "127."
_BATCH = 50


class Flood:
    """Keeps a number of connections open to a port, from a thread; what is closed is opened again, until a deadline."""

    def __init__(self, host: str, port: int, number: int, *, sources: int = 1, said: bytes = b"", seconds: float = 60):
        assert host.startswith(_LOOPBACK)
        self._target = (host, port)
        self._number = number
        self._sources = [f"127.0.0.{each + 1}" for each in range(sources)]
        self._said = said
        self._until = time.monotonic() + seconds
        self._stopped = threading.Event()
        self._open = selectors.DefaultSelector()
        self.opened = 0
        self.closed = 0  # by the other side
        self._thread = threading.Thread(target=self._run, name="flood")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopped.is_set() and time.monotonic() < self._until:
                missing = self._number - len(self._open.get_map())
                for _ in range(min(missing, _BATCH)):
                    self._connect()
                for key, _ in self._open.select(0.0 if missing > _BATCH else 0.02):
                    self._hear(key.fileobj)
        finally:
            for key in list(self._open.get_map().values()):
                self._drop(key.fileobj)
            self._open.close()

    def _connect(self) -> None:
        each = socket.socket()
        each.settimeout(2.0)
        try:
            each.bind((self._sources[self.opened % len(self._sources)], 0))
            each.connect(self._target)
            each.sendall(self._said)
        except OSError:
            each.close()
            return
        self.opened += 1
        each.setblocking(False)
        self._open.register(each, selectors.EVENT_READ)

    def _hear(self, each: object) -> None:
        assert isinstance(each, socket.socket)
        try:
            data = each.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.closed += 1
            self._drop(each)

    def _drop(self, each: object) -> None:
        assert isinstance(each, socket.socket)
        self._open.unregister(each)
        each.close()


@contextlib.contextmanager
def flooding(
    host: str, port: int, number: int, *, sources: int = 1, said: bytes = b"", seconds: float = 60
) -> Iterator[Flood]:
    """Context manager around a flood; it ends with the block, or after so many seconds."""
    flood = Flood(host, port, number, sources=sources, said=said, seconds=seconds)
    flood.start()
    try:
        yield flood
    finally:
        flood.stop()


def main(arguments: list[str]) -> None:
    """``PORT NUMBER SOURCES SECONDS [TEXT]``: a process of its own; ends when its standard input does."""
    port, number, sources = map(int, arguments[:3])
    seconds, said = float(arguments[3]), "".join(arguments[4:]).encode()
    with flooding("127.0.0.1", port, number, sources=sources, said=said, seconds=seconds) as flood:
        sys.stdin.read()
    sys.stdout.write(f"{flood.opened} {flood.closed}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
