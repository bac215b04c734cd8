"""Find the files of an input by its paths and patterns, or by the list of its table, and split them into shards.

Text and TFRecord files are split at arbitrary bytes, without reading the files. A record belongs to the piece in which
the record begins. The reader of a piece searches for the first record of the piece.

Parquet files are split between row groups, whose sizes are in the footer. The footer is a ``FileMetaData`` of
parquet.thrift: field 4 has the row groups. In a ``RowGroup``, field 2 is the number of uncompressed bytes. Field 6 is
the number of bytes in the file, but older writers omit it.
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

from tony_provider.runtime.common.binary import EndlessNumber, read_varint
from tony_provider.runtime.common.concurrency import in_parallel_ordered
from tony_provider.runtime.inputs.shards import InputShard
from tony_provider.runtime.jobspec.model import InputFormat, InputSpec
from tony_provider.runtime.jobspec.problems import child, item
from tony_provider.runtime.storage import (
    FileStatus,
    Storage,
    StorageNotADirectory,
    StorageNotFound,
    local_path,
    read_bytes,
    uris,
)
from tony_provider.runtime.storage.errors import StorageUnsupported
from tony_provider.runtime.storage.stores import JobStores

_PLAIN, _ENCRYPTED = b"PAR1", b"PARE"
_END = 8  # bytes after the footer: the footer's length, and the magic number
_FIRST_READ = 64 << 10  # bytes to read at the end of a file, enough for most footers
_LONGEST = 64 << 20
_DEEPEST = 32  # maximum depth of nested structures; parquet.thrift has 6 levels


class ParquetError(ValueError):
    """A file is no Parquet file, or its footer is unreadable. The message gives the reason, but not the file."""


def row_group_sizes(storage: Storage, uri: str, size: int) -> list[int]:
    """Return the bytes of each row group in a file of ``size`` bytes. Blocks; raises ParquetError, StorageError."""
    if size < len(_PLAIN) + _END:
        raise ParquetError("it is too short")
    end = _read(storage, uri, size, min(size, _FIRST_READ))
    if end[-4:] == _ENCRYPTED:
        raise ParquetError("its footer is encrypted, so its row groups are unknown")
    if end[-4:] != _PLAIN:
        raise ParquetError("it does not end with the marker of a Parquet file")
    length = int.from_bytes(end[-_END:-4], "little") + _END
    if length + len(_PLAIN) > size:
        raise ParquetError(f"its footer of {length - _END} bytes would be longer than the file")
    if length > _LONGEST:
        raise ParquetError(f"its footer has {length - _END} bytes, more than the limit of {_LONGEST}")
    if length > len(end):
        end = _read(storage, uri, size, length)
    return _in_the_file(parse_footer(end[-length:-_END]), size)


def parse_footer(footer: bytes) -> list[tuple[int, int]]:
    """Return two sizes in bytes for each row group: uncompressed, and in the file (0 if the footer omits it).

    Raises ParquetError.
    """
    compact = _Compact(footer)
    try:
        groups = _row_groups(compact)
    except (IndexError, RecursionError, EndlessNumber) as error:
        raise ParquetError("its footer is damaged") from error
    if compact.position > len(footer) or any(min(group) < 0 for group in groups):
        raise ParquetError("its footer is damaged")
    return groups


def _read(storage: Storage, uri: str, size: int, length: int) -> bytes:
    data = read_bytes(storage, uri, offset=size - length, length=length)
    if len(data) != length:
        raise ParquetError("it has become shorter since it was listed")
    return data


def _in_the_file(groups: list[tuple[int, int]], size: int) -> list[int]:
    """Return the bytes of each row group in the file. Estimate unknown sizes from the uncompressed bytes."""
    if all(compressed for _, compressed in groups):
        return [compressed for _, compressed in groups]
    total = sum(plain for plain, _ in groups)
    return [size * plain // total if total else size // len(groups) for plain, _ in groups]


def _row_groups(compact: _Compact) -> list[tuple[int, int]]:
    for field, kind in compact.fields():
        if field == 4:
            count, element = compact.elements()
            if kind != _LIST or element != _STRUCT:
                raise ParquetError("its footer is damaged")
            return [_row_group(compact) for _ in range(count)]
        compact.skip(kind)
    raise ParquetError("its footer has no list of row groups")


def _row_group(compact: _Compact) -> tuple[int, int]:
    plain = compressed = 0
    for field, kind in compact.fields():
        if field == 2 and kind == _I64:
            plain = compact.integer()
        elif field == 6 and kind == _I64:
            compressed = compact.integer()
        else:
            compact.skip(kind)
    return plain, compressed


_BOOLEANS = (1, 2)
_I64 = 6
_NUMBERS = (4, 5, _I64)
_FIXED = {3: 1, 7: 8, 13: 16}  # size in bytes by type: byte, double, UUID
_BINARY, _LIST, _SET, _MAP, _STRUCT = 8, 9, 10, 11, 12


class _Compact:
    """Reader of Thrift's compact protocol. Raises IndexError, ParquetError for invalid data.

    After a skipped value, ``position`` may be beyond the end of the data.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    def fields(self) -> Iterator[tuple[int, int]]:
        """Yield the number and type of each field of a structure. The caller then reads or skips the field's value."""
        field = 0
        while header := self._byte():
            more = header >> 4
            field = field + more if more else self.integer()
            yield field, header & 15

    def elements(self) -> tuple[int, int]:
        """Return the number of elements of a list, and their type."""
        count, kind, self.position = _list_header(self._data, self.position)
        return count, kind

    def integer(self) -> int:
        number, self.position = read_varint(self._data, self.position)
        return (number >> 1) ^ -(number & 1)

    def skip(self, kind: int) -> None:
        """Skip a value."""
        self.position = _behind(self._data, self.position, kind, 0)

    def _byte(self) -> int:
        self.position += 1
        return self._data[self.position - 1]


# Almost all values of a footer are skipped. For speed, the following functions take and return positions, and handle
# short values without a function call.


def _behind(data: bytes, at: int, kind: int, depth: int) -> int:
    """Return the position after the field value that begins at ``at``."""
    if kind in _BOOLEANS:
        return at  # a Boolean has no further bytes: type 1 means true, type 2 false
    if kind in _NUMBERS:
        while data[at] > 127:
            at += 1
        return at + 1
    if kind == _BINARY:
        length, at = read_varint(data, at)
        return at + length
    if kind in _FIXED:
        return at + _FIXED[kind]
    if depth > _DEEPEST:
        raise ParquetError("its footer is damaged")
    if kind == _STRUCT:
        return _behind_struct(data, at, depth)
    if kind in (_LIST, _SET):
        count, element, at = _list_header(data, at)
        return _behind_elements(data, at, count, (element,), depth)
    if kind == _MAP:
        count, at = read_varint(data, at)
        return _behind_elements(data, at + 1, count, (data[at] >> 4, data[at] & 15), depth) if count else at
    raise ParquetError("its footer is damaged")


def _behind_struct(data: bytes, at: int, depth: int) -> int:
    while header := data[at]:
        at += 1
        if header < 16:  # the field's number follows, as a varint
            while data[at] > 127:
                at += 1
            at += 1
        kind = header & 15
        if kind in _NUMBERS:
            while data[at] > 127:
                at += 1
            at += 1
        elif kind == _BINARY and data[at] < 128:
            at += data[at] + 1
        else:
            at = _behind(data, at, kind, depth + 1)
    return at + 1


def _behind_elements(data: bytes, at: int, count: int, kinds: tuple[int, ...], depth: int) -> int:
    for _ in range(count):
        for kind in kinds:
            at = at + 1 if kind in _BOOLEANS else _behind(data, at, kind, depth + 1)  # a Boolean in a list is one byte
        if at > len(data):
            raise ParquetError("its footer is damaged")
    return at


def _list_header(data: bytes, at: int) -> tuple[int, int, int]:
    """Return the number of elements of a list, their type, and the position of the first element."""
    count, kind, at = data[at] >> 4, data[at] & 15, at + 1
    if count == 15:
        count, at = read_varint(data, at)
    return count, kind, at


COMPRESSED = (".gz", ".gzip", ".bz2", ".xz", ".zst", ".zstd", ".lz4", ".lzo", ".snappy", ".deflate", ".zip", ".br")
"""Suffixes of compressed files, in which records cannot be found from the middle."""

_AT_ONCE = 16  # files read concurrently
_MIB = 1 << 20


class UncutError(ValueError):
    """A file cannot be split; the message names the file and a remedy."""


def cut_files(
    spec: InputSpec, files: Iterable[InputShard], stores: JobStores, check_cancelled: Callable[[], None]
) -> Iterator[InputShard]:
    """Yield the shards of these files, in the order of the files. ``files``: a shard for each whole file.

    ``check_cancelled`` is called before a file is read. If it raises an exception, the work ends. Blocks. Raises
    UncutError, StorageError.
    """
    if spec.split_size is None and not spec.checksum and _keeps_format(spec):
        yield from files
        return
    size = None if spec.split_size is None else spec.split_size * _MIB

    def shards(listed: InputShard) -> list[InputShard]:
        whole = _whole(spec, listed, stores)
        if size is None or whole.format is None:
            return [whole]
        if whole.format == InputFormat.PARQUET.value:
            return cut_row_groups(whole, _row_groups_of(whole, stores), size)
        return cut_bytes(whole, size)

    reads_footers = size is not None and spec.format in (InputFormat.PARQUET, InputFormat.ICEBERG)
    reads_content = spec.checksum or reads_footers
    for found in in_parallel_ordered(shards, files, _AT_ONCE, check_cancelled) if reads_content else map(shards, files):
        yield from found


def cut_bytes(whole: InputShard, size: int) -> list[InputShard]:
    """Split a file into pieces of equal size, each at most ``size`` bytes. Compressed files are not split."""
    count = -(-whole.size // size)
    if count < 2 or whole.uri.lower().endswith(COMPRESSED):
        return [whole]
    ends = [whole.size * number // count for number in range(count + 1)]
    return [_piece(whole, begin, end - begin) for begin, end in zip(ends, ends[1:])]


def _piece(whole: InputShard, offset: int, length: int) -> InputShard:
    """Return a piece of a shard. Avoids ``attrs.evolve``, which would be slow for a million pieces."""
    return InputShard(
        whole.uri,
        whole.size,
        whole.modified_ms,
        whole.format,
        offset,
        length,
        whole.row_groups,
        whole.checksum,
        whole.partition,
    )


def cut_row_groups(whole: InputShard, sizes: list[int], size: int) -> list[InputShard]:
    """Split a Parquet file into pieces of consecutive row groups, at most ``size`` bytes each.

    A row group larger than ``size`` becomes a piece by itself. ``sizes``: bytes of each row group.
    """
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


def _keeps_format(spec: InputSpec) -> bool:
    """Return whether shards keep the format of their listing: lists of Iceberg tables name formats."""
    return spec.format in (InputFormat.FILES, InputFormat.ICEBERG)


def _whole(spec: InputSpec, listed: InputShard, stores: JobStores) -> InputShard:
    return attrs.evolve(
        listed,
        format=listed.format if _keeps_format(spec) else spec.format.value,
        checksum=stores.of(listed.uri).checksum(listed.uri)
        if spec.checksum and not listed.checksum
        else listed.checksum,
    )


def _row_groups_of(whole: InputShard, stores: JobStores) -> list[int]:
    try:
        return row_group_sizes(stores.of(whole.uri), whole.uri, whole.size)
    except ParquetError as error:
        remedy = "rewrite the file, name other files, or remove `split_size`"
        raise UncutError(f"{whole.uri} cannot be cut as a Parquet file: {error}; {remedy}") from error


_MAGIC = re.compile(r"[*?\[]")
_HIDDEN = ("_", ".")
_ANY_DIRECTORIES = "**"


def fixed_directory(path: str) -> str:
    """Return the part of an input's path before the first component with a pattern, as a URI."""
    parsed = uris.parse(path)
    parts = itertools.takewhile(lambda part: not _MAGIC.search(part), parsed.path.split("/"))
    return str(attrs.evolve(parsed, path="/".join(parts) or "/"))


class BadInputError(Exception):
    """An input cannot be distributed; the message names the key in the job and a remedy."""


@attrs.frozen
class _Directories:
    """Lists directories of one store, and checks for cancellation before each listing."""

    storage: Storage
    check_cancelled: Callable[[], None]

    def entries(self, directory: str) -> list[FileStatus]:
        """Return the entries of a directory sorted by name. Return an empty list for a file or a missing path."""
        self.check_cancelled()
        try:
            found = self.storage.list(directory)
        except (StorageNotFound, StorageNotADirectory):
            return []
        return [entry for entry in found if not (entry.is_directory and _leads_back(entry.path))]


def _leads_back(directory: str) -> bool:
    """Return whether a directory is a link to one of its parents. Following the link would never end."""
    if uris.scheme(directory) != "file":
        return False
    path = Path(local_path(directory))
    return path.is_symlink() and path.resolve() in (parent.resolve() for parent in path.parents)


def find_shards(
    name: str,
    spec: InputSpec,
    stores: JobStores,
    check_cancelled: Callable[[], None] = lambda: None,
    *,
    may_lack: bool = False,
) -> Iterator[InputShard]:
    """Yield the shards of an input, in the order of the input's paths, and sorted by file name within a path.

    The path of a table is the list of its files or partitions, see ``find_table_shards``. A file that matches several
    paths is included once. ``check_cancelled`` is called before a directory is listed. If it raises an exception, the
    search ends. Blocks. Raises StorageError, and BadInputError if a path has an unknown store or, unless ``may_lack``,
    no files.
    """
    if spec.table is not None:
        with stores.of(spec.paths[0]).open_read(spec.paths[0]) as lines:
            yield from find_table_shards(name, spec, map(InputShard.of_line, lines), stores, check_cancelled)
        return
    named = (_named_at(name, spec, index, stores, check_cancelled, may_lack) for index in range(len(spec.paths)))
    files = itertools.chain.from_iterable(named)
    once = _once(files) if len(spec.paths) > 1 else files
    yield from _cut(name, spec, map(InputShard.of_status, once), stores, check_cancelled)


def find_shards_at(
    name: str, spec: InputSpec, index: int, stores: JobStores, check_cancelled: Callable[[], None] = lambda: None
) -> Iterator[InputShard]:
    """Yield the shards of the input's path with this index. See ``find_shards`` for arguments and errors."""
    files = map(InputShard.of_status, _named_at(name, spec, index, stores, check_cancelled))
    yield from _cut(name, spec, files, stores, check_cancelled)


def find_table_shards(
    name: str,
    spec: InputSpec,
    listed: Iterable[InputShard],
    stores: JobStores,
    check_cancelled: Callable[[], None] = lambda: None,
) -> Iterator[InputShard]:
    """Yield the shards of a table's input.

    ``listed``: a shard for each data file of an Iceberg snapshot, or for the directory of each Hive partition. A
    missing directory has no files, as in Hive. See ``find_shards`` for the other arguments and errors.
    """
    yield from _cut(name, spec, _table_files(listed, stores, check_cancelled), stores, check_cancelled)


def _table_files(
    listed: Iterable[InputShard], stores: JobStores, check_cancelled: Callable[[], None]
) -> Iterator[InputShard]:
    for each in listed:
        if each.snapshot is not None:
            yield each
            continue
        directories = _Directories(stores.of(each.uri), check_cancelled)
        for status in _at_any_depth(directories, each.uri, []):
            yield attrs.evolve(InputShard.of_status(status), partition=each.partition)


def _cut(
    name: str, spec: InputSpec, files: Iterable[InputShard], stores: JobStores, check_cancelled: Callable[[], None]
) -> Iterator[InputShard]:
    try:
        yield from cut_files(spec, files, stores, check_cancelled)
    except UncutError as error:
        raise BadInputError(f"{child('inputs', name)}: {error}") from error


def _once(files: Iterable[FileStatus]) -> Iterator[FileStatus]:
    seen: set[bytes] = set()  # hashes of names; a million names would need more memory
    for status in files:
        mark = hashlib.blake2b(status.path.encode("utf-8", "surrogateescape"), digest_size=16).digest()
        if mark not in seen:
            seen.add(mark)
            yield status


def _named_at(
    name: str,
    spec: InputSpec,
    index: int,
    stores: JobStores,
    check_cancelled: Callable[[], None],
    may_lack: bool = False,
) -> Iterator[FileStatus]:
    """Yield the files of the path with this index. Raises BadInputError if the path has no files but must have some."""
    written = spec.paths[index]
    where = item(child("inputs", name, "paths"), index)
    empty = not may_lack
    try:
        for status in _files(where, written, stores, check_cancelled):
            empty = False
            yield status
    except StorageNotFound as error:
        if not may_lack:
            raise BadInputError(f"{where}: {error.uri} does not exist; correct the path") from error
    if empty:
        raise BadInputError(
            f"{where}: {written} matches no file (names that begin with _ or . are ignored); correct the path, or "
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
    if fixed < len(parts):
        yield from _matching(directories, start, parts[fixed:])
    else:
        yield from _all_of(directories, directories.storage.status(start))


def _all_of(directories: _Directories, status: FileStatus) -> Iterator[FileStatus]:
    """Yield the file that ``status`` describes, or all files below the directory, except hidden ones."""
    if not status.is_directory:
        yield status
        return
    for entry in directories.entries(status.path):
        if entry.name.startswith(_HIDDEN):
            continue
        if entry.is_directory:
            yield from _all_of(directories, entry)
        else:
            yield entry


def _matching(directories: _Directories, directory: str, patterns: Sequence[str]) -> Iterator[FileStatus]:
    """Yield the files below a directory that match ``patterns``, one pattern for each level of the path.

    If a directory matches the last pattern, yield all its files.
    """
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
    """Yield the files that match the patterns ``below``, relative to this directory or to any directory below it."""
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
