"""HDF5 files, which have no checksum over their data: whole when they are as long as they say.

A file that was not closed says less than it holds, one that was cut short says more.
"""

from __future__ import annotations

import struct
from pathlib import Path

from tony_provider.runtime.checkpoint.content.unreadable import Unreadable

_MAGIC = b"\x89HDF\r\n\x1a\n"
_END_AT = {0: 40, 1: 44, 2: 28, 3: 28}  # by the version of the superblock


def check(path: Path) -> None:
    """Check that an HDF5 file is whole. Raises Unreadable, OSError."""
    with path.open("rb") as file:
        beginning = file.read(64)
        size = file.seek(0, 2)
    if len(beginning) < 64 or beginning[:8] != _MAGIC:
        raise Unreadable("it does not begin as an HDF5 file does")
    version = beginning[8]
    if version not in _END_AT:
        raise Unreadable(f"version {version} of HDF5's superblock is not known")
    offset_size = beginning[13 if version < 2 else 9]
    if offset_size != 8:
        raise Unreadable(f"its addresses have {offset_size} bytes, which is not known")
    (end,) = struct.unpack_from("<Q", beginning, _END_AT[version])
    if size != end:
        raise Unreadable(f"it says that it has {end} bytes, but it has {size}: it was not written to its end")
