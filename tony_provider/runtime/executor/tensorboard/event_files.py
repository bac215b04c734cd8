"""The files in a directory of event files."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import attrs

MOST_BYTES = 2 << 30  # of one task's files; what is beyond is left out
MOST_FILES = 1000


@attrs.frozen
class FoundEventFiles:
    """One file that was found in a directory of event files."""

    path: Path
    name: str  # below the directory, with slashes
    size: int  # bytes
    modified_ns: int


def below(directory: Path) -> Iterator[FoundEventFiles]:
    """Every regular file below a directory, the oldest first; links are not followed.

    Blocks. What vanishes meanwhile is left out.
    """
    return iter(sorted(_walk(directory), key=lambda found: (found.modified_ns, found.name)))


def _walk(directory: Path) -> Iterator[FoundEventFiles]:
    for place, directories, names in os.walk(directory):
        directories.sort()
        for name in names:
            path = Path(place, name)
            try:
                status = path.lstat()
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode):
                yield FoundEventFiles(path, path.relative_to(directory).as_posix(), status.st_size, status.st_mtime_ns)
