"""Connections that report that they carry no bytes, long before they time out."""

from __future__ import annotations

import io
import select
import socket
import ssl
from collections.abc import Callable
from http.client import HTTPConnection
from typing import Any, Optional, cast

from tony_provider.runtime.storage.webhdfs.transport import Deadline, set_timeout


class SilenceTimeoutError(TimeoutError):
    """A connection carried no bytes for too long. The message says for how long."""


def watch(connection: HTTPConnection, patience: float, silence: float, on_silence: Callable[[], object]) -> None:
    """Watch an open connection until it is closed.

    ``on_silence`` is called after each ``silence`` seconds without a byte and may raise an exception that ends the
    wait. After ``patience`` seconds without a byte, the wait ends with SilenceTimeoutError.
    """
    set_timeout(connection, patience)
    connection.sock = cast(Any, _WatchedSocket(connection.sock, patience, silence, on_silence))


class _WatchedSocket:
    """What ``http.client`` needs of a socket."""

    def __init__(self, sock: socket.socket, patience: float, silence: float, on_silence: Callable[[], object]) -> None:
        self._socket = sock
        self._patience = patience
        self._silence = silence
        self._on_silence = on_silence

    def sendall(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            self.wait(select.POLLOUT)
            left = left[self._socket.send(left) :]

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_WatchedFile(self, self._socket.makefile("rb", buffering=0)))

    def wait(self, event: int) -> None:
        """Wait until bytes can be read or written. Raises SilenceTimeoutError, and what ``on_silence`` raises."""
        if event == select.POLLIN and isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return
        poll = select.poll()
        poll.register(self._socket, event)
        deadline = Deadline(self._patience)
        while not poll.poll(1000 * deadline.left(self._silence)):
            self._on_silence()
            if deadline.over:
                raise SilenceTimeoutError(f"no bytes within {self._patience:g} s")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


class _WatchedFile(io.RawIOBase):
    """The receiving end of a watched socket."""

    def __init__(self, watched: _WatchedSocket, file: io.RawIOBase) -> None:
        self._watched = watched
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> Optional[int]:
        self._watched.wait(select.POLLIN)
        return cast(Optional[int], self._file.readinto(buffer))

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()
