"""The way of one tunnel to the master: frames in TLS, in PUT requests that are sent again where they fail."""

from __future__ import annotations

import asyncio
import base64
import binascii
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from tony_provider.cluster.base import Application, Cluster
from tony_provider.cluster.errors import ClusterUnreachable, MasterOutOfReach, UnexpectedAnswer
from tony_provider.cluster.tunnel.errors import TunnelEnded, TunnelLost
from tony_provider.runtime.codec import CodecError, from_plain, to_plain
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.protocol.limits import TUNNEL_UP, TUNNEL_WAIT
from tony_provider.runtime.protocol.tunnel_part import TunnelAnswer, TunnelPart
from tony_provider.runtime.quantities import span
from tony_provider.runtime.sealed.tls_pipe import PipeError, TlsEnd, client_context
from tony_provider.runtime.tunnel.frames import FrameError, FrameReader, packed
from tony_provider.runtime.tunnel.ordered_bytes import OutOfStepError, SentBytes, TakenBytes

T = TypeVar("T")

ACTION = "tunnel"
LOST_SECONDS = 60.0  # without an answer, after which a tunnel is given up
_ANSWER_SECONDS = TUNNEL_WAIT + 8.0  # for one request; a proxy gives up after 20 s
_PAUSE = 1.0  # seconds before a request is sent again
_GOODBYE = 3.0  # seconds for the last one
_PIECE = 64 << 10  # bytes read of TLS at once


class Carrier:
    """One tunnel to the master of a running application. ``run`` it once, on an event loop.

    ``hear`` is called on the loop with each frame that comes.
    """

    def __init__(
        self, cluster: Cluster, application_id: str, authority: str, hear: Callable[[tony_pb2.TunnelFrame], None]
    ) -> None:
        """``authority``: PEM, the certificate that vouches for the master. Raises PipeError."""
        self._cluster = cluster
        self._application_id = application_id
        self._hear = hear
        self._name = secrets.token_hex(16)
        self._tls = TlsEnd(client_context(authority), application_id)
        self._taken, self._sent = TakenBytes(), SentBytes()
        self._reader = FrameReader()
        self._more = asyncio.Event()
        self._begun = asyncio.Event()  # the master has taken it in
        self.is_open = asyncio.Event()  # and has proved to be the one

    def send(self, frames: Iterable[tony_pb2.TunnelFrame]) -> None:
        """Send frames, once ``is_open``. Before and after, they go nowhere."""
        if self._tls.is_open:
            self._tls.write(packed(frames))
            self._flush()

    async def run(self) -> None:
        """Carry until cancelled.

        Raises TunnelLost where another tunnel may do better, TunnelEnded, ClusterError.
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
        """Tell the master that nobody needs the tunnel any more. Raises nothing: it finds out by itself, too."""
        part = to_plain(TunnelPart(self._name, self._sent.start, over=True))
        try:
            await in_thread(lambda: self._cluster.control(self._application_id, ACTION, part, seconds=_GOODBYE))
        except (MasterOutOfReach, ClusterUnreachable, UnexpectedAnswer):
            return

    async def _bring(self) -> None:
        """What goes to the master, piece by piece."""
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
        """What the master has, as it comes."""
        await self._begun.wait()  # the first request brings something
        while True:
            offset = self._taken.count
            answer = await self._ask(TunnelPart(self._name, self._sent.start, received=offset))
            try:
                new = self._taken.take(offset, base64.b64decode(answer.data, validate=True))
            except binascii.Error as error:
                raise UnexpectedAnswer(f"the master of {self._application_id} sends what is no base64") from error
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
        """The master's answer, however often it takes to get one."""
        body, deadline = to_plain(part), time.monotonic() + LOST_SECONDS
        while True:
            try:
                answer = await in_thread(
                    lambda: self._cluster.control(self._application_id, ACTION, body, seconds=_ANSWER_SECONDS)
                )
                return self._not_over(from_plain(answer, TunnelAnswer))
            except CodecError as error:
                raise UnexpectedAnswer(f"the master of {self._application_id} does not answer so: {error}") from error
            except UnexpectedAnswer as error:
                if self._begun.is_set():
                    raise TunnelLost(str(error)) from error
                raise
            except (MasterOutOfReach, ClusterUnreachable) as error:
                await in_thread(lambda: expect_running(self._cluster, self._application_id))
                if time.monotonic() + _PAUSE >= deadline:
                    message = f"the tunnel to {self._application_id} is given up after {span(LOST_SECONDS)}: {error}"
                    raise TunnelEnded(message) from error
            await asyncio.sleep(_PAUSE)

    def _not_over(self, answer: TunnelAnswer) -> TunnelAnswer:
        if answer.over:
            raise TunnelEnded(f"the tunnel to {self._application_id} has ended: {answer.over}")
        return answer


def expect_running(cluster: Cluster, application_id: str) -> None:
    """Raises TunnelEnded for an application that has ended."""
    try:
        found: Application | None = cluster.application(application_id)
    except ClusterUnreachable:
        return
    if found is None or found.is_final:
        raise TunnelEnded(f"{application_id} has ended" + (f" as {found.state.value}" if found else ""))


async def in_thread(work: Callable[[], T]) -> T:
    """What a call gives that blocks for long. A thread of its own, for which nobody waits at the end."""
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
        except BaseException as error:  # noqa: BLE001 - it is raised where it is awaited
            found, problem = None, error
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, found, problem)

    threading.Thread(target=run, name="tunnel", daemon=True).start()
    return await done  # type: ignore[no-any-return]
