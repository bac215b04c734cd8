"""Files for their owner only."""

from __future__ import annotations

import os
from pathlib import Path


def write_private_file(path: Path, content: bytes) -> None:
    """Write a file in one act, so that nobody reads half of it; only its owner may read it from its first moment on.

    Blocks; raises OSError.
    """
    partial = path.with_name(f"{path.name}.part")
    partial.unlink(missing_ok=True)  # whose rights might be others
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    partial.replace(path)
