"""Files that segments are kept in: gzip'd JSON lines, each written once, read as far as they go."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Optional

from tony_provider.runtime.storage.base import FileStatus, Storage
from tony_provider.runtime.storage.errors import StorageNotADirectory, StorageNotFound
from tony_provider.runtime.storage.helpers import read_bytes

GZIP = 31  # zlib's window bits for a gzip header
MOST_UNREADABLE = 10_000  # lines of a file: what has more is something else
_LINE = re.compile(rb"[^\n]+")
_MOST_MEMBERS = 100  # of a gzip file; ours have one or two, and each costs a copy of all that come after it
_TOO_LARGE = "it is too large: the rest is not read"
_AT_ONCE = 8  # files that are asked for at a time: a store takes its time for each, not for its bytes


def compressed(lines: Iterable[bytes]) -> bytes:
    """The file of these lines."""
    compressor = zlib.compressobj(wbits=GZIP)
    return b"".join((*(compressor.compress(line) for line in lines), compressor.flush()))


def decompressed(data: bytes, most_bytes: int) -> tuple[bytes, str]:
    """The text of a file, at most ``most_bytes`` of it, and why it goes no further; empty when it is whole."""
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


def lines_of(text: bytes, *, is_cut: bool = False) -> Iterator[bytes]:
    """Lines that are not empty, one at a time: there may be millions. ``is_cut``: what ends without one is none."""
    for match in _LINE.finditer(text):
        if not is_cut or match.end() < len(text):
            yield match[0]


def listed(storage: Storage, directory: str) -> list[FileStatus]:
    """The files of a directory, sorted by name; none where there is no such directory. Raises StorageError."""
    try:
        found = storage.list(directory)
    except (StorageNotFound, StorageNotADirectory):
        return []
    return [each for each in found if not each.is_directory]


def contents(storage: Storage, files: Sequence[FileStatus]) -> Iterator[Optional[bytes]]:
    """The bytes of each file, in order, no more than its status says; None: it was removed meanwhile.

    Several are read at a time. Raises StorageError.
    """
    pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="tony-history")
    try:
        yield from pool.map(lambda file: _content(storage, file), files)
    finally:
        pool.shutdown(cancel_futures=True)


def _content(storage: Storage, file: FileStatus) -> Optional[bytes]:
    try:
        return read_bytes(storage, file.path, length=file.size)
    except StorageNotFound:
        return None
