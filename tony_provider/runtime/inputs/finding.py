"""Find the files of an input by its paths and patterns, and split them into shards.

Text and TFRecords are split at any byte: the records of a piece are those that begin in it, and its reader finds the
first one. So these files are not read here. Row groups of Parquet files stay whole, so their footers are read.
"""

from __future__ import annotations

import fnmatch
import hashlib
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Callable

import attrs

from tony_provider.runtime.common.concurrency import in_parallel_ordered
from tony_provider.runtime.inputs.parquet_footer import ParquetError, row_group_sizes
from tony_provider.runtime.inputs.shards import InputShard
from tony_provider.runtime.jobspec.model import InputFormat, InputSpec
from tony_provider.runtime.jobspec.problems import child, item
from tony_provider.runtime.storage import FileStatus, Storage, StorageNotADirectory, StorageNotFound, local_path, uris
from tony_provider.runtime.storage.errors import StorageUnsupported
from tony_provider.runtime.storage.stores import JobStores

COMPRESSED = (".gz", ".gzip", ".bz2", ".xz", ".zst", ".zstd", ".lz4", ".lzo", ".snappy", ".deflate", ".zip", ".br")
"""Suffixes of compressed files, in which records cannot be found from the middle."""

_AT_ONCE = 16  # files read concurrently
_MIB = 1 << 20


class UncutError(ValueError):
    """A file cannot be split; the message names the file and a remedy."""


def cut_files(
    spec: InputSpec, files: Iterable[FileStatus], stores: JobStores, check_cancelled: Callable[[], None]
) -> Iterator[InputShard]:
    """Yield the shards of these files, in their order.

    Calls ``check_cancelled`` before each file that must be read, and its exceptions end the work. Blocks. Raises
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

    reads_content = spec.checksum or (spec.format is InputFormat.PARQUET and size is not None)
    for found in in_parallel_ordered(shards, files, _AT_ONCE, check_cancelled) if reads_content else map(shards, files):
        yield from found


def cut_bytes(whole: InputShard, size: int) -> list[InputShard]:
    """Split a file into pieces of equal size, at most ``size`` bytes. A compressed file stays whole."""
    count = -(-whole.size // size)
    if count < 2 or whole.uri.lower().endswith(COMPRESSED):
        return [whole]
    ends = [whole.size * number // count for number in range(count + 1)]
    return [_piece(whole, begin, end - begin) for begin, end in zip(ends, ends[1:])]


def _piece(whole: InputShard, offset: int, length: int) -> InputShard:
    """Copy a shard with another range. Faster than ``attrs.evolve``, because there may be a million pieces."""
    return InputShard(
        whole.uri, whole.size, whole.modified_ms, whole.format, offset, length, whole.row_groups, whole.checksum
    )


def cut_row_groups(whole: InputShard, sizes: list[int], size: int) -> list[InputShard]:
    """Split a Parquet file into pieces of consecutive row groups, each of at most ``size`` bytes or one group."""
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


def _whole(spec: InputSpec, status: FileStatus, stores: JobStores) -> InputShard:
    return attrs.evolve(
        InputShard.of_status(status),
        format=None if spec.format is InputFormat.FILES else spec.format.value,
        checksum=stores.of(status.path).checksum(status.path) if spec.checksum else None,
    )


def _row_groups(whole: InputShard, stores: JobStores) -> list[int]:
    try:
        return row_group_sizes(stores.of(whole.uri), whole.uri, whole.size)
    except ParquetError as error:
        remedy = "have it written again, name others, or leave out `split_size`"
        raise UncutError(f"{whole.uri} cannot be cut as a Parquet file: {error}; {remedy}") from error


_MAGIC = re.compile(r"[*?\[]")
_HIDDEN = ("_", ".")
_ANY_DIRECTORIES = "**"


def fixed_directory(path: str) -> str:
    """Return the URI of a path of an input, or of the directory before its first part with a pattern."""
    parsed = uris.parse(path)
    parts = itertools.takewhile(lambda part: not _MAGIC.search(part), parsed.path.split("/"))
    return str(attrs.evolve(parsed, path="/".join(parts) or "/"))


class BadInputError(Exception):
    """An input cannot be distributed; the message names the key in the job and a remedy."""


@attrs.frozen
class _Directories:
    """Lists directories of one store."""

    storage: Storage
    check_cancelled: Callable[[], None]

    def entries(self, directory: str) -> list[FileStatus]:
        """Return the entries of a directory by name; empty if it has vanished or is no directory."""
        self.check_cancelled()
        try:
            found = self.storage.list(directory)
        except (StorageNotFound, StorageNotADirectory):
            return []
        return [entry for entry in found if not (entry.is_directory and _leads_back(entry.path))]


def _leads_back(directory: str) -> bool:
    """Return whether a directory is a link to one of its parents, which would repeat all files without end."""
    if uris.scheme(directory) != "file":
        return False
    path = Path(local_path(directory))
    return path.is_symlink() and path.resolve() in (parent.resolve() for parent in path.parents)


def find_shards(
    name: str, spec: InputSpec, stores: JobStores, check_cancelled: Callable[[], None] = lambda: None
) -> Iterator[InputShard]:
    """Yield the shards of an input: by path as written, then by name. A file that matches two paths is included once.

    Calls ``check_cancelled`` before each directory, and its exceptions end the search. Blocks. Raises BadInputError for
    a path without files or with an unknown store, and StorageError.
    """
    named = (_named_at(name, spec, index, stores, check_cancelled) for index in range(len(spec.paths)))
    files = itertools.chain.from_iterable(named)
    yield from _cut(name, spec, _once(files) if len(spec.paths) > 1 else files, stores, check_cancelled)


def find_shards_at(
    name: str, spec: InputSpec, index: int, stores: JobStores, check_cancelled: Callable[[], None] = lambda: None
) -> Iterator[InputShard]:
    """Yield the shards of one path of the input; otherwise like ``find_shards``."""
    yield from _cut(name, spec, _named_at(name, spec, index, stores, check_cancelled), stores, check_cancelled)


def _cut(
    name: str, spec: InputSpec, files: Iterable[FileStatus], stores: JobStores, check_cancelled: Callable[[], None]
) -> Iterator[InputShard]:
    try:
        yield from cut_files(spec, files, stores, check_cancelled)
    except UncutError as error:
        raise BadInputError(f"{child('inputs', name)}: {error}") from error


def _once(files: Iterable[FileStatus]) -> Iterator[FileStatus]:
    seen: set[bytes] = set()  # hashes, because a million of them need less memory than names
    for status in files:
        mark = hashlib.blake2b(status.path.encode(), digest_size=16).digest()
        if mark not in seen:
            seen.add(mark)
            yield status


def _named_at(
    name: str, spec: InputSpec, index: int, stores: JobStores, check_cancelled: Callable[[], None]
) -> Iterator[FileStatus]:
    """Yield the files of one path of the input."""
    written = spec.paths[index]
    where = item(child("inputs", name, "paths"), index)
    empty = True
    for status in _files(where, written, stores, check_cancelled):
        empty = False
        yield status
    if empty:
        raise BadInputError(
            f"{where}: {written} names no file (names that begin with _ or . do not count); correct the path, or "
            "run the task that writes these files before this job"
        )


def _files(where: str, written: str, stores: JobStores, check_cancelled: Callable[[], None]) -> Iterator[FileStatus]:
    try:
        directories = _Directories(stores.of(written), check_cancelled)
    except StorageUnsupported as error:
        raise BadInputError(f"{where}: {error}") from error
    parsed = uris.parse(written)
    parts = [part for part in parsed.path.split("/") if part]
    fixed = next((index for index, part in enumerate(parts) if _MAGIC.search(part)), len(parts))
    start = f"{parsed.scheme}://{parsed.authority}/" + "/".join(parts[:fixed])
    try:
        if fixed < len(parts):
            yield from _matching(directories, start, parts[fixed:])
        else:
            yield from _all_of(directories, directories.storage.status(start))
    except StorageNotFound as error:
        raise BadInputError(f"{where}: there is no {error.uri}; correct the path") from error


def _all_of(directories: _Directories, status: FileStatus) -> Iterator[FileStatus]:
    """Yield the file itself, or all files below the directory that are not hidden."""
    if not status.is_directory:
        yield status
        return
    for entry in directories.entries(status.path):
        if not entry.name.startswith(_HIDDEN):
            yield from _all_of(directories, entry)


def _matching(directories: _Directories, directory: str, patterns: Sequence[str]) -> Iterator[FileStatus]:
    """Yield the files that match one pattern for each level, and all files of directories that match."""
    pattern, below = patterns[0], patterns[1:]
    if pattern == _ANY_DIRECTORIES:
        while below and below[0] == _ANY_DIRECTORIES:
            below = below[1:]
        yield from _at_any_depth(directories, directory, below)
        return
    for entry in directories.entries(directory):
        if not _matches(entry.name, pattern):
            continue
        if not below:
            yield from _all_of(directories, entry)
        elif entry.is_directory:
            yield from _matching(directories, entry.path, below)


def _at_any_depth(directories: _Directories, directory: str, below: Sequence[str]) -> Iterator[FileStatus]:
    """Yield the files that match ``below`` in this directory or at any level below it."""
    if below:
        yield from _matching(directories, directory, below)
    for entry in directories.entries(directory):
        if entry.name.startswith(_HIDDEN):
            continue
        if entry.is_directory:
            yield from _at_any_depth(directories, entry.path, below)
        elif not below:
            yield entry


def _matches(name: str, pattern: str) -> bool:
    if name.startswith(_HIDDEN) and not pattern.startswith(_HIDDEN):
        return False
    return fnmatch.fnmatchcase(name, pattern)
