"""Shards of an input: their listing as JSON lines, their balanced assignment to tasks, and the queue of shards.

ShardQueue assigns shards on request. In the queue, a shard is free, taken, committed or failed. A reader is a user
process. It takes a free shard and later commits the shard. If the reader ends before the commit, the shard is free
again.

The queue is a state machine in memory without I/O. It needs one byte for each shard, and more for taken shards. A log
on the store records its commits and failures, so that a later application master can restore them.
"""

from __future__ import annotations

import heapq
import json
import os
import tempfile
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Any, BinaryIO, Optional

import attrs

from tony_provider.runtime.common import contract
from tony_provider.runtime.common.bounds import COMMITS_LIMIT, read_json
from tony_provider.runtime.common.quantities import count
from tony_provider.runtime.jobspec.model import InputDeal, JobSpec
from tony_provider.runtime.jobspec.problems import child
from tony_provider.runtime.storage import (
    FileStatus,
    Storage,
    is_temporary,
    read_whole,
    uris,
    write_atomically,
)
from tony_provider.runtime.storage.base import list_existing


@attrs.frozen
class InputShard:
    """A file of an input, or a piece of a file, with the size and time of the file from the listing.

    ``line`` leaves out fields that are None.
    """

    uri: str
    size: int  # bytes of the whole file
    modified_ms: int  # epoch milliseconds; 0 if the store does not report it
    format: Optional[str] = None  # value of InputFormat; None if only the program knows the format
    offset: Optional[int] = None  # first byte of a piece; a record belongs to the piece in which it begins
    length: Optional[int] = None  # bytes of a piece; None for a whole file
    row_groups: Optional[tuple[int, int]] = None  # piece of a Parquet file: first row group, and last row group + 1
    checksum: Optional[str] = None  # checksum of the file from its store; None if not requested or not available
    partition: Optional[dict[str, str]] = None  # of a Hive table: values by column
    snapshot: Optional[int] = None  # id of the snapshot of an Iceberg table

    @property
    def bytes_to_read(self) -> int:
        """The size of the piece or whole file in bytes. The static assignment balances these sizes."""
        return self.size if self.length is None else self.length

    @classmethod
    def of_status(cls, status: FileStatus) -> InputShard:
        return cls(status.path, status.size, status.modified_ms, checksum=status.checksum)

    @classmethod
    def of_line(cls, line: bytes) -> InputShard:
        """Parse a line written by ``line``. Raises ValueError."""
        fields = read_json(line)
        try:
            groups = fields.get("row_groups")
            return cls(
                fields["uri"],
                fields["size"],
                fields["modified_ms"],
                fields.get("format"),
                fields.get("offset"),
                fields.get("length"),
                None if groups is None else (groups[0], groups[1]),
                fields.get("checksum"),
                fields.get("partition"),
                fields.get("snapshot"),
            )
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise ValueError(f"not a shard: {line[:200]!r}") from error

    def line(self) -> bytes:
        fields = {name: value for name in _FIELDS if (value := getattr(self, name)) is not None}
        return _ENCODER.encode(fields).encode() + b"\n"


_FIELDS = [field.name for field in attrs.fields(InputShard)]
# Shared, because creating an encoder takes as long as encoding a line.
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def listing_uri(application_dir: str, name: str) -> str:
    """Return the URI of the list of an input's shards."""
    return uris.join(application_dir, contract.INPUTS_DIR, f"{name}.jsonl")


def commits_uri(application_dir: str, name: str) -> str:
    """Return the URI of the log of an input's queue."""
    return uris.join(application_dir, contract.INPUTS_DIR, f"{name}.commits")


class Listing:
    """The shards of one input, numbered from 0. The caller must close it.

    The shards are JSON lines in an unnamed temporary file, which disappears with the process.
    """

    def __init__(self) -> None:
        self._file: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the listing
        self._ends = array("Q", [0])
        self.sizes = array("Q")  # ``bytes_to_read`` of each shard
        self.total_size = 0  # sum of ``sizes``

    def __len__(self) -> int:
        return len(self.sizes)

    @classmethod
    def of(cls, shards: Iterable[InputShard]) -> Listing:
        """Write shards to a new listing. Blocks. Raises OSError if the disk is full, and the errors of ``shards``."""
        return cls._of_lines((shard.line(), shard.bytes_to_read) for shard in shards)

    @classmethod
    def load(cls, storage: Storage, uri: str) -> Listing:
        """Load a listing written by ``save``. Blocks; raises StorageError, ValueError, OSError."""
        with storage.open_read(uri) as stream:
            return cls._of_lines((line, InputShard.of_line(line).bytes_to_read) for line in stream)

    @classmethod
    def _of_lines(cls, lines: Iterable[tuple[bytes, int]]) -> Listing:
        """Write lines, each with the ``bytes_to_read`` of its shard, to a new listing."""
        made = cls()
        try:
            for line, size in lines:
                made._file.write(line)
                made._ends.append(made._ends[-1] + len(line))
                made.sizes.append(size)
                made.total_size += size
            made._file.flush()
        except BaseException:
            made.close()
            raise
        return made

    def save(self, storage: Storage, uri: str) -> None:
        """Write the listing to the store atomically. Blocks; raises StorageError."""
        self._file.seek(0)
        storage.write(uri, self._file, overwrite=True)

    def lines(self, numbers: Sequence[int]) -> list[bytes]:
        """Return the JSON lines of the shards with these numbers. Blocks briefly; thread-safe."""
        return [self._line(number) for number in numbers]

    def close(self) -> None:
        self._file.close()

    def _line(self, number: int) -> bytes:
        begin, end = self._ends[number], self._ends[number + 1]
        return os.pread(self._file.fileno(), end - begin, begin)


@attrs.frozen
class BalancedAssignment:
    """Static assignment of shards to a number of parts, one for each task. Needs eight bytes for each shard.

    No part is empty if there are at least as many shards as parts.
    """

    parts: int
    _order: array[int]  # shard numbers, sorted by part, then by number
    _begins: array[int]  # index in ``_order`` at which each part begins; also the end of the last part

    @classmethod
    def of(cls, sizes: Sequence[int], parts: int) -> BalancedAssignment:
        """Assign shards of these sizes in bytes: the largest shard first, each to the smallest part so far.

        The largest part is then at most a third larger than in an optimal assignment.
        """
        owners = array("I", bytes(4 * len(sizes)))
        counts = array("Q", bytes(8 * parts))
        smallest = [(0, 0, part) for part in range(parts)]  # bytes, count of shards, part
        # ``sorted`` is stable, so the result depends only on the sizes.
        for shard in sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True):
            size, shards, part = smallest[0]
            heapq.heapreplace(smallest, (size + sizes[shard], shards + 1, part))
            owners[shard] = part
            counts[part] += 1
        return cls(parts, *_by_part(owners, counts))

    def part(self, number: int) -> Sequence[int]:
        """Return the numbers of the shards in a part, in the order of the listing."""
        return self._order[self._begins[number] : self._begins[number + 1]]


def _by_part(owners: array[int], counts: array[int]) -> tuple[array[int], array[int]]:
    begins = array("Q", [0])
    for shards in counts:
        begins.append(begins[-1] + shards)
    order, free = array("I", bytes(4 * len(owners))), begins[:]
    for shard, part in enumerate(owners):
        order[free[part]] = shard
        free[part] += 1
    return order, begins


def shards_needed(job: JobSpec, name: str) -> int:
    """Return the minimum number of shards: 1 with ``deal: queue``, otherwise the maximum number of tasks that read."""
    if job.inputs[name].deal is InputDeal.QUEUE:
        return 1
    return sum(job.tasks[each].most_instances for each in job.readers(name))


def too_few_shards(job: JobSpec, name: str, shards: int) -> Optional[str]:
    """Return a message with a remedy if there are too few shards, otherwise None."""
    tasks = shards_needed(job, name)
    if shards >= tasks:
        return None
    found = f"{count(shards, 'shard')} for {count(tasks, 'task')} ({', '.join(job.readers(name))})"
    remedy = "split the data into more files or pieces (`split_size`), use fewer instances, or set `deal: queue`"
    return f"{child('inputs', name)}: {found}; with `deal: static`, each task needs one: {remedy}"


MOST_AT_ONCE = 256  # maximum shards that a reader may have taken at a time; also the number of its commits to remember


class ShardState(IntEnum):
    """State of a shard in the queue."""

    FREE = 0
    TAKEN = 1
    COMMITTED = 2
    FAILED = 3  # a reader has reported it as unreadable


@attrs.frozen
class ShardReader:
    """Identifies a user process that takes shards by its task, the attempt, and the number of the process start."""

    task: str  # such as worker:0
    attempt: int
    start: int


@attrs.define
class _ReaderShards:
    """The shards and latest requests of one reader."""

    taken: dict[int, int] = attrs.field(factory=dict)  # number of the request that took a shard, by shard
    settled: deque[int] = attrs.field(factory=lambda: deque(maxlen=MOST_AT_ONCE))  # shards committed or failed last
    # Numbers of the latest requests to release a shard.
    returns: deque[int] = attrs.field(factory=lambda: deque(maxlen=MOST_AT_ONCE))
    # Shards taken and not committed, also if they were released since, in the order of the requests.
    open: dict[int, None] = attrs.field(factory=dict)


class ShardQueue:
    """Queue of the shards of one input, numbered from 0. Readers get the free shard with the lowest number first."""

    def __init__(self, count: int) -> None:
        self._states = bytearray(count)
        self._fresh = 0  # number of the first shard that no reader has requested yet
        self._returned: list[int] = []  # heap of released shards, some of which may not be free any more
        self._by_reader: dict[ShardReader, _ReaderShards] = {}
        self.committed = 0
        self.failed: dict[int, str] = {}  # reason why a shard is unreadable, by shard

    def __len__(self) -> int:
        return len(self._states)

    def state(self, shard: int) -> ShardState:
        return ShardState(self._states[shard])

    @property
    def taken(self) -> int:
        """The number of taken shards."""
        return sum(len(of_reader.taken) for of_reader in self._by_reader.values())

    def uncommitted_by(self, reader: ShardReader) -> list[int]:
        """Return the last shards that a reader took and did not commit, in the order of its requests."""
        of_reader = self._by_reader.get(reader)
        return list(of_reader.open)[-MOST_AT_ONCE:] if of_reader is not None else []

    @property
    def settled(self) -> int:
        """The number of committed and failed shards."""
        return self.committed + len(self.failed)

    @property
    def over(self) -> bool:
        """Whether all shards are committed or failed."""
        return self.settled == len(self._states)

    @property
    def has_free(self) -> bool:
        """Whether a shard may be free. If False, no shard is free."""
        return bool(self._returned) or self._fresh < len(self._states)

    @property
    def readers(self) -> list[ShardReader]:
        """The readers that have requested a shard and have not ended, and readers restored from the log."""
        return list(self._by_reader)

    # ---- actions of readers ------------------------------------------------------------------------------------

    def take(self, reader: ShardReader, request: int) -> Optional[int]:
        """Assign the next free shard to a reader, and return its number. A repeated request returns the same shard.

        Returns None if no shard is free, or if the reader has MOST_AT_ONCE shards.
        """
        of_reader = self._by_reader.setdefault(reader, _ReaderShards())
        for shard, asked in of_reader.taken.items():
            if asked == request:
                return shard
        free = self._next_free() if len(of_reader.taken) < MOST_AT_ONCE else None
        if free is not None:
            self._states[free] = ShardState.TAKEN
            of_reader.taken[free] = request
            of_reader.open[free] = None
            if len(of_reader.open) > 2 * MOST_AT_ONCE:
                of_reader.open = dict.fromkeys(list(of_reader.open)[-MOST_AT_ONCE:])
        return free

    def commit(self, reader: ShardReader, shard: int) -> bool:
        """Commit a shard. Return False if this reader has not taken it. Idempotent."""
        return self._settle(reader, shard, None)

    def fail(self, reader: ShardReader, shard: int, reason: str) -> bool:
        """Mark a shard as permanently unreadable. Return False if this reader has not taken it. Idempotent."""
        return self._settle(reader, shard, reason)

    def give_back(self, reader: ShardReader, shard: int, request: int) -> bool:
        """Release a shard. Return False if this reader has not taken it, or if the request is a repetition.

        A repeated request must have no effect: the reader may have taken the shard again in the meantime.
        """
        of_reader = self._by_reader.get(reader)
        if of_reader is None or request in of_reader.returns or not self._free(of_reader, shard):
            return False
        of_reader.returns.append(request)
        return True

    def ended(self, reader: ShardReader) -> bool:
        """Release all shards of a reader that has ended. Return whether the reader had shards."""
        of_reader = self._by_reader.pop(reader, _ReaderShards())
        returned = [shard for shard in list(of_reader.taken) if self._free(of_reader, shard)]
        return bool(returned)

    # ---- recovery by a later application master ----------------------------------------------------------------

    def was_settled(self, reader: ShardReader, shard: int, failed: Optional[str] = None) -> None:
        """Restore a log entry of an earlier application master: a commit, or a failure with the reason ``failed``.

        If called several times for a shard, the last call counts. Raises IndexError for an unknown shard.
        """
        self._forget(shard)
        self._record(self._by_reader.setdefault(reader, _ReaderShards()), shard, failed)

    def holds(self, reader: ShardReader, shards: Iterable[int]) -> None:
        """Restore shards that a reader took from an earlier application master. Ignore shards that are not free."""
        of_reader = self._by_reader.setdefault(reader, _ReaderShards())
        for shard in shards:
            if 0 <= shard < len(self._states) and self._states[shard] == ShardState.FREE:
                self._states[shard] = ShardState.TAKEN
                of_reader.taken[shard] = 0  # no request has the number 0

    def _forget(self, shard: int) -> None:
        """Undo a restored commit or failure of a shard, because a later log entry replaces the earlier entry.

        An application master that had already been replaced wrote the earlier entry, so no reader relies on it.
        """
        if self._states[shard] == ShardState.COMMITTED:
            self.committed -= 1
        elif self._states[shard] == ShardState.FAILED:
            del self.failed[shard]
        else:
            return
        for of_reader in self._by_reader.values():
            if shard in of_reader.settled:
                of_reader.settled.remove(shard)

    # ---- helpers -----------------------------------------------------------------------------------------------

    def _settle(self, reader: ShardReader, shard: int, failed: Optional[str]) -> bool:
        """Commit a shard, or mark the shard as failed if ``failed`` is a reason.

        Return False if the reader has not taken the shard. Return True if it has already settled the shard in this way.
        """
        state = ShardState.COMMITTED if failed is None else ShardState.FAILED
        of_reader = self._by_reader.get(reader)
        if of_reader is not None and shard in of_reader.settled and self._states[shard] == state:
            return True
        if of_reader is None or shard not in of_reader.taken:
            return False
        del of_reader.taken[shard]
        self._record(of_reader, shard, failed)
        return True

    def _record(self, of_reader: _ReaderShards, shard: int, failed: Optional[str]) -> None:
        """Record a commit or failure by the reader with these shards."""
        of_reader.settled.append(shard)
        of_reader.open.pop(shard, None)
        if failed is None:
            self._states[shard] = ShardState.COMMITTED
            self.committed += 1
        else:
            self._states[shard] = ShardState.FAILED
            self.failed[shard] = failed

    def _free(self, of_reader: _ReaderShards, shard: int) -> bool:
        """Release a shard. Return False if the reader with these shards has not taken it."""
        if shard not in of_reader.taken:
            return False
        del of_reader.taken[shard]
        self._states[shard] = ShardState.FREE
        heapq.heappush(self._returned, shard)
        return True

    def _next_free(self) -> Optional[int]:
        for shard in self._candidates():
            if self._states[shard] == ShardState.FREE:
                return shard
        return None

    def _candidates(self) -> Iterator[int]:
        while self._returned:
            yield heapq.heappop(self._returned)
        while self._fresh < len(self._states):
            self._fresh += 1
            yield self._fresh - 1


_FULL = 256 << 10  # bytes; a log file of this size is full, and a new file begins


@attrs.frozen
class ShardCommit:
    """Log entry of a shard that was committed or marked as unreadable."""

    shard: int
    reader: ShardReader
    time_ms: int  # epoch milliseconds of the commit or failure
    failed: Optional[str] = None  # reason why the shard is unreadable; None if the shard was committed
    outputs: list[str] = attrs.field(factory=list)  # result files that the program named in the commit

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
    def of_line(cls, line: bytes) -> ShardCommit:
        """Parse a line written by ``line``. Raises ValueError."""
        fields = read_json(line)
        try:
            reader = ShardReader(fields["task"], fields["attempt"], fields["start"])
            return cls(fields["shard"], reader, fields["time_ms"], fields.get("failed"), fields.get("outputs", []))
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a commit: {line[:200]!r}") from error


class CommitLog:
    """Writer of the log for one application master. Each application master has its own files. All methods block."""

    def __init__(self, storage: Storage, directory: str, am_attempt: int) -> None:
        self._storage = storage
        self._directory = directory
        self._am_attempt = am_attempt
        self._number = 1  # number of the current file
        self._newest = b""  # content of the current file

    def add(self, settled: Sequence[ShardCommit]) -> None:
        """Store these entries. If StorageError is raised, no entry was stored, and the caller can add them again."""
        content = self._newest + b"".join(each.line() for each in settled)
        name = f"{self._am_attempt:04d}-{self._number:06d}.jsonl"
        write_atomically(self._storage, uris.join(self._directory, name), content)
        self._newest = content
        if len(content) >= _FULL:
            self._number, self._newest = self._number + 1, b""


def read_log(storage: Storage, directory: str) -> Iterator[ShardCommit]:
    """Yield all entries of the log, oldest application master first. The last entry for each shard is valid.

    Blocks. Raises StorageError, and ValueError for an invalid line.
    """
    for file in list_existing(storage, directory):
        if not is_temporary(file.name):
            for line in read_whole(storage, file.path, COMMITS_LIMIT).splitlines():
                yield ShardCommit.of_line(line)
