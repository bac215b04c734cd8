"""Streams of a tunnel: frames, flow control, retransmission, and the relay between a stream and a connection."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any, Callable

import attrs
from google.protobuf.message import DecodeError

from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.protocol.limits import TUNNEL_WINDOW

_LENGTH = 4  # bytes of a batch's length prefix, big-endian
_MOST = 1 << 20  # bytes of one batch


class FrameError(Exception):
    """Received bytes are not a frame, or exceed a limit of the protocol."""


def pack_frames(frames: Iterable[tony_pb2.TunnelFrame]) -> bytes:
    """Encode one batch of frames."""
    content = tony_pb2.TunnelFrames(frames=frames).SerializeToString()
    return len(content).to_bytes(_LENGTH, "big") + content


class FrameReader:
    """Decoder of frames from received pieces of bytes."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def take(self, data: bytes) -> Iterator[tony_pb2.TunnelFrame]:
        """Yield the frames that are now complete. Raises FrameError."""
        self._rest += data
        while len(self._rest) >= _LENGTH:
            length = int.from_bytes(self._rest[:_LENGTH], "big")
            if length > _MOST:
                raise FrameError(f"{length} bytes of frames at once, more than {_MOST}")
            if len(self._rest) < _LENGTH + length:
                return
            content = bytes(self._rest[_LENGTH : _LENGTH + length])
            del self._rest[: _LENGTH + length]
            try:
                frames = tony_pb2.TunnelFrames.FromString(content)
            except DecodeError as error:
                raise FrameError("the received data is not a frame of a tunnel") from error
            yield from frames.frames


@attrs.define(eq=False)
class Window:
    """Flow-control window: bytes that one end may send before the other end grants more."""

    left: int = TUNNEL_WINDOW  # bytes that may still be sent

    def spend(self, size: int) -> None:
        """Count ``size`` bytes as sent. Raises FrameError if the window is exceeded."""
        if size > self.left:
            raise FrameError(f"{size} bytes were sent, but only {self.left} are permitted")
        self.left -= size

    def grant(self, size: int) -> None:
        """Count ``size`` bytes as delivered by the other end. Raises FrameError if they were never sent."""
        if self.left + size > TUNNEL_WINDOW:
            raise FrameError(f"{size} bytes were acknowledged, but never sent")
        self.left += size


class OutOfStepError(Exception):
    """The other end acknowledges bytes that were never sent."""


@attrs.define(eq=False)
class SentBytes:
    """Bytes for the other end, kept until it acknowledges them."""

    start: int = 0  # number of acknowledged bytes
    _kept: bytearray = attrs.field(factory=bytearray)

    @property
    def end(self) -> int:
        """Total number of bytes, including acknowledged ones."""
        return self.start + len(self._kept)

    @property
    def held(self) -> int:
        """Number of bytes that are not acknowledged."""
        return len(self._kept)

    def add(self, data: bytes) -> None:
        self._kept += data

    def arrived(self, count: int) -> None:
        """Record that ``count`` bytes in total have arrived. Ignore an older count. Raises OutOfStepError."""
        if count > self.end:
            raise OutOfStepError(f"the other end reports {count} received bytes, but only {self.end} were sent")
        if count > self.start:
            del self._kept[: count - self.start]
            self.start = count

    def after(self, count: int, most: int) -> bytes:
        """Return at most ``most`` bytes after ``count``, or none if ``count`` is not the newest acknowledgment."""
        return bytes(self._kept[:most]) if count == self.start else b""


@attrs.define(eq=False)
class ReceivedBytes:
    """Counter of received bytes, which ignores repeated pieces."""

    count: int = 0

    def take(self, offset: int, data: bytes) -> bytes:
        """Return the new bytes of a piece. Ignore a piece after a gap, because the other end repeats it later."""
        if offset > self.count:
            return b""
        new = data[self.count - offset :]
        self.count += len(new)
        return new


Send = Callable[[tony_pb2.TunnelFrame], None]
_PIECE = 32 << 10  # bytes of one read from the connection


class Relay:
    """Relay between a connection and its stream. Call ``run`` once; ``take`` accepts frames before and while it runs.

    Each direction is closed separately, as with TCP. A broken connection or a closed stream ends both.
    """

    def __init__(self, stream: int, send: Send) -> None:
        self._stream = stream
        self._send = send
        self._to_send = Window()  # window for bytes from the connection
        self._to_write = Window()  # window for bytes to the connection
        self._frames: asyncio.Queue[tony_pb2.TunnelFrame] = asyncio.Queue()
        self._granted = asyncio.Event()
        self._closed = asyncio.Event()
        self.why = ""  # reason why the other end closed the stream; empty if it is open or ended normally

    def take(self, frame: tony_pb2.TunnelFrame) -> None:
        """Accept a frame of this stream. Raises no error: a frame that violates the protocol closes the stream."""
        kind = frame.WhichOneof("kind")
        try:
            if kind == "data":
                self._to_write.spend(len(frame.data))
            elif kind == "credit":
                self._to_send.grant(frame.credit)
                self._granted.set()
        except FrameError as error:
            self._send(tony_pb2.TunnelFrame(stream=self._stream, closed=str(error)))
            self._closed.set()
            return
        if kind == "closed":
            self.why = frame.closed
            self._closed.set()
        elif kind in ("data", "end"):
            self._frames.put_nowait(frame)

    async def run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward data in both directions until both are closed, then close the connection."""
        writer.transport.set_write_buffer_limits(0)  # so that drain() waits until all data have left the buffer
        both: asyncio.Future[Any] = asyncio.gather(self._from_connection(reader), self._to_connection(writer))
        closed: asyncio.Future[Any] = asyncio.ensure_future(self._closed.wait())
        try:
            await asyncio.wait({both, closed}, return_when=asyncio.FIRST_COMPLETED)
            if both.done():
                both.result()
                writer.close()
        except OSError as error:
            self._send(tony_pb2.TunnelFrame(stream=self._stream, closed=f"the connection broke: {error}"))
        except asyncio.CancelledError:
            self._send(tony_pb2.TunnelFrame(stream=self._stream, closed="the other end of the tunnel was closed"))
            raise
        finally:
            both.cancel()
            closed.cancel()
            await asyncio.gather(both, closed, return_exceptions=True)
            if not writer.is_closing():
                writer.transport.abort()

    async def _from_connection(self, reader: asyncio.StreamReader) -> None:
        while True:
            while not self._to_send.left:
                self._granted.clear()
                await self._granted.wait()
            data = await reader.read(min(_PIECE, self._to_send.left))
            if not data:
                self._send(tony_pb2.TunnelFrame(stream=self._stream, end=True))
                return
            self._to_send.spend(len(data))
            self._send(tony_pb2.TunnelFrame(stream=self._stream, data=data))

    async def _to_connection(self, writer: asyncio.StreamWriter) -> None:
        while True:
            frame = await self._frames.get()
            if frame.WhichOneof("kind") == "end":
                writer.write_eof()
                return
            writer.write(frame.data)
            await writer.drain()
            self._to_write.grant(len(frame.data))
            self._send(tony_pb2.TunnelFrame(stream=self._stream, credit=len(frame.data)))
