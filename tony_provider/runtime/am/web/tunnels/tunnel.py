"""The master's end of one user's tunnel: TLS in the bodies of requests, and within it the frames of streams."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress

from tony_provider.runtime.am.tunnel_streams import NoStreamError, TunnelStream, TunnelStreams
from tony_provider.runtime.deadline import within
from tony_provider.runtime.protocol import limits, tony_pb2
from tony_provider.runtime.sealed.tls_pipe import TlsEnd
from tony_provider.runtime.tunnel.frames import FrameError, FrameReader, packed
from tony_provider.runtime.tunnel.ordered_bytes import SentBytes, TakenBytes

_PIECE = 64 << 10  # bytes read of TLS at once
_MOST_HELD = 2 * limits.TUNNEL_STREAMS * limits.TUNNEL_WINDOW  # bytes


class MasterTunnel:
    """One tunnel of one user. Used within a running event loop.

    What is kept of it is bounded by its streams' windows: its streams, times what each may have on its way.
    """

    def __init__(self, context: ssl.SSLContext, user: str, streams: TunnelStreams) -> None:
        loop = asyncio.get_running_loop()
        self.user = user
        self.heard = self.used = loop.time()  # when a request came, when a frame was passed on
        self.over = ""  # why it has ended; empty: it has not
        self._time = loop.time
        self._tls = TlsEnd(context)
        self._taken, self._sent = TakenBytes(), SentBytes()
        self._reader = FrameReader()
        self._streams = streams
        self._open: dict[int, TunnelStream] = {}  # by the user's numbers
        self._news = asyncio.Event()

    @property
    def received(self) -> int:
        """How many bytes of the user's have come."""
        return self._taken.count

    def take(self, offset: int, data: bytes) -> None:
        """Bytes that the user's end has sent. Raises PipeError, FrameError."""
        self.heard = self._time()
        if self.over or not (new := self._taken.take(offset, data)):
            return
        self._tls.take(new)
        while said := self._tls.read(_PIECE):
            for frame in self._reader.take(said):
                self._obey(frame)
        self._flush()

    async def bytes_after(self, received: int) -> bytes:
        """What comes after so many bytes that have arrived; waits for a while where there is nothing yet.

        Raises OutOfStepError.
        """
        self._sent.arrived(received)
        if not self._sent.held and not self.over:
            self._news.clear()
            with suppress(asyncio.TimeoutError):
                await within(self._news.wait(), limits.TUNNEL_WAIT)
        self.heard = self._time()
        return self._sent.after(received, limits.TUNNEL_DOWN)

    def end(self, why: str) -> None:
        """Close all its streams; whoever waits for bytes learns of it. Idempotent."""
        self.over = self.over or why
        for stream in list(self._open.values()):
            stream.close(why)
            self._streams.forget_if_over(stream)
        self._open.clear()
        self._news.set()

    def _obey(self, frame: tony_pb2.TunnelFrame) -> None:
        self.used = self._time()
        if frame.WhichOneof("kind") == "open":
            self._open_stream(frame)
        elif (stream := self._open.get(frame.stream)) is not None:
            stream.from_user(frame)
            self._streams.forget_if_over(stream)
            self._forget_if_over(frame.stream)

    def _open_stream(self, frame: tony_pb2.TunnelFrame) -> None:
        if frame.stream in self._open:
            raise FrameError("a stream is opened again")
        try:
            self._open[frame.stream] = self._new_stream(frame)
        except NoStreamError as error:
            self._hear(tony_pb2.TunnelFrame(stream=frame.stream, closed=str(error)))

    def _new_stream(self, frame: tony_pb2.TunnelFrame) -> TunnelStream:
        if len(self._open) >= limits.TUNNEL_STREAMS:
            raise NoStreamError(f"{limits.TUNNEL_STREAMS} connections through this tunnel are open already")
        return self._streams.open(frame.open, frame.stream, self._hear)

    def _hear(self, frame: tony_pb2.TunnelFrame) -> None:
        """A frame for the user's end."""
        if self.over:
            return
        self.used = self._time()
        self._tls.write(packed([frame]))
        self._flush()
        self._forget_if_over(frame.stream)
        if self._sent.held > _MOST_HELD:  # streams that were opened and closed one after the other, and never read
            self.end("its user does not take what comes")

    def _forget_if_over(self, number: int) -> None:
        if number in self._open and self._open[number].is_over:
            del self._open[number]

    def _flush(self) -> None:
        if out := self._tls.outgoing():
            self._sent.add(out)
            self._news.set()
