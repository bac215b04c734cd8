"""Errors of the parsers of checkpoint files, and helpers for small files and zip archives."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tony_provider.runtime.common.bounds import BoundedJsonError, read_json

HIGHEST_COUNT = 2**62  # limit for steps, sizes and offsets; larger numbers are dates, hashes or random


class Unreadable(Exception):  # noqa: N818 - describes what was found
    """A file's content does not match its format. ``str()`` is the reason."""


class NotRead(OSError):  # noqa: N818 - describes what happened
    """The process that reads files failed, independently of the file's content. A retry may succeed."""


def whole(path: Path, size_limit: int) -> bytes:
    """Return the content of a file. Raises OSError, and Unreadable if the file has more than ``size_limit`` bytes."""
    with path.open("rb") as file:
        data = file.read(size_limit + 1)
    if len(data) > size_limit:
        raise Unreadable(f"it has more than {size_limit} bytes, the limit for such files")
    return data


def json_object(path: Path, size_limit: int) -> dict[str, Any]:
    """Return the object in a small JSON file. Raises Unreadable, OSError."""
    try:
        plain = read_json(whole(path, size_limit))
    except BoundedJsonError as error:
        raise Unreadable(f"it cannot be read: {error}") from error
    if not isinstance(plain, dict):
        raise Unreadable("it is not a JSON object")
    return plain


def is_count(value: Any) -> bool:
    """Return whether a value can be a step, size or offset: an integer from 0 to below HIGHEST_COUNT."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < HIGHEST_COUNT


_PIECE = 1 << 20  # bytes to read at a time
ZIP_MAGIC = b"PK\x03\x04"
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # compression methods of Keras, NumPy and PyTorch
_MOST_TIMES = 100  # unpacked, an archive may have this many times its size, plus _MOST_ANYWAY
_MOST_ANYWAY = 1 << 30  # bytes that an archive may always have when unpacked
_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OverflowError,
)


@contextmanager
def open_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """Context manager that opens a zip archive. Raises OSError, and Unreadable if the archive is damaged.

    Errors of the archive in the body of the ``with`` statement also become Unreadable.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            _check_bounds(archive, path.stat().st_size)
            yield archive
    except _ERRORS as error:
        raise Unreadable(f"it is not a complete zip archive: {error}") from error


def _check_bounds(archive: zipfile.ZipFile, size: int) -> None:
    """Check the compression methods and sizes of all members before unpacking. Raises Unreadable."""
    members = archive.infolist()
    if any(member.compress_type not in _METHODS for member in members):
        raise Unreadable("it uses a compression method other than stored and deflated")
    if sum(member.compress_size for member in members) > size:
        raise Unreadable("it is not a complete zip archive: its members overlap")
    unpacked = sum(member.file_size for member in members)
    if unpacked > _MOST_ANYWAY + _MOST_TIMES * size:
        raise Unreadable(f"its {size} bytes would unpack to {unpacked}")


def check_zip(archive: zipfile.ZipFile) -> bool:
    """Read every member of an archive, which verifies the checksums. Return False if the archive has no checksums.

    PyTorch has an option to write 0 instead of checksums. In this case, no member is read. The archive is complete
    nevertheless, because its directory is at the end and was verified when the archive was opened.
    """
    members = archive.infolist()
    if not any(member.CRC for member in members):
        return False
    for member in members:
        with archive.open(member) as data:
            while data.read(_PIECE):
                pass
    return True


def check_any_zip(path: Path) -> None:
    """Check an archive of any library. Archives with unknown compression are not read. Raises Unreadable, OSError."""
    try:
        with zipfile.ZipFile(path) as archive:
            if any(member.compress_type not in _METHODS for member in archive.infolist()):
                return  # the archive is complete, because its directory is written last
    except _ERRORS as error:
        raise Unreadable(f"it is not a complete zip archive: {error}") from error
    with open_zip(path) as archive:
        check_zip(archive)
