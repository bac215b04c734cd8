"""``.safetensors`` files: whole when they are as long as their header says."""

from __future__ import annotations

import json
from pathlib import Path

from tony_provider.runtime.checkpoint.formats.directory_view import Unreadable

_LONGEST_HEADER = 100 << 20  # bytes, the format's own limit


def check(path: Path) -> None:
    """Check that a ``.safetensors`` file is whole. Raises Unreadable, OSError."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = file.read(length) if length <= _LONGEST_HEADER else b""
        size = file.seek(0, 2)
    try:
        tensors = [entry for name, entry in json.loads(header).items() if name != "__metadata__"]
        end = 8 + length + max((int(entry["data_offsets"][1]) for entry in tensors), default=0)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise Unreadable(f"its header cannot be read: {error}") from error
    if size != end:
        raise Unreadable(f"it has {size} bytes instead of {end}")
