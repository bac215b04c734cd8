"""Whether there is room left where the container writes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional

_LEAST = 1 << 20  # bytes; with less, next to nothing can be written


def problem(directory: Path) -> Optional[str]:
    """What to say of a full disk; None while there is room, or where that cannot be told. Blocks shortly."""
    try:
        status = os.statvfs(directory)
    except OSError:
        return None
    free = status.f_bavail * status.f_frsize
    if free < _LEAST:
        return f"the disk of its container is full ({free} bytes left below {directory})"
    if status.f_files and not status.f_favail:
        return f"the disk of its container holds no more files (below {directory})"
    return None
