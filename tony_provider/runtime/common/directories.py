"""Removal of directories that user processes have written in. It blocks."""

from __future__ import annotations

import logging
import os
import shutil
from contextlib import suppress
from pathlib import Path

log = logging.getLogger(__name__)


def remove_tree(directory: Path) -> None:
    """Remove a directory with all that is below, also where a process took away the right to.

    Nothing happens when it is not there. What still cannot be removed is logged and left.
    """
    _unlock(directory)
    for parent, names, _ in os.walk(directory):  # looks into each one after it was unlocked here
        for name in names:
            _unlock(Path(parent, name))
    shutil.rmtree(directory, ignore_errors=True)
    if directory.exists():
        log.warning("%s cannot be removed", directory)


def _unlock(directory: Path) -> None:
    if not directory.is_symlink():
        with suppress(OSError):  # another user's, or gone: its removal will show
            directory.chmod(0o700)
