"""Segment files: gzipped JSON lines, written once, and read as far as they are intact."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, Generic, Optional, Protocol, TypeVar, Union

import attrs

from tony_provider.runtime.common.codec import CodecError, load_json
from tony_provider.runtime.common.quantities import count
from tony_provider.runtime.storage.base import FileStatus, Storage, read_bytes
from tony_provider.runtime.storage.errors import STORE_ERRORS, StorageError, StorageNotADirectory, StorageNotFound

GZIP = 31  # zlib's window bits for a gzip header
_MOST_UNREADABLE = 10_000  # limit for a file; a file with more is no segment
_LINE = re.compile(rb"[^\n]+")
_MOST_MEMBERS = 100  # limit for members of a gzip file: ours have one or two, and each costs a copy of the rest
_TOO_LARGE = "it is too large: the rest is not read"
_AT_ONCE = 8  # files read concurrently, because a store's latency for each file dominates


T = TypeVar("T")


class Header(Protocol):
    """First line of a segment."""

    @property
    def version(self) -> int:
        """The format version of the segment."""


H = TypeVar("H", bound=Header)


@attrs.frozen
class SegmentContent(Generic[H, T]):
    """The readable part of a segment file: header, values and problems."""

    header: H
    values: list[T]
    problems: list[str]  # what is missing and why, for users
    size: int  # bytes of its text


def compressed(lines: Iterable[bytes]) -> bytes:
    """Return the file content for these lines."""
    compressor = zlib.compressobj(wbits=GZIP)
    return b"".join((*(compressor.compress(line) for line in lines), compressor.flush()))


def decompressed(data: bytes, most_bytes: int) -> tuple[bytes, str]:
    """Return at most ``most_bytes`` of a file's text, and why the rest is missing; empty if nothing is missing."""
    parts: list[bytes] = []
    left = most_bytes
    problem = ""
    while data and not problem:
        if left <= 0:
            problem = _TOO_LARGE
            break
        if len(parts) == _MOST_MEMBERS:
            problem = f"it is damaged: it has more than {_MOST_MEMBERS} parts"
            break
        decompressor = zlib.decompressobj(wbits=GZIP)
        try:
            parts.append(decompressor.decompress(data, left))
        except zlib.error as error:
            problem = f"it is damaged: {error}"
            break
        left -= len(parts[-1])
        if not decompressor.eof:
            problem = _TOO_LARGE if left <= 0 or decompressor.unconsumed_tail else "it is cut short"
        data = decompressor.unused_data
    return b"".join(parts), problem


def read_content(
    data: bytes, default: H, read: Callable[[bytes], Optional[T]], *, most_bytes: int, most: int
) -> SegmentContent[H, T]:
    """Read a segment from the bytes of its file, which may be truncated or invalid.

    ``default`` is the header of the newest known version, returned if the file has none. ``read`` returns the value of
    a line, or None if the line is invalid. ``most_bytes`` and ``most`` limit the text and the values that are read.
    """
    text, problem = decompressed(data, most_bytes)
    problems = [problem] if problem else []
    first, _, rest = text.partition(b"\n")
    try:
        header = load_json(first, type(default))
    except CodecError as error:
        return SegmentContent(default, [], [*problems, f"its first line is no header: {error}"], len(text))
    if (known := default.version) < header.version:
        problems.append(f"it has form {header.version}, of a later release: what form {known} has not is left out")
    if not rest and not problem:
        problems.append("it is cut short: nothing comes after its first line")
    values, more = _read_lines(rest, read, most=most, is_cut=bool(problem))
    return SegmentContent(header, values, [*problems, *more], len(text))


def _read_lines(
    text: bytes, read: Callable[[bytes], Optional[T]], *, most: int, is_cut: bool
) -> tuple[list[T], list[str]]:
    """Return the values of lines, and what is missing, for users. If ``is_cut``, an unfinished last line is ignored."""
    values: list[T] = []
    unreadable = 0
    for match in _LINE.finditer(text):  # there may be millions of lines
        if is_cut and match.end() == len(text):
            break
        if len(values) == most:
            return values, ["there are too many: the rest is not read"]
        value = read(match[0])
        if value is not None:
            values.append(value)
            continue
        unreadable += 1
        if unreadable == _MOST_UNREADABLE:
            return values, [f"{_MOST_UNREADABLE} lines cannot be read: the rest is not tried"]
    return values, [f"{count(unreadable, 'line')} cannot be read"] if unreadable else []


def listed(storage: Storage, directory: str) -> list[FileStatus]:
    """Return the files of a directory, sorted by name; empty if it does not exist. Raises StorageError."""
    try:
        found = storage.list(directory)
    except (StorageNotFound, StorageNotADirectory):
        return []
    return [each for each in found if not each.is_directory]


def contents(storage: Storage, files: Sequence[FileStatus]) -> Iterator[Union[bytes, StorageError]]:
    """Yield the bytes of each file in order, up to the listed size, or the error of a single file.

    Several files are read concurrently. Raises StorageError if the whole store is unavailable.
    """
    pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="tony-history")
    try:
        yield from pool.map(lambda file: _content(storage, file), files)
    finally:
        pool.shutdown(cancel_futures=True)


def _content(storage: Storage, file: FileStatus) -> Union[bytes, StorageError]:
    try:
        return read_bytes(storage, file.path, length=file.size)
    except STORE_ERRORS:
        raise
    except StorageError as error:
        return error
