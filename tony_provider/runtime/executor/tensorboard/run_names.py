"""What the directories of event files add to the names of their scalars."""

from __future__ import annotations

import re

_TIMES = (
    r"(?:19|20)\d{6}[-_T]?\d{6}",  # 20260105-093000, as in TensorFlow's examples
    r"(?:19|20)\d\d-\d\d-\d\d[-_T ]\d\d[-:_.]\d\d(?:[-:_.]\d\d)?",  # 2026-01-05T09:30:00
    r"[A-Z][a-z]{2}\d\d_\d\d-\d\d-\d\d(?:_.+)?",  # Jan05_09-30-00_host, as PyTorch's SummaryWriter calls them
)
_TIME = re.compile(f"(?:{'|'.join(_TIMES)})")


def run_name(directory: str) -> str:
    """The name of a run by its directory below the process's own, such as ``train``; empty for that directory itself.

    Directories that are named after the time are left out: with them each training's metrics would have names of
    their own, and no two could be compared.
    """
    return "/".join(part for part in directory.split("/") if not _TIME.fullmatch(part))
