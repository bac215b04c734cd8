"""Byte streams in and out: whatever ``write`` was given read in chunks, and files cut to a range."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import BinaryIO, Optional, cast

from tony_provider.runtime.storage.base import CHUNK, Source


class Body:
    """The bytes to be written. ``size`` in bytes is None when only the end of the stream will tell.

    ``given``: how many bytes ``chunks`` has given, the last time.
    """

    def __init__(self, source: Source) -> None:
        self._file: Optional[BinaryIO] = None
        self._iterable: Iterable[bytes] = ()
        if isinstance(source, (bytes, bytearray, memoryview)):
            self._file = io.BytesIO(source)
        elif hasattr(source, "read"):
            self._file = cast(BinaryIO, source)
        else:
            self._iterable = source
        self._start: Optional[int] = None
        self._used = False
        self.size: Optional[int] = None
        self.given = 0
        if self._file is not None and self._file.seekable():
            self._start = self._file.tell()
            self.size = max(0, self._file.seek(0, io.SEEK_END) - self._start)
            self._file.seek(self._start)

    @property
    def available(self) -> bool:
        """Whether all of it can (still, or again) be read from the beginning."""
        return self._start is not None or not self._used

    def chunks(self) -> Iterator[bytes]:
        """All bytes from the beginning, no chunk empty. Of a file no more than ``size``: it may be growing."""
        self._used, self.given = True, 0
        for chunk in self._of_file(self._file) if self._file is not None else self._iterable:
            if chunk:
                self.given += len(chunk)
                yield chunk

    def _of_file(self, file: BinaryIO) -> Iterator[bytes]:
        if self._start is not None:
            file.seek(self._start)
        while (most := CHUNK if self.size is None else min(CHUNK, self.size - self.given)) > 0:
            chunk = file.read(most)
            if not chunk:
                break
            yield chunk


class Range(io.RawIOBase):
    """A stream of the next ``length`` bytes of an open file, which it owns."""

    def __init__(self, file: BinaryIO, length: int) -> None:
        self._file = file
        self._left = length

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._file.read(min(len(buffer), self._left))
        buffer[: len(data)] = data
        self._left -= len(data)
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()
