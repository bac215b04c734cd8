"""Frames of a tunnel as bytes: a length before each batch of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any, Callable

import attrs
from google.protobuf.message import DecodeError

from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.protocol.limits import TUNNEL_WINDOW

_LENGTH = 4  # bytes, the highest first
_MOST = 1 << 20  # bytes of one batch


class FrameError(Exception):
    """What has come is no frame, or more than was agreed."""


def pack_frames(frames: Iterable[tony_pb2.TunnelFrame]) -> bytes:
    """One batch."""
    content = tony_pb2.TunnelFrames(frames=frames).SerializeToString()
    return len(content).to_bytes(_LENGTH, "big") + content


class FrameReader:
    """Finds the frames in bytes that come in pieces."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def take(self, data: bytes) -> Iterator[tony_pb2.TunnelFrame]:
        """The frames that are whole by now. Raises FrameError."""
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
                raise FrameError("what has come is no frame of a tunnel") from error
            yield from frames.frames


@attrs.define(eq=False)
class Window:
    """The bytes that one end may still send before the other has passed on what it was sent."""

    left: int = TUNNEL_WINDOW

    def spend(self, size: int) -> None:
        """So many are sent. Raises FrameError where that is more than may be."""
        if size > self.left:
            raise FrameError(f"{size} bytes were sent, where {self.left} may be")
        self.left -= size

    def grant(self, size: int) -> None:
        """So many were passed on. Raises FrameError where they were never sent."""
        if self.left + size > TUNNEL_WINDOW:
            raise FrameError(f"{size} bytes are said to be passed on, and were never sent")
        self.left += size


class OutOfStepError(Exception):
    """The other end speaks of bytes that there never were."""


@attrs.define(eq=False)
class SentBytes:
    """The bytes that go to the other end, kept until it says that it has them."""

    start: int = 0  # so many are at the other end
    _kept: bytearray = attrs.field(factory=bytearray)

    @property
    def end(self) -> int:
        """How many there are, with those that have arrived."""
        return self.start + len(self._kept)

    @property
    def held(self) -> int:
        """How many have not arrived."""
        return len(self._kept)

    def add(self, data: bytes) -> None:
        self._kept += data

    def arrived(self, count: int) -> None:
        """The other end has so many of all; it may have said so of more before. Raises OutOfStepError."""
        if count > self.end:
            raise OutOfStepError(f"the other end has {count} bytes, of {self.end}")
        if count > self.start:
            del self._kept[: count - self.start]
            self.start = count

    def after(self, count: int, most: int) -> bytes:
        """What comes after so many; nothing where the other end has said since then that it has more."""
        return bytes(self._kept[:most]) if count == self.start else b""


@attrs.define(eq=False)
class ReceivedBytes:
    """How many bytes have come from the other end: pieces that come again give nothing new."""

    count: int = 0

    def take(self, offset: int, data: bytes) -> bytes:
        """What is new of a piece. A piece behind a gap gives nothing: it comes again when the gap is filled."""
        if offset > self.count:
            return b""
        new = data[self.count - offset :]
        self.count += len(new)
        return new


Send = Callable[[tony_pb2.TunnelFrame], None]
_PIECE = 32 << 10  # bytes


class Relay:
    """A connection and its stream. ``run`` it once; ``take`` gets the stream's frames, before and while it runs.

    Each way is closed by itself, as with TCP. A connection that breaks, or a stream that is closed, ends both.
    """

    def __init__(self, stream: int, send: Send) -> None:
        self._stream = stream
        self._send = send
        self._to_send = Window()  # of what the connection gives
        self._to_write = Window()  # of what the connection takes
        self._frames: asyncio.Queue[tony_pb2.TunnelFrame] = asyncio.Queue()
        self._granted = asyncio.Event()
        self._closed = asyncio.Event()
        self.why = ""  # it was closed from the other end; empty: it was not, or as it should be

    def take(self, frame: tony_pb2.TunnelFrame) -> None:
        """A frame of this stream from the other end. Raises nothing: one that breaks what was agreed closes it."""
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
        """Pass on what comes at either end, until both ways are closed. Closes the connection."""
        writer.transport.set_write_buffer_limits(0)  # so that what is drained is gone
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
