"""Strangers who connect to a port of this machine and say nothing that would prove anything, again and again."""

from __future__ import annotations

import contextlib
import itertools
import resource
import selectors
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import attrs

_LOOPBACK = "127."
_BATCH = 50


class Flood:
    """Keeps a number of connections open to a port, from a thread; what is closed is opened again, until a deadline."""

    def __init__(
        self,
        host: str,
        port: int,
        number: int,
        *,
        first: int = 1,
        sources: int = 1,
        said: bytes = b"",
        seconds: float = 60,
    ):
        assert host.startswith(_LOOPBACK)
        self._target = (host, port)
        self._number = number
        self._sources = itertools.cycle([f"127.0.0.{first + each}" for each in range(sources)])
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
            each.bind((next(self._sources), 0))
            each.connect(self._target)
            each.sendall(self._said)
        except OSError:
            each.close()
            return
        self.opened += 1
        time.sleep(0.001)  # it is to be a thousand a second, not all that this machine can do
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


@attrs.define
class FloodProcess:
    """A flood from another process, which tells now and then how it goes."""

    _process: subprocess.Popen[str]
    opened: int = 0
    closed: int = 0  # by the other side

    def until_closed(self, number: int, seconds: float = 60) -> None:
        """Wait until the other side has closed so many. Blocks."""
        deadline = time.monotonic() + seconds
        assert self._process.stdout is not None
        while self.closed < number:
            assert time.monotonic() < deadline, f"{self.closed} of {self.opened} connections were closed"
            line = self._process.stdout.readline()
            assert line, "the flood has ended"
            self.opened, self.closed = map(int, line.split())


@contextlib.contextmanager
def flooding(
    host: str, port: int, number: int, *, first: int = 1, sources: int = 1, said: bytes = b"", seconds: float = 60
) -> Iterator[FloodProcess]:
    """Context manager around a flood; it ends with the block, or after so many seconds.

    ``first``, ``sources``: it comes from so many addresses, from 127.0.0.<first> on.
    """
    arguments = [host, *map(str, (port, number, first, sources, seconds)), said.hex()]
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield FloodProcess(process)
    finally:
        process.communicate()


def main(host: str, port: str, number: str, first: str, sources: str, seconds: str, said: str = "") -> None:
    """Flood until standard input ends, or so many seconds are over; what is said is in hexadecimal digits."""
    flood = Flood(host, int(port), int(number), sources=int(sources), said=bytes.fromhex(said), seconds=float(seconds))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(int(number) + 64, hard), hard))
    flood.start()
    over = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=listen, daemon=True).start()
    until = time.monotonic() + float(seconds)
    while not over.wait(0.1) and time.monotonic() < until:
        print(flood.opened, flood.closed, flush=True)
    flood.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
