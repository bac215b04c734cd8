"""The listing of an input: all its shards in their order, in a file, with little of each in memory.

A million shards take 16 MB: where each line begins, and the size of its shard.
"""

from __future__ import annotations

import os
import tempfile
from array import array
from collections.abc import Iterable, Sequence
from typing import BinaryIO

from tony_provider.runtime.inputs.shard import InputShard
from tony_provider.runtime.storage import Storage


class Listing:
    """The shards of one input, by number from 0 on. ``close`` it.

    The lines are in a file of this machine that has no name any more, and goes with the process.
    """

    def __init__(self) -> None:
        self._file: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the listing
        self._ends = array("Q", [0])
        self.sizes = array("Q")  # bytes, of each shard
        self.total_size = 0  # bytes of all

    def __len__(self) -> int:
        return len(self.sizes)

    @classmethod
    def of(cls, shards: Iterable[InputShard]) -> Listing:
        """Blocks. Raises OSError when the disk is full, and what ``shards`` raises."""
        made = cls()
        try:
            for shard in shards:
                made._add(shard.line(), shard.bytes_to_read)
            made._file.flush()
        except BaseException:
            made.close()
            raise
        return made

    @classmethod
    def load(cls, storage: Storage, uri: str) -> Listing:
        """A listing that ``save`` has written. Blocks; raises StorageError, ValueError, OSError."""
        made = cls()
        try:
            with storage.open_read(uri) as stream:
                for line in stream:
                    made._add(line, InputShard.of_line(line).bytes_to_read)
            made._file.flush()
        except BaseException:
            made.close()
            raise
        return made

    def save(self, storage: Storage, uri: str) -> None:
        """Write it to the store, whole or not at all. Blocks; raises StorageError."""
        self._file.seek(0)
        storage.write(uri, self._file, overwrite=True)

    def lines(self, numbers: Sequence[int]) -> list[bytes]:
        """The lines of these shards. Blocks for a moment; may be called from several threads."""
        return [self._line(number) for number in numbers]

    def close(self) -> None:
        self._file.close()

    def _line(self, number: int) -> bytes:
        begin, end = self._ends[number], self._ends[number + 1]
        return os.pread(self._file.fileno(), end - begin, begin)

    def _add(self, line: bytes, size: int) -> None:
        self._file.write(line)
        self._ends.append(self._ends[-1] + len(line))
        self.sizes.append(size)
        self.total_size += size
