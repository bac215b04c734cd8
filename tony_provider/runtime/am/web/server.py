"""The application master's HTTP server, on this node's own address."""

from __future__ import annotations

import asyncio
import errno
import logging
import random
import socket
import ssl
from collections.abc import Iterable
from typing import Any, Callable, Optional

import attrs

from tony_provider.runtime.address import Address
from tony_provider.runtime.am.allowance import Allowance
from tony_provider.runtime.am.web.http_connection import Answer, Connection
from tony_provider.runtime.am.web.slots import Slots
from tony_provider.runtime.spec.model import PortRange

log = logging.getLogger(__name__)

_MOST_PORTS = 1000  # tries
_MOST_EXPECTED = 192  # connections from addresses that may be answered, such as the proxy's
_MOST_STRANGERS = 32  # from all others together
_MOST_OF_A_STRANGER = 8  # from one of these addresses
_STRANGERS_A_SECOND = 50.0  # more are closed at once: to hear them takes time that others wait
_BACKLOG = 1024
_AT_ONCE = 64  # connections that are accepted before others have the loop
_REST = 1.0  # seconds after which it is tried again where none can be accepted
_HANDSHAKE = 5.0  # seconds for TLS
_STRANGERS_HANDSHAKE = 2.0
# Likewise where they begin with a handshake: so few that one which is made at once is over long before as many have
# come as there are places.
_HANDSHAKES_AT_ONCE = 16
_GOODBYE = 2.0  # seconds for the answers on their way when the server ends
_NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)  # such as an IPv6 address where IPv6 is off


def _everybody(source: str) -> bool:
    return True


class WebServer:
    """An HTTP server whose port is held from the beginning, and that serves from ``start`` on."""

    def __init__(self, address: Address, sockets: list[socket.socket], tls: Optional[ssl.SSLContext] = None) -> None:
        self.address = address
        self._tls = tls
        self._sockets = sockets
        self._answer: Optional[Answer] = None
        self._expects: Callable[[str], bool] = _everybody
        self._connections: set[asyncio.Task[None]] = set()
        self._expected = Slots(_MOST_EXPECTED, _MOST_EXPECTED)
        self._strangers = Slots(_MOST_STRANGERS, _MOST_OF_A_STRANGER)
        # Whoever has come through is the proxy, by its certificate: those that have not take none of its places.
        self._handshakes = Slots(_MOST_EXPECTED, _MOST_EXPECTED)
        self._strangers_handshakes = Slots(_MOST_STRANGERS, _MOST_OF_A_STRANGER)
        self._resting: dict[socket.socket, asyncio.TimerHandle] = {}  # those of which none can be accepted just now
        self._newcomers = Allowance(_STRANGERS_A_SECOND, _MOST_STRANGERS)
        self._serves = False
        self._told = False  # that none could be accepted

    @classmethod
    async def bind(cls, host: str, ports: PortRange, tls: Optional[ssl.SSLContext] = None) -> WebServer:
        """A server on ``host`` only, on a free port of the range, over https with ``tls``.

        Raises OSError when there is none.
        """
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
        places = list(dict.fromkeys((family, str(address[0])) for family, _, _, _, address in found))
        every = range(ports.first, ports.last + 1)
        for port in random.sample(every, min(len(every), _MOST_PORTS)):
            sockets = _bound(places, port)
            if sockets:
                return cls(Address(host, port), sockets, tls)
        raise OSError(
            f"the application master's page found no free port on {host} in {ports.first}-{ports.last} (port_range)"
        )

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://{self.address}/"

    async def start(self, answer: Answer, expects: Callable[[str], bool] = _everybody) -> None:
        """Serve; called again, answer otherwise from then on.

        ``expects`` says of an address whether anybody may be answered there. Others, strangers, have few places and
        little time, and keep nobody else from being heard.
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
            except OSError as error:  # such as too many open files: it is the next look that may find better times
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
            log.warning("no connection to the page can be accepted at present: %s", error)

    def _begin(self, accepted: socket.socket, source: str) -> None:
        expected = self._expects(source)
        if not expected and not self._newcomers.take_if_free(1, asyncio.get_running_loop().time()):
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
        connection = Connection(source, reader, writer, self._answer, stranger=not expected)
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
        """The connection's two ends, after the handshake; None: there is no place for one. Raises OSError."""
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
        error = None if task.cancelled() else task.exception()
        if error:
            log.error("a connection from %s has failed", source, exc_info=error)


@attrs.define(eq=False)
class _Handshake:
    """A connection that is not one yet, as far as its place is concerned."""

    source: str
    _task: Optional[asyncio.Task[Any]]
    waits: bool = True

    def give_up(self) -> None:
        if self._task is not None:
            self._task.cancel()


def _bound(places: Iterable[tuple[int, str]], port: int) -> list[socket.socket]:
    """A socket on this port for every address; none when one of them is taken.

    Not with SO_REUSEADDR: two could bind the port then, and the second would learn of it when it listens.
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
