"""Shards of an input, the listing that stores them as JSON lines, and their balanced assignment to tasks."""

from __future__ import annotations

import heapq
import json
import os
import tempfile
from array import array
from collections.abc import Iterable, Sequence
from typing import BinaryIO, Optional

import attrs

from tony_provider.runtime.common.bounds import read_json
from tony_provider.runtime.common.quantities import count
from tony_provider.runtime.jobspec.model import InputDeal, JobSpec
from tony_provider.runtime.jobspec.problems import child
from tony_provider.runtime.storage import FileStatus, Storage


@attrs.frozen
class InputShard:
    """A file of an input, or a piece of one, with the state of the file when it was listed.

    A line has only the known fields of a shard.
    """

    uri: str
    size: int  # bytes of the file
    modified_ms: int  # epoch; 0 if the store does not report it
    format: Optional[str] = None  # value of InputFormat; None if only the program knows the format
    offset: Optional[int] = None  # bytes before a piece, whose records are those that begin in it
    length: Optional[int] = None  # bytes of a piece
    row_groups: Optional[tuple[int, int]] = None  # of a piece of a Parquet file: first, and last + 1
    checksum: Optional[str] = None  # of the file, from its store

    @property
    def bytes_to_read(self) -> int:
        """The size by which shards are balanced."""
        return self.size if self.length is None else self.length

    @classmethod
    def of_status(cls, status: FileStatus) -> InputShard:
        return cls(status.path, status.size, status.modified_ms)

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
            )
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise ValueError(f"not a shard: {line[:200]!r}") from error

    def line(self) -> bytes:
        fields = {name: value for name in _FIELDS if (value := getattr(self, name)) is not None}
        return _ENCODER.encode(fields).encode() + b"\n"


_FIELDS = [field.name for field in attrs.fields(InputShard)]
# shared, because creating one takes as long as encoding a line
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


class Listing:
    """The shards of one input, by number from 0. Must be closed.

    The lines are in an unnamed temporary file, which disappears with the process.
    """

    def __init__(self) -> None:
        self._file: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the listing
        self._ends = array("Q", [0])
        self.sizes = array("Q")  # bytes, of each shard
        self.total_size = 0  # bytes of all

    def __len__(self) -> int:
        return len(self.sizes)

    @classmethod
    def of(cls, shards: Iterable[InputShard]) -> Listing:
        """Write shards to a new listing. Blocks. Raises OSError if the disk is full, and the errors of ``shards``."""
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
        """Load a listing written by ``save``. Blocks; raises StorageError, ValueError, OSError."""
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
        """Write the listing to the store atomically. Blocks; raises StorageError."""
        self._file.seek(0)
        storage.write(uri, self._file, overwrite=True)

    def lines(self, numbers: Sequence[int]) -> list[bytes]:
        """Return the lines of these shards. Blocks briefly; thread-safe."""
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


@attrs.frozen
class BalancedAssignment:
    """Assignment of each shard to one part. No part is empty if there are enough shards.

    Needs eight bytes for each shard.
    """

    parts: int
    _order: array[int]  # numbers of shards, part after part, each in the order of the listing
    _begins: array[int]  # beginning of each part in ``_order``, and the end of the last

    @classmethod
    def of(cls, sizes: Sequence[int], parts: int) -> BalancedAssignment:
        """Assign shards of these sizes, in bytes: the largest first, each to the part that is the smallest so far.

        So no part is more than a third larger than the largest part of the best assignment.
        """
        owners = array("I", bytes(4 * len(sizes)))
        counts = array("Q", bytes(8 * parts))
        smallest = [(0, 0, part) for part in range(parts)]  # bytes, shards, number
        # stable: the first of equal shards stays first
        for shard in sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True):
            size, shards, part = smallest[0]
            heapq.heapreplace(smallest, (size + sizes[shard], shards + 1, part))
            owners[shard] = part
            counts[part] += 1
        return cls(parts, *_by_part(owners, counts))

    def part(self, number: int) -> Sequence[int]:
        """Return the numbers of a part's shards, in the order of the listing."""
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
    """Return the minimum number of shards: with a static deal one for each task, at the job's maximum size."""
    if job.inputs[name].deal is InputDeal.QUEUE:
        return 1
    return sum(job.tasks[each].most_instances for each in job.readers(name))


def too_few_shards(job: JobSpec, name: str, shards: int) -> Optional[str]:
    """Return why there are too few shards and what to do, or None if they suffice."""
    tasks = shards_needed(job, name)
    if shards >= tasks:
        return None
    found = f"{count(shards, 'shard')} for {count(tasks, 'task')} ({', '.join(job.readers(name))})"
    remedy = "cut the data into more files or pieces (`split_size`), use fewer instances, or write `deal: queue`"
    return f"{child('inputs', name)}: {found}; with a static deal each needs one: {remedy}"
