"""For which machines a packed environment is, by the names of its libraries.

Names are plain bytes in a tar, and in the list at a zip's end: nothing of the archive is unpacked for it.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

_LIBRARY = re.compile(  # of Linux, by its machine; of others, which no node is, by their system
    rb"\.cpython-3\d{1,2}-(?:(\w{3,20})-linux-(?:gnu|musl)|(darwin))\.so|\.cp3\d{1,2}-(win\w{2,10})\.pyd"
)
_MOST_BYTES = 32 << 20  # of a tar that are looked at, unpacked
_PIECE = 1 << 20
_OVERLAP = 100  # bytes: a name may lie in two pieces
_GZIP = b"\x1f\x8b"
_ZIP = b"PK"


def machines_in(archive: Path) -> set[str]:
    """The machines that compiled libraries in an archive are for, as far as a look tells. Raises OSError."""
    found: set[str] = set()
    before = b""
    for piece in _pieces(archive):
        found.update(name.decode() for names in _LIBRARY.findall(before + piece) for name in names if name)
        before = piece[-_OVERLAP:]
    return found


def _pieces(archive: Path) -> Iterator[bytes]:
    """The beginning of a tar, unpacked; the end of a zip."""
    with archive.open("rb") as file:
        start = file.read(len(_GZIP))
        file.seek(max(0, os.fstat(file.fileno()).st_size - _MOST_BYTES) if start == _ZIP else 0)
        gzip = zlib.decompressobj(wbits=31) if start == _GZIP else None
        left = _MOST_BYTES
        while left > 0 and (piece := file.read(_PIECE)):
            try:
                piece = gzip.decompress(piece, left) if gzip else piece
            except zlib.error:  # whoever unpacks it says what is wrong
                return
            left -= len(piece)
            yield piece
            if gzip and gzip.eof:
                return
