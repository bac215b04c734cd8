"""Tunnel from a local port to a port of a task, through the application master.

A TaskTunnel listens on a local port and forwards its connections. It exchanges TLS-encrypted frames with the
application master through a TunnelConnection, which sends PUT requests and retries failed requests.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import itertools
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, TypeVar

import attrs

from tony_provider.cluster.errors import (
    ClusterUnreachable,
    MasterOutOfReach,
    TunnelEnded,
    TunnelLost,
    UnexpectedAnswer,
)
from tony_provider.cluster.interface import Application, Cluster
from tony_provider.runtime.common.codec import CodecError, from_plain, to_plain
from tony_provider.runtime.common.network import peer_users
from tony_provider.runtime.common.quantities import span
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.protocol.http_messages import PipeError, TlsEnd, TunnelAnswer, TunnelPart, client_context
from tony_provider.runtime.protocol.limits import TUNNEL_STREAMS, TUNNEL_UP, TUNNEL_WAIT
from tony_provider.runtime.protocol.tunnel_streams import (
    FrameError,
    FrameReader,
    OutOfStepError,
    ReceivedBytes,
    Relay,
    SentBytes,
    pack_frames,
)

T = TypeVar("T")

ACTION = "tunnel"
LOST_SECONDS = 60.0  # seconds without an answer of the master after which the tunnel ends
_ANSWER_SECONDS = TUNNEL_WAIT + 8.0  # time limit of one request; below the timeout of YARN's proxy (20 s)
_PAUSE = 1.0  # seconds before a failed request is retried
_GOODBYE = 3.0  # seconds for the request that closes the tunnel
_PIECE = 64 << 10  # maximum bytes of one read from TLS


@attrs.frozen
class MasterOfTunnel:
    """The master of a running application, to which a tunnel leads."""

    cluster: Cluster
    application_id: str
    authority: str  # the PEM certificate that authenticates the master


class TunnelConnection:
    """One tunnel to the master of a running application. Call ``run`` once, on an event loop.

    ``hear`` is called on the loop with each received frame.
    """

    def __init__(self, master: MasterOfTunnel, hear: Callable[[tony_pb2.TunnelFrame], None]) -> None:
        """Raises PipeError."""
        self._cluster = master.cluster
        self._application_id = master.application_id
        self._hear = hear
        self._name = secrets.token_hex(16)
        self._tls = TlsEnd(client_context(master.authority), master.application_id)
        self._taken, self._sent = ReceivedBytes(), SentBytes()
        self._reader = FrameReader()
        self._more = asyncio.Event()
        self._begun = asyncio.Event()  # set once the master has accepted the tunnel
        self.is_open = asyncio.Event()  # set once the master's certificate was also verified

    def send(self, frames: Iterable[tony_pb2.TunnelFrame]) -> None:
        """Send frames while the connection ``is_open``; otherwise discard them."""
        if self._tls.is_open:
            self._tls.write(pack_frames(frames))
            self._flush()

    async def run(self) -> None:
        """Exchange data with the master until cancelled.

        Raises TunnelLost if another tunnel can be opened, TunnelEnded if not, and other ClusterErrors.
        """
        self._flush()
        ways = [asyncio.ensure_future(way()) for way in (self._bring, self._fetch)]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                if way.done():
                    way.result()
        except (PipeError, FrameError, OutOfStepError) as error:
            raise UnexpectedAnswer(f"{self._application_id}: {error}") from error
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def say_goodbye(self) -> None:
        """Notify the master that the tunnel is closed. Ignore failures, because the master also closes idle tunnels."""
        part = to_plain(TunnelPart(self._name, self._sent.start, over=True))
        try:
            await in_thread(lambda: self._cluster.control(self._application_id, ACTION, part, seconds=_GOODBYE))
        except (MasterOutOfReach, ClusterUnreachable, UnexpectedAnswer):
            return

    async def _bring(self) -> None:
        """Send outgoing data to the master, piece by piece."""
        while True:
            await self._more.wait()
            self._more.clear()
            while self._sent.held:
                start = self._sent.start
                data = base64.b64encode(self._sent.after(start, TUNNEL_UP)).decode()
                answer = await self._ask(TunnelPart(self._name, start, data))
                self._begun.set()
                self._sent.arrived(answer.received)

    async def _fetch(self) -> None:
        """Fetch the master's data as it arrives."""
        await self._begun.wait()  # only a request with data can open a tunnel
        while True:
            offset = self._taken.count
            answer = await self._ask(TunnelPart(self._name, self._sent.start, received=offset))
            try:
                new = self._taken.take(offset, base64.b64decode(answer.data, validate=True))
            except binascii.Error as error:
                raise UnexpectedAnswer(f"the master of {self._application_id} sent invalid base64") from error
            if new:
                self._take(new)

    def _take(self, data: bytes) -> None:
        self._tls.take(data)
        self._flush()
        if self._tls.is_open:
            self.is_open.set()
        while said := self._tls.read(_PIECE):
            for frame in self._reader.take(said):
                self._hear(frame)

    def _flush(self) -> None:
        if out := self._tls.outgoing():
            self._sent.add(out)
            self._more.set()

    async def _ask(self, part: TunnelPart) -> TunnelAnswer:
        """Send one part until the master answers; return its answer."""
        body, deadline = to_plain(part), time.monotonic() + LOST_SECONDS
        while True:
            try:
                answer = await in_thread(
                    lambda: self._cluster.control(self._application_id, ACTION, body, seconds=_ANSWER_SECONDS)
                )
                return self._not_over(from_plain(answer, TunnelAnswer))
            except CodecError as error:
                raise UnexpectedAnswer(f"the master of {self._application_id} sent a bad answer: {error}") from error
            except UnexpectedAnswer as error:
                if self._begun.is_set():
                    raise TunnelLost(str(error)) from error
                raise
            except (MasterOutOfReach, ClusterUnreachable) as error:
                await in_thread(lambda: expect_running(self._cluster, self._application_id))
                if time.monotonic() + _PAUSE >= deadline:
                    message = f"the tunnel to {self._application_id} is closed after {span(LOST_SECONDS)}: {error}"
                    raise TunnelEnded(message) from error
            await asyncio.sleep(_PAUSE)

    def _not_over(self, answer: TunnelAnswer) -> TunnelAnswer:
        if answer.over:
            raise TunnelEnded(f"the tunnel to {self._application_id} has ended: {answer.over}")
        return answer


def expect_running(cluster: Cluster, application_id: str) -> None:
    """Check that the application has not ended. Raises TunnelEnded."""
    try:
        found: Application | None = cluster.application(application_id)
    except ClusterUnreachable:
        return
    if found is None or found.is_final:
        raise TunnelEnded(f"{application_id} has ended" + (f" as {found.state.value}" if found else ""))


async def in_thread(work: Callable[[], T]) -> T:
    """Return the result of a slow call. A daemon thread runs it, so it does not delay the exit of the process."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if not done.done():
            if error is None:
                done.set_result(result)
            else:
                done.set_exception(error)

    def run() -> None:
        try:
            found, problem = work(), None
        except BaseException as error:  # noqa: BLE001 - raised in the caller
            found, problem = None, error
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, found, problem)

    threading.Thread(target=run, name="tunnel", daemon=True).start()
    return await done  # type: ignore[no-any-return]


HOST = "127.0.0.1"
_JOIN_SECONDS = 5.0
_LOOK = 0.2  # seconds between two checks whether the caller has set ``over``


class TaskTunnel:
    """Context manager that listens on a port of this machine and forwards its connections to a port of a task.

    The tunnel runs in a separate thread. It accepts only connections from processes of this user, because other users
    of this machine can also reach the port.
    """

    def __init__(
        self,
        master: MasterOfTunnel,
        task: str,
        port: int = 0,
        *,
        local_port: int = 0,
        report: Callable[[str], None] = lambda news: None,
        over: threading.Event | None = None,
    ) -> None:
        """``port`` is the task's port, or 0 for its first reserved port. ``local_port`` 0 selects any free port.

        The tunnel's thread calls ``report`` with messages for users. Set ``over`` to stop waiting for a tunnel that is
        not open yet.
        """
        self._master = master
        self._open = tony_pb2.TunnelOpen(task=task, port=port)
        self._local_port = local_port
        self._report = report
        self._unwanted = over or threading.Event()
        self._numbers = itertools.count(1)
        self._relays: dict[int, Relay] = {}
        self._connections: set[asyncio.Task[None]] = set()
        self._carrier: TunnelConnection | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._work: asyncio.Task[None] | None = None
        self._ready = threading.Event()
        self._over = threading.Event()
        self._problem: Exception | None = None
        self._reported: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="tunnel", daemon=True)

    @property
    def port(self) -> int:
        """The port on which the tunnel listens on this machine."""
        return self._local_port

    def __enter__(self) -> TaskTunnel:
        """Start the tunnel; return once it accepts connections, or once ``over`` is set.

        Raises ClusterError, or OSError if the port is in use.
        """
        self._thread.start()
        while not self._ready.wait(_LOOK) and not self._unwanted.is_set():
            pass
        if self._problem is not None:
            raise self._problem
        return self

    def __exit__(self, *_: object) -> None:
        if self._loop is not None and self._work is not None:
            with suppress(RuntimeError):  # the event loop has already ended
                self._loop.call_soon_threadsafe(self._work.cancel)
        self._thread.join(_JOIN_SECONDS)

    def wait(self, seconds: float) -> bool:
        """Wait up to ``seconds`` for the tunnel's end. Return whether it has ended. Raises the error that ended it."""
        over = self._over.wait(seconds)
        if over and self._problem is not None:
            raise self._problem
        return over

    # ---- in the tunnel's thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except asyncio.CancelledError:
            pass
        except PipeError as error:
            self._problem = TunnelEnded(str(error))
        except Exception as error:  # noqa: BLE001 - raised by ``wait``
            self._problem = error
        finally:
            self._over.set()
            self._ready.set()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._work = asyncio.current_task()
        server = await asyncio.start_server(self._accept, HOST, self._local_port)
        try:
            self._local_port = server.sockets[0].getsockname()[1]
            await self._carry()
        finally:
            server.close()
            await self._close_connections()
            if self._carrier is not None:
                await self._carrier.say_goodbye()

    async def _carry(self) -> None:
        """Open a tunnel, and reopen it whenever it is lost, as long as the application runs."""
        while True:
            self._carrier = carrier = TunnelConnection(self._master, self._hear)
            carrying = asyncio.ensure_future(carrier.run())
            opened = asyncio.ensure_future(carrier.is_open.wait())
            try:
                await asyncio.wait({carrying, opened}, return_when=asyncio.FIRST_COMPLETED)
                if not carrying.done():
                    self._ready.set()
                await carrying
            except TunnelLost as error:
                await in_thread(lambda: expect_running(self._master.cluster, self._master.application_id))
                self._report(f"reopening the tunnel after an interruption: {error}")
                await self._close_connections()
            finally:
                opened.cancel()
                carrying.cancel()
                await asyncio.gather(carrying, opened, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a callback of asyncio's server
        self._connections.add(task)
        try:
            await self._pass_through(reader, writer)
        except asyncio.CancelledError:
            pass  # asyncio's server would log the cancellation as an error
        finally:
            self._connections.discard(task)
            if not writer.is_closing():
                writer.transport.abort()

    async def _pass_through(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        carrier = self._carrier
        if carrier is None or not carrier.is_open.is_set():
            return
        if await asyncio.to_thread(peer_users, writer.get_extra_info("socket")) != {os.getuid()}:
            self._report_once("rejected a connection of another user's process on this machine")
            return
        if len(self._relays) >= TUNNEL_STREAMS:
            self._report_once(f"rejected a connection: at most {TUNNEL_STREAMS} may be open at the same time")
            return
        number = next(self._numbers)
        relay = self._relays[number] = Relay(number, lambda frame: carrier.send([frame]))
        try:
            carrier.send([tony_pb2.TunnelFrame(stream=number, open=self._open)])
            await relay.run(reader, writer)
        finally:
            del self._relays[number]
            if relay.why:
                self._report_once(relay.why)

    def _hear(self, frame: tony_pb2.TunnelFrame) -> None:
        if (relay := self._relays.get(frame.stream)) is not None:
            relay.take(frame)

    async def _close_connections(self) -> None:
        connections = list(self._connections)
        for each in connections:
            each.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    def _report_once(self, news: str) -> None:
        if news not in self._reported:
            self._reported.add(news)
            self._report(news)
