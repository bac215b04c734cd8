"""A file of the store as Python's own readers want it: one can go back and forth in it."""

from __future__ import annotations

import io
import os

from tony_provider.runtime.storage.base import FileStatus, Storage
from tony_provider.runtime.storage.helpers import read_bytes


class StoredFile(io.RawIOBase):
    """Reads what is asked for, in a request of its own: for readers of a few pieces of a large file, in a buffer."""

    def __init__(self, storage: Storage, status: FileStatus) -> None:
        super().__init__()
        self._storage = storage
        self._uri, self._size = status.path, status.size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        begin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = max(0, begin + offset)
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = read_bytes(self._storage, self._uri, offset=self._at, length=min(len(buffer), self._size - self._at))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)
