"""``PUT control/tunnel``: the tunnels of users to the job's tasks, with limits."""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import ssl
from collections.abc import Collection
from contextlib import suppress
from http import HTTPStatus
from typing import Optional

from tony_provider.runtime.am.gateway import NoStreamError, TunnelStream, TunnelStreams
from tony_provider.runtime.am.web.server import AccessType, HttpError, HttpRequest, HttpResponse, Route
from tony_provider.runtime.common.codec import CodecError, load_json
from tony_provider.runtime.common.concurrency import loop_time, wait_with_timeout
from tony_provider.runtime.common.quantities import span
from tony_provider.runtime.protocol import limits, tony_pb2
from tony_provider.runtime.protocol.http_messages import PipeError, TlsEnd, TunnelAnswer, TunnelPart
from tony_provider.runtime.protocol.tunnel_streams import (
    FrameError,
    FrameReader,
    OutOfStepError,
    ReceivedBytes,
    SentBytes,
    pack_frames,
)

log = logging.getLogger(__name__)

TUNNEL_PATH = "/control/tunnel"
_SILENCE = 90.0  # seconds without a request after which a tunnel is abandoned
_IDLE = 3600.0  # seconds without data after which a tunnel may be ended to make room for a new tunnel
_LOOK = 5.0  # seconds between two checks for abandoned tunnels
_LONGEST_NAME = 64  # characters
_MOST_ENDED = 64  # number of ended tunnels for which the reason is kept


class Tunnels:
    """The tunnels of all users to one job. Requires a running event loop, and ``close`` at the end."""

    def __init__(self, context: ssl.SSLContext, streams: TunnelStreams) -> None:
        self._context = context
        self._streams = streams
        self._open: dict[str, MasterTunnel] = {}
        self._ended: dict[str, str] = {}  # why recent tunnels ended, for clients that still use them
        self._ending = False
        self._looking = asyncio.ensure_future(self._look())

    @property
    def route(self) -> Route:
        return Route("PUT", TUNNEL_PATH, AccessType.MODIFY, self.put)

    async def put(self, request: HttpRequest) -> HttpResponse:
        """Handle a request of a tunnel. Raises HttpError."""
        try:
            part = load_json(request.body, TunnelPart)
            data = base64.b64decode(part.data, validate=True)
        except (CodecError, binascii.Error) as error:
            raise HttpError(HTTPStatus.BAD_REQUEST, str(error)) from error
        self._expect_serving()
        if (why := self._ended.get(part.tunnel)) is not None:
            return HttpResponse.of_object(TunnelAnswer(part.offset, over=why))
        tunnel = self._tunnel(part, request.user)
        try:
            tunnel.take(part.offset, data)
            found = b""
            if part.over:
                self._end(part.tunnel, "its user has closed the tunnel")
            elif part.received is not None:
                found = await tunnel.bytes_after(part.received)
        except (PipeError, FrameError, OutOfStepError) as error:
            self._end(part.tunnel, str(error))
            raise HttpError(HTTPStatus.BAD_REQUEST, str(error)) from error
        self._expect_serving()
        return HttpResponse.of_object(TunnelAnswer(tunnel.received, base64.b64encode(found).decode(), tunnel.over))

    def _expect_serving(self) -> None:
        """Reject requests while the master ends. Clients then ask the cluster whether another master follows."""
        if self._ending:
            raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, "the application master is ending")

    def close(self) -> None:
        """End all tunnels and answer waiting requests."""
        self._ending = True
        self._looking.cancel()
        for name in list(self._open):
            self._end(name, "the application master is ending")

    def _tunnel(self, part: TunnelPart, user: str) -> MasterTunnel:
        found = self._open.get(part.tunnel)
        if found is None:
            return self._begun(part, user)
        if found.user != user:
            raise HttpError(HTTPStatus.FORBIDDEN, "this tunnel belongs to another user")
        return found

    def _begun(self, part: TunnelPart, user: str) -> MasterTunnel:
        problem: Optional[str] = None
        if part.offset or not part.data or not 0 < len(part.tunnel) <= _LONGEST_NAME:
            raise HttpError(HTTPStatus.GONE, "this tunnel does not exist any more")
        of_user = [name for name, each in self._open.items() if each.user == user]
        if len(of_user) >= limits.TUNNELS_OF_ONE and not self._one_gives_way(of_user):
            problem = f"{user!r} already has {limits.TUNNELS_OF_ONE} tunnels to this job, the limit"
        elif len(self._open) >= limits.MOST_TUNNELS and not self._one_gives_way(self._open):
            problem = f"this job already has {limits.MOST_TUNNELS} open tunnels, the limit"
        if problem:
            wait = f"the tunnel of a killed command closes within {span(_SILENCE + _LOOK)}"
            raise HttpError(HTTPStatus.TOO_MANY_REQUESTS, f"{problem}: close a tunnel; {wait}")
        log.info("%r opens a tunnel", user)
        tunnel = self._open[part.tunnel] = MasterTunnel(self._context, user, self._streams)
        return tunnel

    def _one_gives_way(self, names: Collection[str]) -> bool:
        """End the longest unused tunnel if its idle time exceeds the limit. Return whether a tunnel was ended."""
        name = min(names, key=lambda each: self._open[each].used)
        if loop_time() - self._open[name].used <= _IDLE:
            return False
        self._end(name, f"no data was sent for {span(_IDLE)}, and a new tunnel needed its place")
        return True

    def _end(self, name: str, why: str) -> None:
        if self._forget(name, why):
            self._ended[name] = why
            if len(self._ended) > _MOST_ENDED:
                del self._ended[next(iter(self._ended))]

    def _forget(self, name: str, why: str) -> bool:
        """End a tunnel without a record in ``_ended``, so its client may open a new one. Return whether it existed."""
        tunnel = self._open.pop(name, None)
        if tunnel is not None:
            log.info("a tunnel of %r has ended: %s", tunnel.user, why)
            tunnel.end(why)
        return tunnel is not None

    async def _look(self) -> None:
        """End abandoned tunnels without a record, because the client may only have been suspended."""
        while True:
            await asyncio.sleep(_LOOK)
            now = loop_time()
            for name, tunnel in list(self._open.items()):
                if now - tunnel.heard > _SILENCE:
                    self._forget(name, f"its client sent nothing for {span(_SILENCE)}")


_PIECE = 64 << 10  # bytes per read from TLS
_MOST_HELD = 2 * limits.TUNNEL_STREAMS * limits.TUNNEL_WINDOW  # limit of bytes that wait for the client


class MasterTunnel:
    """One tunnel of one user. Requires a running event loop.

    Its memory is limited by the number of its streams and the window of each stream.
    """

    def __init__(self, context: ssl.SSLContext, user: str, streams: TunnelStreams) -> None:
        self.user = user
        self.heard = self.used = loop_time()  # times of the last request and of the last forwarded frame
        self.over = ""  # reason why the tunnel ended; empty while it is open
        self._tls = TlsEnd(context)
        self._taken, self._sent = ReceivedBytes(), SentBytes()
        self._reader = FrameReader()
        self._streams = streams
        self._open: dict[int, TunnelStream] = {}  # open streams by the user's stream numbers
        self._news = asyncio.Event()

    @property
    def received(self) -> int:
        """Number of bytes received from the user."""
        return self._taken.count

    def take(self, offset: int, data: bytes) -> None:
        """Handle bytes from the user's end. Raises PipeError, FrameError."""
        self.heard = loop_time()
        if self.over or not (new := self._taken.take(offset, data)):
            return
        self._tls.take(new)
        while said := self._tls.read(_PIECE):
            for frame in self._reader.take(said):
                self._obey(frame)
        self._flush()

    async def bytes_after(self, received: int) -> bytes:
        """Return bytes for the user after the first ``received`` bytes. Waits for a while if none are available.

        Raises OutOfStepError.
        """
        self._sent.arrived(received)
        if not self._sent.held and not self.over:
            self._news.clear()
            with suppress(asyncio.TimeoutError):
                await wait_with_timeout(self._news.wait(), limits.TUNNEL_WAIT)
        self.heard = loop_time()
        return self._sent.after(received, limits.TUNNEL_DOWN)

    def end(self, why: str) -> None:
        """Close all streams of the tunnel, and wake requests that wait for bytes. Idempotent."""
        self.over = self.over or why
        for stream in list(self._open.values()):
            stream.close(why)
            self._streams.forget_if_over(stream)
        self._open.clear()
        self._news.set()

    def _obey(self, frame: tony_pb2.TunnelFrame) -> None:
        self.used = loop_time()
        if frame.WhichOneof("kind") == "open":
            self._open_stream(frame)
        elif (stream := self._open.get(frame.stream)) is not None:
            stream.from_user(frame)
            self._streams.forget_if_over(stream)
            self._forget_if_over(frame.stream)

    def _open_stream(self, frame: tony_pb2.TunnelFrame) -> None:
        if frame.stream in self._open:
            raise FrameError("a frame opens a stream that is already open")
        try:
            self._open[frame.stream] = self._new_stream(frame)
        except NoStreamError as error:
            self._hear(tony_pb2.TunnelFrame(stream=frame.stream, closed=str(error)))

    def _new_stream(self, frame: tony_pb2.TunnelFrame) -> TunnelStream:
        if len(self._open) >= limits.TUNNEL_STREAMS:
            raise NoStreamError(f"this tunnel already has {limits.TUNNEL_STREAMS} open connections, the limit")
        return self._streams.open(frame.open, frame.stream, self._hear)

    def _hear(self, frame: tony_pb2.TunnelFrame) -> None:
        """Send a frame to the user's end."""
        if self.over:
            return
        self.used = loop_time()
        self._tls.write(pack_frames([frame]))
        self._flush()
        self._forget_if_over(frame.stream)
        if self._sent.held > _MOST_HELD:  # the client opens and closes streams without reading the answers
            self.end("its client does not read the data that it receives")

    def _forget_if_over(self, number: int) -> None:
        if number in self._open and self._open[number].is_over:
            del self._open[number]

    def _flush(self) -> None:
        if out := self._tls.outgoing():
            self._sent.add(out)
            self._news.set()
