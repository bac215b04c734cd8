"""Cutting the files of an input into shards.

Text and TFRecords are cut anywhere: the records of a piece are those that begin in it, and whoever reads it finds the
first of them. So nothing of these files is read here. Of Parquet files the footers are, since row groups stay whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Callable

import attrs

from tony_provider.runtime.inputs.in_order import in_order
from tony_provider.runtime.inputs.parquet_footer import ParquetError, row_group_sizes
from tony_provider.runtime.inputs.shard import InputShard
from tony_provider.runtime.inputs.stores import InputStores
from tony_provider.runtime.spec.model import InputFormat, InputSpec
from tony_provider.runtime.storage import FileStatus

COMPRESSED = (".gz", ".gzip", ".bz2", ".xz", ".zst", ".zstd", ".lz4", ".lzo", ".snappy", ".deflate", ".zip", ".br")
"""Ends of names of files whose records cannot be found from the middle."""

_AT_ONCE = 16  # files that are looked into
_MIB = 1 << 20


class UncutError(ValueError):
    """A file that cannot be cut; the message names it, and says what to do."""


def cut(
    spec: InputSpec, files: Iterable[FileStatus], stores: InputStores, looks: Callable[[], None]
) -> Iterator[InputShard]:
    """The shards of these files, in their order.

    ``looks`` is called before each file that has to be looked into, and what it raises ends the work. Blocks. Raises
    UncutError, StorageError.
    """
    size = None if spec.split_size is None else spec.split_size * _MIB

    def shards(status: FileStatus) -> list[InputShard]:
        whole = _whole(spec, status, stores)
        if size is None:
            return [whole]
        if spec.format is InputFormat.PARQUET:
            return cut_row_groups(whole, _row_groups(whole, stores), size)
        return cut_bytes(whole, size)

    looked_into = spec.checksum or (spec.format is InputFormat.PARQUET and size is not None)
    for found in in_order(shards, files, _AT_ONCE, looks) if looked_into else map(shards, files):
        yield from found


def cut_bytes(whole: InputShard, size: int) -> list[InputShard]:
    """Pieces of the same size, at most ``size`` bytes; a compressed file is one."""
    count = -(-whole.size // size)
    if count < 2 or whole.uri.lower().endswith(COMPRESSED):
        return [whole]
    ends = [whole.size * number // count for number in range(count + 1)]
    return [_piece(whole, begin, end - begin) for begin, end in zip(ends, ends[1:])]


def _piece(whole: InputShard, offset: int, length: int) -> InputShard:
    """As ``attrs.evolve`` would make it, but sooner: there may be a million of them."""
    return InputShard(
        whole.uri, whole.size, whole.modified_ms, whole.format, offset, length, whole.row_groups, whole.checksum
    )


def cut_row_groups(whole: InputShard, sizes: list[int], size: int) -> list[InputShard]:
    """Pieces of row groups that follow each other: as many as ``size`` bytes take, and at least one."""
    pieces: list[InputShard] = []
    first = 0
    while first < len(sizes) or not pieces:
        end, length = first + 1, sum(sizes[first : first + 1])
        while end < len(sizes) and length + sizes[end] <= size:
            length += sizes[end]
            end += 1
        pieces.append(attrs.evolve(whole, length=length, row_groups=(first, min(end, len(sizes)))))
        first = end
    return pieces


def _whole(spec: InputSpec, status: FileStatus, stores: InputStores) -> InputShard:
    return attrs.evolve(
        InputShard.of_status(status),
        format=None if spec.format is InputFormat.FILES else spec.format.value,
        checksum=stores.of(status.path).checksum(status.path) if spec.checksum else None,
    )


def _row_groups(whole: InputShard, stores: InputStores) -> list[int]:
    try:
        return row_group_sizes(stores.of(whole.uri), whole.uri, whole.size)
    except ParquetError as error:
        remedy = "have it written again, name others, or leave out `split_size`"
        raise UncutError(f"{whole.uri} cannot be cut as a Parquet file: {error}; {remedy}") from error
