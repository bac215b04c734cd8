"""Zip archives, which .keras files and PyTorch's are: whole when every member's checksum is right."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tony_provider.runtime.checkpoint.content.unreadable import Unreadable

_PIECE = 1 << 20  # bytes, read at a time
MAGIC = b"PK\x03\x04"
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # that Keras, NumPy and PyTorch write
_MOST_TIMES = 100  # its own size that an archive may unpack to, beyond what follows
_MOST_ANYWAY = 1 << 30  # bytes
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
def opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """Context manager that opens a zip archive. Raises Unreadable for a damaged one, there and in the body; OSError."""
    try:
        with zipfile.ZipFile(path) as archive:
            _check_bounds(archive, path.stat().st_size)
            yield archive
    except _ERRORS as error:
        raise Unreadable(f"it is no whole zip archive: {error}") from error


def _check_bounds(archive: zipfile.ZipFile, size: int) -> None:
    """Before anything is unpacked. Raises Unreadable."""
    members = archive.infolist()
    if any(member.compress_type not in _METHODS for member in members):
        raise Unreadable("it is compressed in a way that none of its kind is")
    if sum(member.compress_size for member in members) > size:
        raise Unreadable("it is no whole zip archive: what is in it overlaps")
    unpacked = sum(member.file_size for member in members)
    if unpacked > _MOST_ANYWAY + _MOST_TIMES * size:
        raise Unreadable(f"its {size} bytes would unpack to {unpacked}")


def check(archive: zipfile.ZipFile) -> bool:
    """Read every member of an archive. False when there are no checksums (all are 0), as PyTorch can be told to do.

    Then only the archive's directory, which is its end, has been found whole, and no member can be read.
    """
    members = archive.infolist()
    if not any(member.CRC for member in members):
        return False
    for member in members:
        with archive.open(member) as data:
            while data.read(_PIECE):
                pass
    return True


def check_any(path: Path) -> None:
    """Check an archive of any library, also one that is compressed in another way. Raises Unreadable, OSError."""
    try:
        with zipfile.ZipFile(path) as archive:
            if any(member.compress_type not in _METHODS for member in archive.infolist()):
                return  # its directory, which is written last, is there
    except _ERRORS as error:
        raise Unreadable(f"it is not a complete zip archive: {error}") from error
    with opened(path) as archive:
        check(archive)
