"""The application master's HTTP server, on this node's own address."""

from __future__ import annotations

import asyncio
import errno
import logging
import random
import socket
import ssl
from collections import Counter
from collections.abc import Iterable
from typing import Optional

from tony_provider.runtime.address import Address
from tony_provider.runtime.am.web.http_connection import Answer, Connection
from tony_provider.runtime.spec.model import PortRange

log = logging.getLogger(__name__)

_MOST_PORTS = 1000  # tries
_MOST_CONNECTIONS = 256
_MOST_OF_ONE = 64  # connections from one address, so that a stranger does not keep the proxy out
_BACKLOG = 64
_HANDSHAKE = 5.0  # seconds for TLS
_GOODBYE = 2.0  # seconds for the answers on their way when the server ends
_NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)  # such as an IPv6 address where IPv6 is off


class WebServer:
    """An HTTP server whose port is held from the beginning, and that serves from ``start`` on."""

    def __init__(self, address: Address, sockets: list[socket.socket], tls: Optional[ssl.SSLContext] = None) -> None:
        self.address = address
        self._tls = tls
        self._sockets = sockets
        self._answer: Optional[Answer] = None
        self._servers: list[asyncio.AbstractServer] = []
        self._connections: set[asyncio.Task[None]] = set()
        self._sources: Counter[str] = Counter()

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

    async def start(self, answer: Answer) -> None:
        """Serve; called again, answer otherwise from then on."""
        self._answer = answer
        if self._servers:
            return
        for each in self._sockets:
            handshake = _HANDSHAKE if self._tls else None
            self._servers.append(
                await asyncio.start_server(
                    self._accept, sock=each, backlog=_BACKLOG, ssl=self._tls, ssl_handshake_timeout=handshake
                )
            )

    async def stop(self) -> None:
        """Stop serving. Idempotent."""
        for server in self._servers:
            server.close()
        for each in self._sockets:
            each.close()
        if self._connections:
            await asyncio.wait(self._connections, timeout=_GOODBYE)
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        name = writer.get_extra_info("peername")
        source = str(name[0]) if name else ""
        if self._answer is None or len(self._connections) >= _MOST_CONNECTIONS or self._sources[source] >= _MOST_OF_ONE:
            writer.transport.abort()
            return
        task = asyncio.ensure_future(Connection(source, reader, writer, self._answer).serve())
        self._connections.add(task)
        self._sources[source] += 1
        task.add_done_callback(lambda task: self._over(task, source))

    def _over(self, task: asyncio.Task[None], source: str) -> None:
        self._connections.discard(task)
        self._sources[source] -= 1
        if not self._sources[source]:
            del self._sources[source]
        error = None if task.cancelled() else task.exception()
        if error:
            log.error("a connection from %s has failed", source, exc_info=error)


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
