"""The room that is left on the disk where the container writes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional

from tony_provider.runtime.quantities import size

_LEAST = 1 << 20  # bytes; with less, next to nothing can be written
# What logs leave free of a disk: a NodeManager takes one that is 90 % full for broken, and the node with it.
_RESERVE = 0.15
_LARGEST_RESERVE = 1 << 30  # bytes


def problem(directory: Path) -> Optional[str]:
    """Describe a disk that takes no more data. Return None if it does, or if that is unknown. Blocks shortly."""
    try:
        status = os.statvfs(directory)
    except OSError:
        return None
    free = status.f_bavail * status.f_frsize
    if free < _LEAST:
        return f"the disk of its container is full ({free} bytes left below {directory})"
    if status.f_flag & os.ST_RDONLY:
        return f"the disk of its container is read-only (below {directory})"
    if status.f_files and not status.f_favail:
        return f"the disk of its container holds no more files (below {directory})"
    return None


def tight(directory: Path, save: int) -> str:
    """Describe a disk with less room than another save of ``save`` bytes needs. Return "" if there is more.

    Blocks shortly.
    """
    try:
        status = os.statvfs(directory)
    except OSError:
        return ""  # the free space is unknown
    free = status.f_bavail * status.f_frsize
    if free >= save:
        return ""
    return (
        f"the disk of its container has {size(free)} left, and its largest save so far has {size(save)}: have the "
        "program delete old saves, or run the job on nodes with larger disks"
    )


def crowded(directory: Path, wanted: int) -> Optional[str]:
    """Why logs may not take ``wanted`` more bytes of this disk; None while they may, or where that cannot be told.

    Blocks shortly.
    """
    try:
        status = os.statvfs(directory)
    except OSError:
        return None
    total, free = status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize
    if free - wanted >= min(total * _RESERVE, _LARGEST_RESERVE):
        return None
    return f"the disk of {directory} is nearly full ({size(free)} of {size(total)} left)"
