"""Removal of directories that user processes have written in. Blocks."""

from __future__ import annotations

import logging
import os
import shutil
from contextlib import suppress
from pathlib import Path

log = logging.getLogger(__name__)


def remove_tree(directory: Path) -> None:
    """Remove a directory and its content, also if a process removed its permissions.

    Does nothing if the directory does not exist. Logs what still cannot be removed, and leaves it.
    """
    _unlock(directory)
    for parent, names, _ in os.walk(directory):  # reads each directory after it was unlocked here
        for name in names:
            _unlock(Path(parent, name))
    shutil.rmtree(directory, ignore_errors=True)
    if directory.exists():
        log.warning("%s cannot be removed", directory)


def _unlock(directory: Path) -> None:
    if not directory.is_symlink():
        with suppress(OSError):  # owned by another user, or gone: the removal will show it
            directory.chmod(0o700)
