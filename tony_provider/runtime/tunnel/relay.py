"""One end of a stream: what comes from a TCP connection goes into frames, and what frames bring goes into it."""

from __future__ import annotations

import asyncio
from typing import Any, Callable

from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.tunnel.frames import FrameError
from tony_provider.runtime.tunnel.window import Window

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
