"""Access from other machines to servers of this container: the executor's ends of tunnels, and TensorBoard pages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from http import HTTPStatus

import attrs
import h11

from tony_provider.runtime.common.concurrency import wait_with_timeout
from tony_provider.runtime.executor.master_link import MasterLink
from tony_provider.runtime.executor.ports import ForeignListenerError, NoListenerError, expect_own
from tony_provider.runtime.frameworks.base import MAIN_PORT
from tony_provider.runtime.jobspec.model import PortRange
from tony_provider.runtime.protocol import limits, tony_pb2
from tony_provider.runtime.protocol.tunnel_streams import Relay

log = logging.getLogger(__name__)


_BATCH = 256 << 10  # bytes of one message to the master, at most
_PAUSE = 0.02  # seconds between two messages, so that heartbeats are sent in between and the master keeps up
_LOOPBACK = ("127.0.0.1", "::1")
_CONNECT = 5.0  # seconds


class TunnelEnds:
    """The executor's ends of the streams that its master opens. Use it within a running event loop, and call ``close``.

    The ends connect to the task's reserved ports, and to ports in the job's ``port_range``. They refuse servers outside
    this container, because containers of the user's other jobs may listen on the same node.
    """

    def __init__(self, link: MasterLink, ports: Mapping[str, int], port_range: PortRange, host: str) -> None:
        """Create the ends. ``host``: the node's name on the network, because a server may listen only there."""
        self._link = link
        self._ports = ports
        self._range = port_range
        self._hosts = (*_LOOPBACK, host)
        self._relays: dict[int, Relay] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._outgoing: list[tony_pb2.TunnelFrame] = []
        self._era = 0  # number of the stream to a master; frames for a former stream are dropped
        self._more = asyncio.Event()
        self._sending: asyncio.Future[None] = asyncio.ensure_future(self._send_all())

    def begin(self) -> None:
        """Drop all connections. Call this when a stream to a master begins: that master does not know them."""
        for task in self._tasks:
            task.cancel()
        self._era += 1
        self._relays.clear()
        self._outgoing.clear()
        self._sending.cancel()  # it may wait for a message that will never be sent
        self._sending = asyncio.ensure_future(self._send_all())

    def take(self, frames: tony_pb2.TunnelFrames) -> None:
        """Handle frames of the master. Raises nothing."""
        for frame in frames.frames:
            if frame.WhichOneof("kind") == "open":
                self._open(frame.stream, frame.open.port)
            elif (relay := self._relays.get(frame.stream)) is not None:
                relay.take(frame)

    async def close(self) -> None:
        for task in (*self._tasks, self._sending):
            task.cancel()
        await asyncio.gather(*self._tasks, self._sending, return_exceptions=True)

    def _open(self, stream: int, port: int) -> None:
        relay = self._relays[stream] = Relay(stream, partial(self._send, self._era))
        task = asyncio.ensure_future(self._relay(stream, relay, port or self._ports[MAIN_PORT]))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _relay(self, stream: int, relay: Relay, port: int) -> None:
        try:
            reader, writer = await self._connect(port)
            await relay.run(reader, writer)
        except OSError as error:
            self._send(self._era, tony_pb2.TunnelFrame(stream=stream, closed=str(error)))
        finally:
            if self._relays.get(stream) is relay:
                del self._relays[stream]

    async def _connect(self, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a port of this container. Raises OSError with a message for the user."""
        if port not in self._ports.values() and not self._range.first <= port <= self._range.last:
            raise OSError(
                f"port {port} is not of this task: tunnels lead to the assigned ports (TONY_PORT) and to ports in "
                f"the job's port_range, {self._range.first}-{self._range.last}"
            )
        problem = f"no process listens on port {port} of this task's node"
        for host in self._hosts:
            try:
                reader, writer = await wait_with_timeout(asyncio.open_connection(host, port), _CONNECT)
            except (OSError, asyncio.TimeoutError):
                continue
            try:
                await expect_own(writer.get_extra_info("socket"), port)
            except (NoListenerError, ForeignListenerError) as error:
                problem = str(error)
            else:
                return reader, writer
            writer.transport.abort()
        raise OSError(problem)

    def _send(self, era: int, frame: tony_pb2.TunnelFrame) -> None:
        if era == self._era:
            self._outgoing.append(frame)
            self._more.set()

    async def _send_all(self) -> None:
        """Send the frames that have accumulated since the last message.

        While the master is unreachable, the flow-control windows of the tunnels limit the size of these frames.
        """
        while True:
            await self._more.wait()
            self._more.clear()
            while self._outgoing:
                self._link.send(tony_pb2.FromExecutor(tunnel=tony_pb2.TunnelFrames(frames=self._batch())))
                await self._link.flush()
                await asyncio.sleep(_PAUSE)

    def _batch(self) -> list[tony_pb2.TunnelFrame]:
        count = size = 0
        while count < len(self._outgoing) and size < _BATCH:
            size += self._outgoing[count].ByteSize()
            count += 1
        batch = self._outgoing[:count]
        del self._outgoing[:count]
        return batch


_CHUNK = 64 << 10  # bytes
_HOST = "127.0.0.1"

Headers = Sequence[tuple[str, str]]


class NoPageError(Exception):
    """The answer from the port is invalid or too long."""


@attrs.frozen
class FetchedPage:
    """The answer of a server at the loopback."""

    status: int
    headers: dict[str, str]  # by names in lower case
    body: bytes


async def fetch_page(
    port: int, method: str, target: str, headers: Headers, body: bytes, *, size_limit: int
) -> FetchedPage:
    """Send one request to a server of this container, and return the answer. ``target``: path and query.

    Raises NoListenerError, ForeignListenerError, NoPageError.
    """
    try:
        reader, writer = await asyncio.open_connection(_HOST, port)
    except OSError as error:
        raise NoListenerError(str(error)) from error
    http = h11.Connection(h11.CLIENT)
    try:
        # Check before sending the path, because the path is a secret, and a browser shows the answer.
        await expect_own(writer.get_extra_info("socket"), port)
        own = [("Host", f"{_HOST}:{port}"), ("Connection", "close"), ("Content-Length", str(len(body)))]
        for event in (
            h11.Request(method=method, target=target, headers=[*own, *headers]),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            writer.write(http.send(event) or b"")
        return await _receive(http, reader, size_limit)
    except (h11.LocalProtocolError, UnicodeEncodeError) as error:
        raise NoPageError(f"the request is invalid: {error}") from error
    except h11.RemoteProtocolError as error:
        raise NoPageError(f"the answer is not valid HTTP: {error}") from error
    except OSError as error:
        raise NoPageError(f"the connection broke: {error}") from error
    finally:
        writer.transport.abort()


async def _receive(http: h11.Connection, reader: asyncio.StreamReader, size_limit: int) -> FetchedPage:
    status, headers, body = 0, {}, bytearray()
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            http.receive_data(await reader.read(_CHUNK))
        elif isinstance(event, h11.Response):
            status = event.status_code
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > size_limit:
                raise NoPageError(f"the answer has more than {size_limit} bytes")
        elif isinstance(event, h11.EndOfMessage):
            return FetchedPage(status, headers, bytes(body))
        elif not isinstance(event, h11.InformationalResponse):
            raise NoPageError("the connection ended before the answer")


LARGEST_PAGE = limits.LARGEST_PAGE
_AT_ONCE = 4
_SECONDS = 20.0  # for one request, including the upload of the answer
_PIECE = 256 << 10  # bytes
_HEADERS = ("content-type", "content-encoding", "content-security-policy", "cache-control", "content-disposition")


class PageFetcher:
    """Answers the master's requests for pages of this container's TensorBoard. Use it within a running event loop."""

    def __init__(self, link: MasterLink, port: int, path: str) -> None:
        """Prepare the answers. ``path``: the secret path below which TensorBoard answers."""
        self._link = link
        self._port = port
        self._path = path
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._sending = asyncio.Lock()

    async def answer(self, wanted: tony_pb2.PageWanted) -> None:
        """Fetch a page and send it to the master, within ``_SECONDS``. Raises nothing."""
        try:
            await wait_with_timeout(self._answer(wanted), _SECONDS)
        except asyncio.TimeoutError:
            self._refuse(wanted, HTTPStatus.GATEWAY_TIMEOUT, f"TensorBoard did not answer within {_SECONDS:g} s")
        except NoListenerError as error:
            log.debug("no process listens at TensorBoard's port: %s", error)
            self._refuse(wanted, HTTPStatus.SERVICE_UNAVAILABLE, "TensorBoard does not listen yet")
        except (ForeignListenerError, NoPageError) as error:
            self._refuse(wanted, HTTPStatus.BAD_GATEWAY, str(error))

    async def _answer(self, wanted: tony_pb2.PageWanted) -> None:
        async with self._turns:
            page = await fetch_page(
                self._port,
                wanted.method,
                self._path + wanted.target,
                list(wanted.headers.items()),
                wanted.body,
                size_limit=LARGEST_PAGE,
            )
            await self._send(wanted.question, page)

    async def _send(self, question: int, page: FetchedPage) -> None:
        """Send a page in pieces, each after the former one is sent, so that heartbeats are sent in between."""
        headers = {name: page.headers[name] for name in _HEADERS if name in page.headers}
        message = tony_pb2.Page(question=question, status=page.status, headers=headers)
        for start in range(0, max(len(page.body), 1), _PIECE):
            message.data = page.body[start : start + _PIECE]
            message.last = start + _PIECE >= len(page.body)
            async with self._sending:
                self._link.send(tony_pb2.FromExecutor(page=message))
                await self._link.flush()
            message = tony_pb2.Page(question=question)

    def _refuse(self, wanted: tony_pb2.PageWanted, status: int, problem: str) -> None:
        page = tony_pb2.Page(question=wanted.question, status=status, problem=problem, last=True)
        self._link.send(tony_pb2.FromExecutor(page=page))
