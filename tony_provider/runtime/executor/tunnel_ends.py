"""The executor's ends of tunnels: connections to servers of this container, for users on other machines."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

from tony_provider.runtime.deadline import within
from tony_provider.runtime.executor.link import Link
from tony_provider.runtime.executor.peers import NotThereError, StrangerError, expect_own
from tony_provider.runtime.frameworks.base import MAIN_PORT
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.spec.model import PortRange
from tony_provider.runtime.tunnel.relay import Relay

_BATCH = 256 << 10  # bytes of one message to the master
_PAUSE = 0.02  # seconds between two of them: heartbeats get in between, and the master reads so many
_LOOPBACK = ("127.0.0.1", "::1")
_CONNECT = 5.0  # seconds


class TunnelEnds:
    """The executor's ends of the streams that its master opens. Used within a running event loop; ``close`` it.

    They connect to ports that the task was given, or that are in the job's ``port_range``. They reach only servers of
    this container, because containers of the user's other jobs may listen on the same node.
    """

    def __init__(self, link: Link, ports: Mapping[str, int], port_range: PortRange, host: str) -> None:
        """``host``: by which other nodes know this one; a server may listen on its address only."""
        self._link = link
        self._ports = ports
        self._range = port_range
        self._hosts = (*_LOOPBACK, host)
        self._relays: dict[int, Relay] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._outgoing: list[tony_pb2.TunnelFrame] = []
        self._era = 0  # counts the streams to masters: what is left of a former one is not said to the next
        self._more = asyncio.Event()
        self._sending: asyncio.Future[None] = asyncio.ensure_future(self._send_all())

    def begin(self) -> None:
        """A stream to a master has begun: it knows nothing of what there was before."""
        for task in self._tasks:
            task.cancel()
        self._era += 1
        self._relays.clear()
        self._outgoing.clear()
        self._sending.cancel()  # it may wait for what will never be sent
        self._sending = asyncio.ensure_future(self._send_all())

    def take(self, frames: tony_pb2.TunnelFrames) -> None:
        """What the master sends. Raises nothing."""
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
        """Raises OSError, whose message is for the user."""
        if port not in self._ports.values() and not self._range.first <= port <= self._range.last:
            raise OSError(
                f"port {port} is not of this task: tunnels lead to ports that it was given (TONY_PORT), or that are in "
                f"the job's port_range, {self._range.first}-{self._range.last}"
            )
        problem = f"nobody listens on port {port} of this task's node"
        for host in self._hosts:
            try:
                reader, writer = await within(asyncio.open_connection(host, port), _CONNECT)
            except (OSError, asyncio.TimeoutError):
                continue
            try:
                await expect_own(writer.get_extra_info("socket"), port)
            except (NotThereError, StrangerError) as error:
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
        """What has come together since the last message goes in the next. Windows bound it while the master is away."""
        while True:
            await self._more.wait()
            self._more.clear()
            while self._outgoing:
                self._link.send(tony_pb2.FromExecutor(tunnel=tony_pb2.TunnelFrames(frames=self._batch())))
                await self._link.sent()
                await asyncio.sleep(_PAUSE)

    def _batch(self) -> list[tony_pb2.TunnelFrame]:
        count = size = 0
        while count < len(self._outgoing) and size < _BATCH:
            size += self._outgoing[count].ByteSize()
            count += 1
        batch = self._outgoing[:count]
        del self._outgoing[:count]
        return batch
