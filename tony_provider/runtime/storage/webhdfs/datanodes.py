"""Bytes to and from the DataNodes that the NameNode names."""

from __future__ import annotations

import io
import socket
from contextlib import closing
from http.client import HTTPConnection, HTTPResponse
from typing import Optional
from urllib.parse import urlsplit

from tony_provider.runtime.storage import errors
from tony_provider.runtime.storage.streams import Body
from tony_provider.runtime.storage.webhdfs.answers import NotNow, check
from tony_provider.runtime.storage.webhdfs.namenodes import Call, NameNodes
from tony_provider.runtime.storage.webhdfs.transport import (
    BROKEN,
    TIMEOUTS,
    Deadline,
    Transport,
    describe,
    read_answer,
    set_timeout,
    target,
)

_TRIES = 4  # of one transfer without progress, over as many DataNodes


class DataNodes:
    def __init__(self, transport: Transport, namenodes: NameNodes) -> None:
        self._transport = transport
        self._config = transport.config
        self._namenodes = namenodes

    def send(self, call: Call, body: Body) -> None:
        """Do a CREATE. A source that can be read once only is sent once only."""
        failures = _Failures(call)
        while True:
            location = self._locate(call, failures)
            try:
                return self._send_to(location, call, body)
            except (NotNow, *BROKEN) as error:
                failures.add(location, error)
                if not body.available:
                    raise failures.give_up() from error

    def open(self, call: Call) -> tuple[HTTPConnection, HTTPResponse]:
        """Do an OPEN; the connection is the caller's to close."""
        failures = _Failures(call)
        while True:
            location = self._locate(call, failures)
            try:
                return self._open_at(location, call)
            except (NotNow, *BROKEN) as error:
                failures.add(location, error)

    def _locate(self, call: Call, failures: _Failures) -> str:
        call.params.update(failures.excluded)
        try:
            location = self._namenodes.ask(call).location
        except errors.StorageUnreachable as error:
            if failures.last is None:
                raise
            raise failures.give_up() from error  # none is left: the first one's trouble says more
        if location is None:
            raise errors.StorageError(
                str(call.uri), call.what, "the server names no DataNode", "give the NameNodes' addresses, not HttpFS's"
            )
        return location

    def _send_to(self, location: str, call: Call, body: Body) -> None:
        with closing(self._transport.connect(location, Deadline(self._config.connect_timeout))) as connection:
            set_timeout(connection, self._config.stream_timeout)
            broken = _send_body(connection, location, call, body)
            try:
                answer = read_answer(connection.getresponse(), Deadline(self._config.stream_timeout))
            except BROKEN as error:
                raise broken or error from error
            check(answer, str(call.uri), call.what)  # a refusal comes while bytes are still being sent
            if broken is not None:
                raise broken
            if answer.code != 201:
                raise errors.StorageError(str(call.uri), call.what, f"the DataNode answered {answer.code}, not 201")

    def _open_at(self, location: str, call: Call) -> tuple[HTTPConnection, HTTPResponse]:
        connection = self._transport.connect(location, Deadline(self._config.connect_timeout))
        try:
            set_timeout(connection, self._config.stream_timeout)
            connection.request("GET", target(location), headers={"Connection": "close"})
            response = connection.getresponse()
            self._check_opened(response, call)
        except BaseException:
            connection.close()
            raise
        return connection, response

    def _check_opened(self, response: HTTPResponse, call: Call) -> None:
        if response.status != 200:
            check(read_answer(response, Deadline(self._config.response_timeout)), str(call.uri), call.what)
            raise errors.StorageError(str(call.uri), call.what, f"the DataNode answered {response.status}, not 200")


class RemoteFile(io.RawIOBase):
    """A file as a stream of bytes, taken up again at the same place when a DataNode fails."""

    def __init__(self, datanodes: DataNodes, call: Call, offset: int, length: Optional[int]) -> None:
        self._datanodes = datanodes
        self._call = call
        self._position = offset
        self._end = None if length is None else offset + length
        self._failures = 0
        self._connection, self._response = self._open()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while True:
            try:
                return self._read_some(buffer)
            except BROKEN as error:
                self._failures += 1
                self._connection.close()
                if self._failures >= _TRIES:
                    raise _failed(self._call, error) from error
                self._connection, self._response = self._open()

    def _read_some(self, buffer: memoryview) -> int:
        got = self._response.readinto(buffer)
        if got:
            self._failures = 0
            self._position += got
        elif self._response.length:  # what is still to come, by the header
            raise ConnectionResetError(f"the DataNode closed the connection {self._response.length} bytes too early")
        return got

    def _open(self) -> tuple[HTTPConnection, HTTPResponse]:
        params = {"offset": str(self._position)}
        if self._end is not None:
            params["length"] = str(self._end - self._position)
        return self._datanodes.open(Call("GET", "OPEN", self._call.uri, self._call.what, params))

    def close(self) -> None:
        if not self.closed and hasattr(self, "_connection"):
            self._response.close()
            self._connection.close()
        super().close()


class _Failures:
    """What went wrong with one transfer so far."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._addresses: list[str] = []
        self._count = 0
        self.last: Optional[errors.StorageError] = None

    def add(self, location: str, error: BaseException) -> None:
        """Raises the error for the user when it was one too many."""
        host = urlsplit(location).hostname or ""
        self.last = _failed(self._call, error, urlsplit(location).netloc)
        self._count += 1
        if self._count >= _TRIES:
            raise self.last from error
        if not isinstance(error, NotNow):
            self._addresses.append(_ip_address(host))

    def give_up(self) -> errors.StorageError:
        if self.last is None:
            raise ValueError("nothing has failed")
        return self.last

    @property
    def excluded(self) -> dict[str, str]:
        return {"excludedatanodes": ",".join(self._addresses)} if self._addresses else {}


def _failed(call: Call, error: BaseException, server: str = "") -> errors.StorageUnreachable:
    kind = errors.StorageTimeout if isinstance(error, TIMEOUTS) else errors.StorageUnreachable
    return kind(
        str(call.uri),
        call.what,
        f"DataNode {server}: {describe(error)}" if server else describe(error),
        "the NameNode sends us there: this machine must resolve and reach the DataNodes' names and HTTP ports",
    )


def _ip_address(host: str) -> str:
    """The NameNode looks for DataNodes to exclude by address."""
    try:
        return socket.gethostbyname(host)
    except OSError:
        return host


def _send_body(connection: HTTPConnection, location: str, call: Call, body: Body) -> Optional[Exception]:
    """The error that cut it short: the server may have said why, before it closed the connection."""
    try:
        connection.putrequest("PUT", target(location), skip_accept_encoding=True)
        connection.putheader("Content-Type", "application/octet-stream")
        connection.putheader("Connection", "close")
        if body.size is None:
            connection.putheader("Transfer-Encoding", "chunked")
        else:
            connection.putheader("Content-Length", str(body.size))
        connection.endheaders()
    except BROKEN as error:
        return error
    sent = 0
    for chunk in body.chunks():  # outside of the try: the source's errors are not the connection's
        sent += len(chunk)
        if (broken := _send_chunk(connection, chunk, framed=body.size is None)) is not None:
            return broken
    if body.size is None:
        return _send_chunk(connection, b"", framed=True)
    if sent != body.size:
        raise errors.StorageError(str(call.uri), call.what, "its source became shorter while it was read")
    return None


def _send_chunk(connection: HTTPConnection, chunk: bytes, *, framed: bool) -> Optional[Exception]:
    try:
        connection.send(b"%x\r\n%b\r\n" % (len(chunk), chunk) if framed else chunk)
    except BROKEN as error:
        return error
    return None
