"""Streams of tunnels between users and executors: the master passes frames on, and holds both ends to the windows."""

from __future__ import annotations

import asyncio
import itertools
from typing import Callable

import attrs

from tony_provider.runtime.am.executor_streams import ExecutorStreams
from tony_provider.runtime.am.service import Stream
from tony_provider.runtime.protocol import limits, tony_pb2
from tony_provider.runtime.tunnel.frames import FrameError
from tony_provider.runtime.tunnel.window import Window

Hear = Callable[[tony_pb2.TunnelFrame], None]
"""Takes a frame for the user's end, with the number that the stream has there."""


class NoStreamError(Exception):
    """A stream cannot be opened; the message says why."""


@attrs.define(eq=False)
class TunnelStream:
    """One stream: between a user, who has a number for it, and an executor, which knows it by another."""

    number: int  # at the executor
    executor: Stream
    _of_user: int
    _hear: Hear
    _say: Callable[[TunnelStream, tony_pb2.TunnelFrame], None]
    _up: Window = attrs.field(factory=Window)
    _down: Window = attrs.field(factory=Window)
    _ended_up: bool = False
    _ended_down: bool = False

    @property
    def is_over(self) -> bool:
        return self._ended_up and self._ended_down

    def from_user(self, frame: tony_pb2.TunnelFrame) -> None:
        """Pass a frame on to the executor."""
        if self._holds(frame, self._up, self._down):
            kind = frame.WhichOneof("kind")
            self._ended_up = self._ended_up or kind in ("end", "closed")
            self._ended_down = self._ended_down or kind == "closed"
            self._say(self, _numbered(frame, self.number))

    def from_executor(self, frame: tony_pb2.TunnelFrame) -> None:
        """Pass a frame on to the user."""
        if self._holds(frame, self._down, self._up):
            kind = frame.WhichOneof("kind")
            self._ended_down = self._ended_down or kind in ("end", "closed")
            self._ended_up = self._ended_up or kind == "closed"
            self._hear(_numbered(frame, self._of_user))

    def close(self, why: str) -> None:
        """End it, and tell both ends."""
        self._ended_up = self._ended_down = True
        self._say(self, tony_pb2.TunnelFrame(stream=self.number, closed=why))
        self._hear(tony_pb2.TunnelFrame(stream=self._of_user, closed=why))

    def _holds(self, frame: tony_pb2.TunnelFrame, sent: Window, granted: Window) -> bool:
        """Whether a frame is within what was agreed; one that is not ends the stream."""
        kind = frame.WhichOneof("kind")
        try:
            if kind == "data":
                sent.spend(len(frame.data))
            elif kind == "credit":
                granted.grant(frame.credit)
        except FrameError as error:
            self.close(str(error))
            return False
        return True


class TunnelStreams:
    """The open streams of all tunnels. To be used on the event loop only."""

    def __init__(self, executors: ExecutorStreams) -> None:
        self._executors = executors
        self._numbers = itertools.count(1)
        self._open: dict[int, TunnelStream] = {}
        self._to_say: dict[Stream, list[tony_pb2.TunnelFrame]] = {}

    def open(self, wanted: tony_pb2.TunnelOpen, of_user: int, hear: Hear) -> TunnelStream:
        """Have a task's executor connect to a port of the task. Raises NoStreamError."""
        executor = self._executors.find(wanted.task)
        if executor is None:
            raise NoStreamError(f"{wanted.task} has no executor now")
        if len(self._open) >= limits.MOST_TUNNEL_STREAMS:
            raise NoStreamError(f"{limits.MOST_TUNNEL_STREAMS} connections to tasks of this job are open already")
        stream = TunnelStream(next(self._numbers), executor, of_user, hear, self._say)
        self._open[stream.number] = stream
        self._say(stream, tony_pb2.TunnelFrame(stream=stream.number, open=wanted))
        return stream

    def received(self, executor: Stream, frames: tony_pb2.TunnelFrames) -> None:
        """Frames of an executor, which speaks for its own streams alone."""
        for frame in frames.frames:
            stream = self._open.get(frame.stream)
            if stream is not None and stream.executor is executor:
                stream.from_executor(frame)
                self.forget_if_over(stream)

    def ended(self, executor: Stream) -> None:
        """End the streams to an executor that is gone."""
        for stream in [each for each in self._open.values() if each.executor is executor]:
            stream.close(f"the executor of {executor.identity.task} went away")
            self.forget_if_over(stream)

    def forget_if_over(self, stream: TunnelStream) -> None:
        if stream.is_over:
            self._open.pop(stream.number, None)

    def _say(self, stream: TunnelStream, frame: tony_pb2.TunnelFrame) -> None:
        """All that is said to one executor in one turn of the loop goes in one message."""
        if not self._to_say:
            asyncio.get_running_loop().call_soon(self._send)
        self._to_say.setdefault(stream.executor, []).append(frame)

    def _send(self) -> None:
        said, self._to_say = self._to_say, {}
        for executor, frames in said.items():
            executor.send(tony_pb2.ToExecutor(tunnel=tony_pb2.TunnelFrames(frames=frames)))


def _numbered(frame: tony_pb2.TunnelFrame, number: int) -> tony_pb2.TunnelFrame:
    copy = tony_pb2.TunnelFrame()
    copy.CopyFrom(frame)
    copy.stream = number
    return copy
