"""What lies below a directory."""

from __future__ import annotations

import os
from pathlib import Path


def files_below(directory: Path) -> list[str]:
    """By their paths from there, sorted; also while directories come and go, over which Path.rglob stumbles."""
    found = (Path(folder, name) for folder, _, names in os.walk(directory) for name in names)
    return sorted(path.relative_to(directory).as_posix() for path in found if path.is_file())
