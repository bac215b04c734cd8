"""Files of Keras: archives, and the file with the epoch of BackupAndRestore's weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tony_provider.runtime.checkpoint.content import zips
from tony_provider.runtime.checkpoint.content.unreadable import Unreadable, is_count, json_object

_CONFIG = "config.json"  # in an archive
_MOST_BYTES = 1 << 20  # of the file with the epoch


def check_archive(path: Path) -> None:
    """Check that a ``.keras`` archive is complete. Raises Unreadable, OSError."""
    with zips.opened(path) as archive:
        if _CONFIG not in archive.namelist():
            raise Unreadable(f"it contains no {_CONFIG}")
        zips.check(archive)


def epoch(path: Path) -> int:
    """Return the epoch in training_metadata.json. Raises Unreadable, OSError."""
    found: Any = json_object(path, _MOST_BYTES).get("epoch")
    if not is_count(found):
        raise Unreadable("it contains no epoch")
    return int(found)
