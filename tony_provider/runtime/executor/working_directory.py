"""Find the files that processes have written into their working directories, with a bounded effort.

A working directory also holds the program, its data, environments and caches, perhaps millions of files.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Optional

from tony_provider.runtime.artifacts.tree import FileVersion
from tony_provider.runtime.checkpoint.stray_saves import may_be_save

_MOST_ENTRIES = 5000  # that one scan reads
_MOST_ROOTS = 4
_MOST_LEVELS = 8
_SKIPPED = ("__pycache__", "node_modules", "site-packages", "dist-packages", "huggingface")
# A directory with one of these is an environment, or a copy of a model that was downloaded from Hugging Face.
_MARKS = ("pyvenv.cfg", "conda-meta", ".cache/huggingface")

Identity = tuple[int, int]  # device and inode


class WorkingDirectories:
    """The working directories of a container's processes: the container's own, and those that a process changed to."""

    def __init__(self, container: Path, without: Iterable[Path], since_ns: int) -> None:
        """``without``: directories to skip. ``since_ns``: epoch; older files do not count."""
        self._container = os.path.realpath(container)
        self._since_ns = since_ns
        self._without = {identity for path in without if (identity := _identity(os.path.realpath(path))) is not None}
        self._roots = [self._container]

    def look(self, pids: Iterable[int]) -> dict[str, FileVersion]:
        """Return the files that may belong to a checkpoint, by path. Blocks.

        Paths are relative to the container's directory if they are below it. Links are not followed. Directories that
        have changed since the processes started come first, so that the limit leaves out those that never change.
        """
        self._find_roots(pids)
        seen = set(self._without)
        found: dict[str, FileVersion] = {}
        changed = [(root, 0) for root in self._roots]
        unchanged: list[tuple[str, int]] = []
        left = _MOST_ENTRIES
        while left > 0 and (changed or unchanged):
            place, level = (changed or unchanged).pop(0)
            identity = _identity(place)
            if identity is None or identity in seen:
                continue
            seen.add(identity)
            if any(os.path.lexists(f"{place}/{mark}") for mark in _MARKS):
                continue
            try:
                with os.scandir(place) as entries:
                    for entry in entries:
                        left -= 1
                        if left < 0:
                            break
                        self._enter(entry, level, found, changed, unchanged)
            except OSError:
                continue  # it was removed, or the user may not read it
        return found

    def _enter(
        self,
        entry: os.DirEntry[str],
        level: int,
        found: dict[str, FileVersion],
        changed: list[tuple[str, int]],
        unchanged: list[tuple[str, int]],
    ) -> None:
        is_directory = entry.is_dir(follow_symlinks=False)
        path = entry.path.removeprefix(f"{self._container}/")
        if not is_directory and not may_be_save(path):
            return
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            return  # it was removed
        is_changed = status.st_mtime_ns >= self._since_ns
        if is_directory:
            if level < _MOST_LEVELS and not _is_skipped(entry.name):
                (changed if is_changed else unchanged).append((entry.path, level + 1))
        elif is_changed and stat.S_ISREG(status.st_mode):
            found[path.encode(errors="replace").decode()] = FileVersion.of(status)

    def _find_roots(self, pids: Iterable[int]) -> None:
        """Add the current directories of processes. They stay when a process ends."""
        for pid in pids:
            if len(self._roots) >= _MOST_ROOTS:
                return
            try:
                root = os.readlink(f"/proc/{pid}/cwd")  # noqa: PTH115 - many of them
            except OSError:
                continue  # it has ended
            if root not in self._roots and not self._is_foreign(root):
                self._roots.insert(0, root)

    def _is_foreign(self, root: str) -> bool:
        """Return whether a directory is stored, or also contains files of other programs."""
        if f"{self._container}/".startswith(f"{root.rstrip('/')}/"):
            return True
        above: Collection[str] = [root, *map(str, Path(root).parents)]
        return any(_identity(path) in self._without for path in above)


def _identity(path: str) -> Optional[Identity]:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _is_skipped(name: str) -> bool:
    return name.startswith((".", "models--", "datasets--")) or name in _SKIPPED
