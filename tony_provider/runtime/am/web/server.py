"""HTTP server of the application master: requests, responses, routes, and limits for connections."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import socket
import ssl
from collections.abc import Awaitable, Iterable, Mapping
from enum import Enum
from http import HTTPStatus
from typing import Any, Callable, Optional, Protocol
from urllib.parse import unquote

import attrs
import h11

from tony_provider.runtime.am.message_limits import RateLimiter
from tony_provider.runtime.common.codec import dump_json
from tony_provider.runtime.common.concurrency import log_failure, loop_time, wait_with_timeout
from tony_provider.runtime.common.network import Address
from tony_provider.runtime.hadoop.yarn_records import MODIFY_APP, VIEW_APP
from tony_provider.runtime.jobspec.model import PortRange

log = logging.getLogger(__name__)


JSON = "application/json"


@attrs.frozen
class Head:
    """The request line and the headers of a request."""

    method: str
    path: str  # decoded, without the query
    query: str = ""
    headers: tuple[tuple[str, str], ...] = ()  # names in lower case, in the order sent

    def values(self, name: str) -> list[str]:
        """Return the values of every header with this name (in lower case)."""
        return [value for each, value in self.headers if each == name]


@attrs.frozen
class HttpRequest:
    """A request with its body, and the user who sent it."""

    head: Head
    user: str  # empty if YARN's proxy names no user
    body: bytes = b""


@attrs.frozen
class HttpResponse:
    """The answer to a request."""

    status: int
    content_type: str
    body: bytes
    headers: Mapping[str, str] = attrs.field(factory=dict)

    @classmethod
    def of_object(cls, found: Any, status: int = HTTPStatus.OK) -> HttpResponse:
        """Return a response with an attrs object as JSON."""
        return cls(status, JSON, dump_json(found))


class HttpError(Exception):
    """An error that the server sends as the response to a request, as JSON ``{"error": message}``."""

    def __init__(self, status: int, message: str, headers: Optional[Mapping[str, str]] = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = headers or {}

    def response(self) -> HttpResponse:
        return HttpResponse(self.status, JSON, json.dumps({"error": self.message}).encode(), self.headers)


Handler = Callable[[HttpRequest], Awaitable[HttpResponse]]


class AccessType(Enum):
    """The access that a route requires, named after YARN's access lists of an application."""

    VIEW = VIEW_APP
    MODIFY = MODIFY_APP


@attrs.frozen
class Route:
    """A method and a path of the web server, with the handler and the access that users need."""

    method: str
    path: str
    access: AccessType
    handle: Handler
    below: bool = False  # also matches paths that begin with ``path``, which ends with a slash


class Router:
    """Finds the route of a request."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._paths: dict[str, dict[str, Route]] = {}
        self._prefixes: dict[str, dict[str, Route]] = {}
        for route in routes:
            paths = self._prefixes if route.below else self._paths
            paths.setdefault(route.path, {})[route.method] = route

    def find(self, head: Head) -> Route:
        """Return the route for a request. Raises HttpError if there is none.

        An exact path has precedence over a prefix, and a longer prefix over a shorter one.
        """
        methods = self._paths.get(head.path) or self._below(head.path)
        if methods is None:
            raise HttpError(HTTPStatus.NOT_FOUND, "there is no such page")
        route = methods.get("GET" if head.method == "HEAD" else head.method)
        if route is None:
            allowed = ", ".join(sorted({*methods, *(["HEAD"] if "GET" in methods else [])}))
            raise HttpError(HTTPStatus.METHOD_NOT_ALLOWED, f"only {allowed}", {"Allow": allowed})
        return route

    def _below(self, path: str) -> Optional[dict[str, Route]]:
        prefixes = [prefix for prefix in self._prefixes if path.startswith(prefix)]
        return self._prefixes[max(prefixes, key=len)] if prefixes else None


_MOST_EXPECTED = 192  # limit of connections from addresses that may be answered, such as the proxy's
_MOST_STRANGERS = 32  # limit of connections from all other addresses together
_MOST_OF_A_STRANGER = 8  # limit of connections from one unexpected address
# Limit of new connections from unexpected addresses. The server closes further connections immediately, because even
# a short answer would delay other clients.
_STRANGERS_A_SECOND = 50.0
_BACKLOG = 1024
_AT_ONCE = 64  # limit of connections accepted in one step of the event loop
_REST = 1.0  # seconds until the next attempt after a failure to accept connections
_HANDSHAKE = 5.0  # seconds for TLS
_STRANGERS_HANDSHAKE = 2.0
# Limit of TLS connections accepted in one step of the event loop. It is small, so that a prompt client completes its
# handshake before new connections occupy all slots.
_HANDSHAKES_AT_ONCE = 16
_GOODBYE = 2.0  # seconds to finish answers when the server stops
_NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)  # such as an IPv6 address where IPv6 is off


def _everybody(source: str) -> bool:
    return True


class WebServer:
    """An HTTP server that binds its port immediately, and serves requests after ``start``."""

    def __init__(self, address: Address, sockets: list[socket.socket], tls: Optional[ssl.SSLContext] = None) -> None:
        self.address = address
        self._tls = tls
        self._sockets = sockets
        self._answer: Optional[Answer] = None
        self._expects: Callable[[str], bool] = _everybody
        self._connections: set[asyncio.Task[None]] = set()
        self._expected = ConnectionSlots(_MOST_EXPECTED, _MOST_EXPECTED)
        self._strangers = ConnectionSlots(_MOST_STRANGERS, _MOST_OF_A_STRANGER)
        # The proxy's certificate is known only after the handshake. Handshakes have separate slots, so that clients
        # without this certificate take no slots from the proxy.
        self._handshakes = ConnectionSlots(_MOST_EXPECTED, _MOST_EXPECTED)
        self._strangers_handshakes = ConnectionSlots(_MOST_STRANGERS, _MOST_OF_A_STRANGER)
        self._resting: dict[socket.socket, asyncio.TimerHandle] = {}  # sockets that cannot accept connections now
        self._newcomers = RateLimiter(_STRANGERS_A_SECOND, _MOST_STRANGERS)
        self._serves = False
        self._told = False  # the current failure to accept connections was logged

    @classmethod
    async def bind(cls, host: str, ports: PortRange, tls: Optional[ssl.SSLContext] = None) -> WebServer:
        """Return a server on ``host`` only, on a free port of the range, with https if ``tls`` is set.

        Raises OSError if no port is free.
        """
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
        places = list(dict.fromkeys((family, str(address[0])) for family, _, _, _, address in found))
        for port in ports.shuffled():
            if sockets := _bound(places, port):
                return cls(Address(host, port), sockets, tls)
        raise OSError(
            f"the application master's page found no free port on {host} in {ports.first}-{ports.last} (port_range)"
        )

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://{self.address}/"

    async def start(self, answer: Answer, expects: Callable[[str], bool] = _everybody) -> None:
        """Serve requests. A second call replaces ``answer`` and ``expects``.

        ``expects`` returns whether requests from an address may be answered. Other clients (strangers) get few slots
        and little time, so that they cannot block expected clients.
        """
        self._answer, self._expects = answer, expects
        if self._serves:
            return
        self._serves = True
        for each in self._sockets:
            each.setblocking(False)
            each.listen(_BACKLOG)
            self._listen(each)

    async def stop(self) -> None:
        """Stop serving. Idempotent."""
        loop = asyncio.get_running_loop()
        for each in self._sockets if self._serves else ():
            loop.remove_reader(each)
        for timer in self._resting.values():
            timer.cancel()
        self._serves = False
        for each in self._sockets:
            each.close()
        if self._connections:
            await asyncio.wait(self._connections, timeout=_GOODBYE)
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _listen(self, listening: socket.socket) -> None:
        self._resting.pop(listening, None)
        asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_HANDSHAKES_AT_ONCE if self._tls else _AT_ONCE):
            try:
                accepted, name = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # such as too many open files; a later attempt may succeed
                self._rest(listening, error)
                return
            self._told = False
            self._begin(accepted, str(name[0]))

    def _rest(self, listening: socket.socket, error: OSError) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening)
        self._resting[listening] = loop.call_later(_REST, self._listen, listening)
        if not self._told:
            self._told = True
            log.warning("cannot accept connections to the page at present: %s", error)

    def _begin(self, accepted: socket.socket, source: str) -> None:
        expected = self._expects(source)
        if not expected and not self._newcomers.take_if_free(loop_time()):
            accepted.close()
            return
        accepted.setblocking(False)
        task = asyncio.ensure_future(self._serve(accepted, source, expected=expected))
        self._connections.add(task)
        task.add_done_callback(lambda task: self._over(task, source))

    async def _serve(self, accepted: socket.socket, source: str, *, expected: bool) -> None:
        try:
            opened = await self._open(accepted, source, expected=expected)
        except OSError as error:
            log.debug("no TLS with %s: %s", source, error)
            accepted.close()
            return
        except BaseException:
            accepted.close()
            raise
        if opened is None:
            accepted.close()
            return
        reader, writer = opened
        slots = self._expected if expected else self._strangers
        if self._answer is None:
            writer.transport.abort()
            return
        connection = HttpConnection(source, reader, writer, self._answer, stranger=not expected)
        if not slots.admit(connection):
            writer.transport.abort()
            return
        try:
            await connection.serve()
        finally:
            slots.leave(connection)

    async def _open(
        self, accepted: socket.socket, source: str, *, expected: bool
    ) -> Optional[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """Return the connection's streams after the handshake, or None if no slot is free. Raises OSError."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        if self._tls is None:
            transport, _ = await loop.connect_accepted_socket(lambda: protocol, accepted)
            return reader, asyncio.StreamWriter(transport, protocol, reader, loop)
        slots = self._handshakes if expected else self._strangers_handshakes
        handshake = _Handshake(source, asyncio.current_task())
        if not slots.admit(handshake):
            return None
        try:
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol,
                accepted,
                ssl=self._tls,
                ssl_handshake_timeout=_HANDSHAKE if expected else _STRANGERS_HANDSHAKE,
            )
        finally:
            slots.leave(handshake)
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    def _over(self, task: asyncio.Task[None], source: str) -> None:
        self._connections.discard(task)
        log_failure(log, f"a connection from {source} has failed", task)


@attrs.define(eq=False)
class _Handshake:
    """A TLS handshake in progress, which occupies a handshake slot."""

    source: str
    _task: Optional[asyncio.Task[Any]]
    waits: bool = True

    def give_up(self) -> None:
        if self._task is not None:
            self._task.cancel()


def _bound(places: Iterable[tuple[int, str]], port: int) -> list[socket.socket]:
    """Return a socket for every address, bound to this port, or an empty list if the port is in use at any address.

    SO_REUSEADDR is not set. With it, two processes could bind the port, and the second would fail only when it listens.
    """
    sockets: list[socket.socket] = []
    for family, host in places:
        each = socket.socket(family, socket.SOCK_STREAM)
        try:
            if family == socket.AF_INET6:
                each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            each.bind((host, port))
        except OSError as error:
            each.close()
            if error.errno in _NOT_HERE:
                continue
            log.debug("port %s of %s: %s", port, host, error)
            for other in sockets:
                other.close()
            return []
        sockets.append(each)
    return sockets


MOST_HEAD = 16 << 10  # bytes
MOST_BODY = 64 << 10  # bytes; the largest body that clients send is a stop order
_CHUNK = 16 << 10  # bytes
_HEAD_SECONDS = 10.0  # for the whole head, even if it arrives slowly
_STRANGERS_HEAD_SECONDS = 3.0
_BODY_SECONDS = 10.0
_ANSWER_SECONDS = 30.0  # for the answer, including the time to read the body
_SEND_SECONDS = 20.0
_LINGER_SECONDS = 2.0  # wait for the client's close, because an earlier close by the server could lose the answer

ReadBody = Callable[[], Awaitable[bytes]]
Answer = Callable[[str, Head, ReadBody], Awaitable[HttpResponse]]
"""Function that answers a request. Arguments: client address, head, function to read the body. May raise HttpError."""

_COMMON_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Connection": "close"}


class _BrokenOff(Exception):  # noqa: N818
    """The client has closed the connection."""


class HttpConnection:
    """One HTTP connection, closed after one request.

    YARN's proxy opens a connection for each request.
    """

    def __init__(
        self,
        source: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        answer: Answer,
        *,
        stranger: bool = False,
    ) -> None:
        """``stranger`` means that the address is not expected, so the client has less time."""
        self.source = source
        self.waits = True  # the server waits for the rest of the request, or for the client's close
        self._stranger = stranger
        self._reader = reader
        self._writer = writer
        self._answer = answer
        writer.transport.set_write_buffer_limits(0)  # so that ``drain`` waits until everything is sent
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_HEAD)
        self._is_head = False

    def give_up(self) -> None:
        """Close the connection immediately, which also ends ``serve``."""
        self._writer.transport.abort()

    async def serve(self) -> None:
        """Read the request, answer it, and close the connection. Raises only CancelledError."""
        try:
            if response := await self._respond():
                self.waits = False
                await wait_with_timeout(self._send(response), _SEND_SECONDS)
                self.waits = True
                await self._close()
        except (_BrokenOff, OSError, asyncio.TimeoutError) as error:
            log.debug("a connection broke off: %r", error)
        finally:
            if not self._writer.is_closing():
                self._writer.transport.abort()  # loses nothing: the answer is sent, or the client does not read it

    async def _respond(self) -> Optional[HttpResponse]:
        """Return the response, or None if no request arrived. Raises _BrokenOff."""
        try:
            head = await self._head()
            if head is None:
                return None
            self.waits = False
            return await wait_with_timeout(self._answer(self.source, head, self._body), _ANSWER_SECONDS)
        except HttpError as error:
            return error.response()
        except h11.RemoteProtocolError as error:
            return HttpError(error.error_status_hint, f"the request is not valid HTTP/1.1: {error}").response()
        except asyncio.TimeoutError:
            return HttpError(HTTPStatus.SERVICE_UNAVAILABLE, "the application master is too busy").response()
        except _BrokenOff:
            raise
        except Exception:
            log.exception("internal error while answering a request")
            return HttpError(
                HTTPStatus.INTERNAL_SERVER_ERROR, "internal error; see the application master's log"
            ).response()

    # ---- receiving ---------------------------------------------------------------------------------------------

    async def _head(self) -> Optional[Head]:
        event = await self._next(_deadline(_STRANGERS_HEAD_SECONDS if self._stranger else _HEAD_SECONDS))
        if not isinstance(event, h11.Request):
            return None
        self._is_head = event.method == b"HEAD"
        path, _, query = event.target.decode("latin-1").partition("?")
        return Head(
            method=event.method.decode("latin-1"),
            path=unquote(path, errors="replace"),
            query=query,
            headers=tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in event.headers),
        )

    async def _body(self) -> bytes:
        """Return the body. Raises HttpError, h11.RemoteProtocolError, _BrokenOff."""
        deadline = _deadline(_BODY_SECONDS)
        body = bytearray()
        self.waits = True
        try:
            while isinstance(event := await self._next(deadline), h11.Data):
                body += event.data
                if len(body) > MOST_BODY:
                    raise HttpError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the request has more than {MOST_BODY} bytes")
        finally:
            self.waits = False
        return bytes(body)

    async def _next(self, deadline: float) -> object:
        """Return h11's next event."""
        while True:
            event = self._http.next_event()
            if event is not h11.NEED_DATA:
                return event
            if self._http.they_are_waiting_for_100_continue:
                go_on = h11.InformationalResponse(status_code=HTTPStatus.CONTINUE, headers=[])
                self._writer.write(self._http.send(go_on) or b"")
            self._http.receive_data(await self._read(deadline))

    async def _read(self, deadline: float) -> bytes:
        try:
            return await wait_with_timeout(self._reader.read(_CHUNK), deadline - loop_time())
        except asyncio.TimeoutError as error:
            raise HttpError(HTTPStatus.REQUEST_TIMEOUT, "the request did not arrive in time") from error
        except OSError as error:
            raise _BrokenOff(str(error)) from error

    # ---- answering ---------------------------------------------------------------------------------------------

    async def _send(self, response: HttpResponse) -> None:
        headers = {
            "Content-Type": response.content_type,
            "Content-Length": str(len(response.body)),
            **_COMMON_HEADERS,
            **response.headers,
        }
        self._write(h11.Response(status_code=response.status, headers=list(headers.items())))
        if not self._is_head:
            self._write(h11.Data(data=response.body))
        self._write(h11.EndOfMessage())
        await self._writer.drain()

    def _write(self, event: h11.Event) -> None:
        self._writer.write(self._http.send(event) or b"")

    async def _close(self) -> None:
        if self._writer.can_write_eof():
            self._writer.write_eof()
            await wait_with_timeout(self._until_closed(), _LINGER_SECONDS)
        else:  # TLS closes with a message that replaces EOF
            self._writer.close()
            await wait_with_timeout(self._writer.wait_closed(), _LINGER_SECONDS)

    async def _until_closed(self) -> None:
        while await self._reader.read(_CHUNK):
            pass


def _deadline(seconds: float) -> float:
    return loop_time() + seconds


class Visit(Protocol):
    """A connection in a ``ConnectionSlots``."""

    @property
    def source(self) -> str:
        """The client's address."""

    @property
    def waits(self) -> bool:
        """Whether the server waits for the client: for the rest of its request, or for its close."""

    def give_up(self) -> None:
        """Close the connection in any state."""


@attrs.define(eq=False)
class ConnectionSlots:
    """Limits the number of concurrent connections, in total and from one address.

    At a limit, a new connection replaces the oldest connection that waits for its client. At the limit for an address,
    it replaces only a connection from the same address. So slow or incomplete requests cannot block clients that send
    their request at once.
    """

    most: int  # limit in total
    of_one: int  # limit for one address
    _visits: dict[Visit, None] = attrs.field(factory=dict)  # oldest first

    def admit(self, visit: Visit) -> bool:
        """Give the connection a slot. Return False if all slots are taken and no connection can be replaced."""
        of_one = [each for each in self._visits if each.source == visit.source]
        rivals: Iterable[Visit] = ()
        if len(of_one) >= self.of_one:
            rivals = of_one
        elif len(self._visits) >= self.most:
            rivals = self._visits
        if rivals:
            leaves = next((each for each in rivals if each.waits), None)
            if leaves is None:
                return False
            self.leave(leaves)
            leaves.give_up()
        self._visits[visit] = None
        return True

    def leave(self, visit: Visit) -> None:
        self._visits.pop(visit, None)
