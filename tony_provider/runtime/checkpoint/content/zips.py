"""Zip archives, such as files of Keras and PyTorch. An archive is complete if all checksums match."""

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
_MOST_TIMES = 100  # an archive may unpack to this multiple of its size, plus _MOST_ANYWAY
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
        raise Unreadable(f"it is not a complete zip archive: {error}") from error


def _check_bounds(archive: zipfile.ZipFile, size: int) -> None:
    """Check the sizes of the members before any is unpacked. Raises Unreadable."""
    members = archive.infolist()
    if any(member.compress_type not in _METHODS for member in members):
        raise Unreadable("it uses a compression that these libraries do not use")
    if sum(member.compress_size for member in members) > size:
        raise Unreadable("it is not a complete zip archive: its members overlap")
    unpacked = sum(member.file_size for member in members)
    if unpacked > _MOST_ANYWAY + _MOST_TIMES * size:
        raise Unreadable(f"its {size} bytes would unpack to {unpacked}")


def check(archive: zipfile.ZipFile) -> bool:
    """Read every member of an archive. Return False if it has no checksums (all are 0), an option of PyTorch.

    Then only the archive's directory, which is its end, is verified.
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
                return  # its directory exists, which is written last
    except _ERRORS as error:
        raise Unreadable(f"it is not a complete zip archive: {error}") from error
    with opened(path) as archive:
        check(archive)
