"""The files of a notebook's work, and which of them are kept."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

NOT_KEPT = "NOT-KEPT.txt"  # where people see what is not kept, and what they can do
MOST_FILES = 20_000
_LEFT_OUT = frozenset({".ipynb_checkpoints", "__pycache__", NOT_KEPT})
_TEMPORARY = ".~"  # as Jupyter calls a file that it is about to replace another one by


@dataclass(frozen=True)
class WorkFile:
    """A file, link or directory of the work, as it was found."""

    path: str  # below its directory
    size: int  # bytes
    modified_ns: int
    mode: int  # with its kind
    target: str = ""  # of a link

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.mode)


@dataclass(frozen=True)
class WorkChoice:
    """Which of the files are kept, and which are not since there is no room for them: the largest ones."""

    kept: Sequence[WorkFile]
    left: Sequence[WorkFile]

    @classmethod
    def of(cls, found: Sequence[WorkFile], most_bytes: int, most_files: int = MOST_FILES) -> WorkChoice:
        """The smallest first, so that no data file keeps notebooks out."""
        kept: list[WorkFile] = []
        left: list[WorkFile] = []
        size = 0
        for each in sorted(found, key=lambda file: (file.size, file.path)):
            if size + each.size <= most_bytes and len(kept) < most_files:
                kept.append(each)
                size += each.size
            else:
                left.append(each)
        return cls(sorted(kept, key=lambda file: file.path), left[::-1])


def below(directory: Path, links: Collection[str] = ()) -> Iterator[WorkFile]:
    """What is in a directory, without its own ``links``; none is followed. What vanishes meanwhile is left out."""
    for parent, directories, files in os.walk(directory):
        for name in [*directories, *files]:
            path = Path(parent, name)
            if name in _LEFT_OUT or name.startswith(_TEMPORARY):
                continue
            if name in links and path.parent == directory and path.is_symlink():
                continue
            try:
                about = path.lstat()
                target = os.readlink(path) if stat.S_ISLNK(about.st_mode) else ""  # noqa: PTH115 - of any bytes
            except OSError:
                continue
            if stat.S_ISREG(about.st_mode) or stat.S_ISLNK(about.st_mode) or stat.S_ISDIR(about.st_mode):
                size = about.st_size if stat.S_ISREG(about.st_mode) else 0
                modified = 0 if stat.S_ISDIR(about.st_mode) else about.st_mtime_ns  # it changes with what is left out
                yield WorkFile(str(path.relative_to(directory)), size, modified, about.st_mode, target)
        directories[:] = [each for each in directories if each not in _LEFT_OUT]
