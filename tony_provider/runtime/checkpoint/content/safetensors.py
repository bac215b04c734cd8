"""``.safetensors`` files. A file is complete if it has the size in its header."""

from __future__ import annotations

from pathlib import Path

from tony_provider.runtime.checkpoint.content.unreadable import Unreadable, is_count
from tony_provider.runtime.foreign_json import ForeignJsonError, read_json

_LONGEST_HEADER = 100 << 20  # bytes, the format's own limit


def check(path: Path) -> None:
    """Check that a ``.safetensors`` file is complete. Raises Unreadable, OSError."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(0)
        length = int.from_bytes(file.read(8), "little")
        if length > min(_LONGEST_HEADER, size - 8):
            raise Unreadable(f"its header cannot be read: it would have {length} bytes")
        header = file.read(length)
    try:
        tensors = [entry for name, entry in read_json(header).items() if name != "__metadata__"]
        ends = [entry["data_offsets"][1] for entry in tensors]
    except (ForeignJsonError, TypeError, LookupError, AttributeError) as error:
        raise Unreadable(f"its header cannot be read: {error}") from error
    if not all(map(is_count, ends)):
        raise Unreadable("its header cannot be read: an offset in it is not a number of bytes")
    end = 8 + length + max(ends, default=0)
    if size != end:
        raise Unreadable(f"it has {size} bytes instead of {end}")
