"""What Keras writes: archives, and the file that says of which epoch the weights of BackupAndRestore are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tony_provider.runtime.checkpoint.content import zips
from tony_provider.runtime.checkpoint.content.unreadable import Unreadable, is_count, json_object

_CONFIG = "config.json"  # in an archive
_MOST_BYTES = 1 << 20  # of what says the epoch


def check_archive(path: Path) -> None:
    """Check that a ``.keras`` archive is whole. Raises Unreadable, OSError."""
    with zips.opened(path) as archive:
        if _CONFIG not in archive.namelist():
            raise Unreadable(f"there is no {_CONFIG} in it")
        zips.check(archive)


def epoch(path: Path) -> int:
    """The epoch that training_metadata.json says. Raises Unreadable, OSError."""
    found: Any = json_object(path, _MOST_BYTES).get("epoch")
    if not is_count(found):
        raise Unreadable("it says no epoch")
    return int(found)
