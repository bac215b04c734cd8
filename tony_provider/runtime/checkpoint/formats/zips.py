"""Zip archives, which .keras files and PyTorch's are: whole when every member's checksum is right."""

from __future__ import annotations

import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tony_provider.runtime.checkpoint.formats.directory_view import Unreadable
from tony_provider.runtime.storage.base import CHUNK

MAGIC = b"PK\x03\x04"
_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
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
            yield archive
    except _ERRORS as error:
        raise Unreadable(f"it is no whole zip archive: {error}") from error


def check(archive: zipfile.ZipFile) -> bool:
    """Read every member of an archive. False when there are no checksums (all are 0), as PyTorch can be told to do.

    Then only the archive's directory, which is its end, has been found whole, and no member can be read.
    """
    members = archive.infolist()
    if not any(member.CRC for member in members):
        return False
    for member in members:
        with archive.open(member) as data:
            while data.read(CHUNK):
                pass
    return True
