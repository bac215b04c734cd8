"""Find the files of a directory that processes have open for writing, or mapped so that they can write into them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

_ACCESS_MODE = 0o3  # of a file's flags in /proc/PID/fdinfo: 0 for files that are open for reading only
_SHARED = "s"
_DELETED = " (deleted)"  # after the path of a deleted file


def written_paths(directory: Path, pids: Iterable[int]) -> set[str]:
    """Return the paths below the directory that any of the processes can write into. Blocks shortly.

    Processes that have ended, and those of other users, are skipped.
    """
    root = os.path.realpath(directory) + "/"
    found = {path for pid in pids for path in (*_open(pid, root), *_mapped(pid, root))}
    return {path[len(root) :].removesuffix(_DELETED) for path in found}


def _open(pid: int, root: str) -> Iterator[str]:
    try:
        names = os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208 - names are enough
    except OSError:
        return
    for name in names:
        try:
            path = os.readlink(f"/proc/{pid}/fd/{name}")  # noqa: PTH115 - many of them
            if path.startswith(root) and _is_for_writing(f"/proc/{pid}/fdinfo/{name}"):
                yield path
        except OSError:
            continue


def _is_for_writing(fdinfo: str) -> bool:
    with open(fdinfo) as file:  # noqa: PTH123 - many of them
        for line in file:
            if line.startswith("flags:"):
                return int(line.split()[1], 8) & _ACCESS_MODE != 0
    return False


def _mapped(pid: int, root: str) -> Iterator[str]:
    try:
        with open(f"/proc/{pid}/maps", errors="surrogateescape") as file:  # noqa: PTH123 - long
            for line in file:
                if root not in line:
                    continue
                _, permissions, _, _, _, path = line.rstrip("\n").split(None, 5)
                if "w" in permissions and permissions.endswith(_SHARED) and path.startswith(root):
                    yield path
    except (OSError, ValueError):
        return
