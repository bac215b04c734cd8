"""HDF5 files. They have no checksum of their data, so a file is complete if it has the size in its header.

A file that was not closed is larger than the size in its header, and a truncated file is smaller.
"""

from __future__ import annotations

import struct
from pathlib import Path

from tony_provider.runtime.checkpoint.content.unreadable import Unreadable

_MAGIC = b"\x89HDF\r\n\x1a\n"
_END_AT = {0: 40, 1: 44, 2: 28, 3: 28}  # by the version of the superblock


def check(path: Path) -> None:
    """Check that an HDF5 file is complete. Raises Unreadable, OSError."""
    with path.open("rb") as file:
        beginning = file.read(64)
        size = file.seek(0, 2)
    if len(beginning) < 64 or beginning[:8] != _MAGIC:
        raise Unreadable("it does not begin as an HDF5 file does")
    version = beginning[8]
    if version not in _END_AT:
        raise Unreadable(f"version {version} of HDF5's superblock is unknown")
    offset_size = beginning[13 if version < 2 else 9]
    if offset_size != 8:
        raise Unreadable(f"its addresses have {offset_size} bytes instead of 8")
    (end,) = struct.unpack_from("<Q", beginning, _END_AT[version])
    if size != end:
        raise Unreadable(f"it has {size} bytes, but its header says {end}: it was not written to its end")
