"""Find the files of a directory that processes have open for writing, or mapped so that they can write into them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tony_provider.runtime.executor.processes import Process

_ACCESS_MODE = 0o3  # of a file's flags in /proc/PID/fdinfo: 0 for files that are open for reading only
_SHARED = "s"
_DELETED = " (deleted)"  # after the path of a deleted file
_ABANDONED = 30.0  # seconds; by then, a process that was killed has stopped the others of its container


class Writers:
    """Follows which files of a directory are being written."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._before: dict[str, set[tuple[int, int]]] = {}  # PIDs and start times of the writers, by path
        self._abandoned: dict[str, float] = {}  # when the writers of a path were found to be gone

    def look(self, table: Mapping[int, Process], now: float) -> set[str]:
        """Return the paths that any of the processes can write into. Blocks shortly. ``now`` in monotonic seconds.

        A path whose writers have all ended since the last look is one of them for some seconds more: a process that was
        killed may have written only half of the file.
        """
        living = {pid: (pid, process.started) for pid, process in table.items() if not process.zombie}
        found = {path: {living[pid] for pid in pids} for path, pids in writers_of(self._directory, living).items()}
        present = set(living.values())
        for path, writers in self._before.items():
            if path not in found and not writers & present:
                self._abandoned[path] = now
        self._abandoned = {
            path: since for path, since in self._abandoned.items() if path not in found and now - since < _ABANDONED
        }
        self._before = found
        return {*found, *self._abandoned}


def writers_of(directory: Path, pids: Iterable[int]) -> dict[str, set[int]]:
    """Return the processes that can write into paths below the directory, by path.

    Processes that have ended, and those of other users, are skipped.
    """
    root = os.path.realpath(directory) + "/"
    found: dict[str, set[int]] = {}
    for pid in pids:
        for path in (*_open(pid, root), *_mapped(pid, root)):
            found.setdefault(path[len(root) :].removesuffix(_DELETED), set()).add(pid)
    return found


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
