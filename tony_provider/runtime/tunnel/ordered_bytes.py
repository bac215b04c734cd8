"""Bytes in one direction, carried by requests that may be lost, repeated or overtaken: each arrives once, in order."""

from __future__ import annotations

import attrs


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
class TakenBytes:
    """How many bytes have come from the other end: pieces that come again give nothing new."""

    count: int = 0

    def take(self, offset: int, data: bytes) -> bytes:
        """What is new of a piece. A piece behind a gap gives nothing: it comes again when the gap is filled."""
        if offset > self.count:
            return b""
        new = data[self.count - offset :]
        self.count += len(new)
        return new
