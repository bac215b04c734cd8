"""Frames of a tunnel as bytes: a length before each batch of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from google.protobuf.message import DecodeError

from tony_provider.runtime.protocol import tony_pb2

_LENGTH = 4  # bytes, the highest first
_MOST = 1 << 20  # bytes of one batch


class FrameError(Exception):
    """What has come is no frame, or more than was agreed."""


def packed(frames: Iterable[tony_pb2.TunnelFrame]) -> bytes:
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
