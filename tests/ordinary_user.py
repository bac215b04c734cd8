"""Rights of a user who is not root."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tony_provider.runtime.common.files import remove_tree

_NOBODY = 65534


@contextmanager
def ordinary_user() -> Iterator[Path]:
    """Give this process the rights of an ordinary user, and a directory of this user."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(_NOBODY)
    directory = Path(tempfile.mkdtemp(dir="/tmp"))  # other users may not enter pytest's directories
    try:
        yield directory
    finally:
        remove_tree(directory)
        if root:
            os.seteuid(0)
