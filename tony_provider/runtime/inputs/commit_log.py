"""The log of a queue's commits on the store: lines are only ever added.

Not every store can append to a file, so the log is a directory of small ones. The newest is written again until it is
full, and then left as it is: what a commit costs does not grow with the log. Each application master has files of its
own, so that one that has been replaced, and does not know it yet, overwrites nothing.

Such a one may leave a line that the next has not seen, which may then deal the shard once more. So of several lines for
one shard the last counts, in the order of the files' names: the former was answered to nobody.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Optional

import attrs

from tony_provider.runtime.foreign_json import read_json
from tony_provider.runtime.inputs.shard_queue import ShardReader
from tony_provider.runtime.most_bytes import COMMITS
from tony_provider.runtime.storage import Storage, StorageNotFound, is_temporary, read_whole, uris, write_atomically

_FULL = 256 << 10  # bytes of a file
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))  # to make one takes as long as writing a line


@attrs.frozen
class Settled:
    """A shard that was committed, or put aside because it cannot be read."""

    shard: int
    reader: ShardReader
    time_ms: int  # epoch
    failed: Optional[str] = None  # why it cannot be read; None: it is committed
    outputs: list[str] = attrs.field(factory=list)  # what was made of it, as the program says

    def line(self) -> bytes:
        reader = self.reader
        fields: dict[str, Any] = {"shard": self.shard, "task": reader.task, "attempt": reader.attempt}
        fields |= {"start": reader.start, "time_ms": self.time_ms}
        if self.failed is not None:
            fields["failed"] = self.failed
        if self.outputs:
            fields["outputs"] = self.outputs
        return _ENCODER.encode(fields).encode("utf-8", "replace") + b"\n"

    @classmethod
    def of_line(cls, line: bytes) -> Settled:
        """Raises ValueError for what ``line`` did not write."""
        fields = read_json(line)
        try:
            reader = ShardReader(fields["task"], fields["attempt"], fields["start"])
            return cls(fields["shard"], reader, fields["time_ms"], fields.get("failed"), fields.get("outputs", []))
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a commit: {line[:200]!r}") from error


class CommitLog:
    """What one application master adds to the log in a directory. All methods block."""

    def __init__(self, storage: Storage, directory: str, am_attempt: int) -> None:
        self._storage = storage
        self._directory = directory
        self._am_attempt = am_attempt
        self._number = 1  # of the file that is written
        self._newest = b""  # what is in it

    def add(self, settled: Sequence[Settled]) -> None:
        """Have these on the store. Raises StorageError; then none of them counts, and the same may be added again."""
        content = self._newest + b"".join(each.line() for each in settled)
        name = f"{self._am_attempt:04d}-{self._number:06d}.jsonl"
        write_atomically(self._storage, uris.join(self._directory, name), content)
        self._newest = content
        if len(content) >= _FULL:
            self._number, self._newest = self._number + 1, b""


def read_log(storage: Storage, directory: str) -> Iterator[Settled]:
    """All that is in the log, by application master, oldest first: of a shard that comes again the last counts.

    Blocks. Raises StorageError, ValueError for a line that is none.
    """
    try:
        files = storage.list(directory)
    except StorageNotFound:
        return
    for file in files:
        if not is_temporary(file.name):
            for line in read_whole(storage, file.path, COMMITS).splitlines():
                yield Settled.of_line(line)
