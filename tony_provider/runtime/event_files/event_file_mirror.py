"""Copy TensorBoard event files from directories on the store into local directories.

Programs of jobs write the files, so the mirror does not trust names and sizes that the store reports. It limits bytes,
files and depth, and writes only below the local directories. It ignores symbolic links, which could lead to any local
file.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Callable, Optional, Union

import attrs

from tony_provider.runtime.common.text import is_writable
from tony_provider.runtime.storage import FileStatus, Storage, StorageError, StorageNotFound, StorageUnreachable
from tony_provider.runtime.storage.base import CHUNK, PRIVATE_DIRECTORY, is_temporary

MOST_FILES = 20_000  # maximum number of entries that are inspected below each URI
DEEPEST = 16  # maximum levels of nested directories

Trouble = Union[StorageError, OSError]


def is_event_file(name: str) -> bool:
    """Return whether TensorBoard would read a file with this name. Programs only append to such files."""
    return "tfevents" in name.rpartition("/")[2]


@attrs.define
class MirrorRound:
    """The result of one call of ``EventFileMirror.round``."""

    files: int = 0  # number of files with new data that was copied
    bytes: int = 0
    left_out: int = 0  # number of files that were skipped because of the size limit
    is_cut: bool = False  # whether files were skipped because of ``MOST_FILES``
    trouble: Optional[Trouble] = None  # last error with a single file or directory; the rest was copied


class EventFileMirror:
    """Repeatedly copies new data of event files. Not thread-safe.

    New data is appended to the existing local copy, because TensorBoard keeps its files open.
    """

    def __init__(
        self,
        storage: Storage,
        places: Mapping[str, Path],
        size_limit: int,
        wanted: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """Copy from each URI in ``places``, including its subdirectories, to its local directory.

        ``wanted`` gets the path of a file relative to that URI, and returns whether to copy the file. ``size_limit`` is
        the limit in bytes for all copies together.
        """
        self._storage = storage
        self._places = places
        self._size_limit = size_limit
        self._wanted = wanted
        self._seen: dict[Path, tuple[int, int]] = {}  # size and modification time at the last copy, by local path
        self._bytes = 0  # total size of the files in ``_seen``

    def round(self, given_up: threading.Event) -> MirrorRound:
        """Copy all new data, or stop when ``given_up`` is set. Blocks.

        Raises StorageUnreachable. The next call then copies what is missing.
        """
        done = MirrorRound()
        for source, directory in self._places.items():
            for status, name in self._files(source, done):
                if given_up.is_set():
                    return done
                self._copy(status, directory / name, done, given_up)
        return done

    def held(self, directory: Path) -> tuple[int, int]:
        """Return the number and total bytes of the files copied below a local directory."""
        sizes = [size for path, (size, _) in self._seen.items() if directory in path.parents]
        return len(sizes), sum(sizes)

    def _files(self, source: str, done: MirrorRound) -> Iterator[tuple[FileStatus, str]]:
        """Yield the wanted files with their paths below ``source``. Skip links and unsafe names."""
        left, seen = [(source, "")], 0
        while left:
            uri, above = left.pop()
            for status in self._list(uri, done):
                seen += 1
                if seen > MOST_FILES:
                    done.is_cut = True
                    return
                if status.is_link or is_temporary(status.name) or not _is_plain(status.name):
                    continue
                name = above + status.name
                if not status.is_directory:
                    if self._wanted(name):
                        yield status, name
                elif name.count("/") < DEEPEST:
                    left.append((status.path, f"{name}/"))

    def _list(self, uri: str, done: MirrorRound) -> list[FileStatus]:
        try:
            return self._storage.list(uri)
        except StorageNotFound:
            return []  # the program has not created the directory yet
        except StorageUnreachable:
            raise
        except StorageError as error:
            done.trouble = error
            return []

    def _copy(self, status: FileStatus, local: Path, done: MirrorRound, given_up: threading.Event) -> None:
        state = (status.size, status.modified_ms)
        before, _ = known = self._seen.get(local, (0, 0))
        if known == state:
            return
        if self._bytes - before + status.size > self._size_limit:
            done.left_out += 1
            return
        try:
            local.parent.mkdir(PRIVATE_DIRECTORY, parents=True, exist_ok=True)
            copied = self._fetch(status, local, given_up)
        except StorageNotFound:
            return
        except StorageUnreachable:
            raise
        except (StorageError, OSError) as error:
            done.trouble = error
            return
        if given_up.is_set():
            return  # the copy may be incomplete
        self._seen[local] = state
        self._bytes += status.size - before
        done.files += 1
        done.bytes += copied

    def _fetch(self, status: FileStatus, local: Path, given_up: threading.Event) -> int:
        """Copy a file up to the size in ``status``, and return the number of bytes copied."""
        there = local.stat().st_size if local.exists() else 0
        start = there if is_event_file(local.name) and there <= status.size else 0
        if start == status.size:
            local.touch()
            return 0
        with self._storage.open_read(status.path, offset=start, length=status.size - start) as source:
            if start or not there:
                with local.open("ab") as target:
                    return _pour(source, target, given_up)
            partial = local.with_name(f".{local.name[:200]}.part")
            try:
                with partial.open("wb") as target:
                    copied = _pour(source, target, given_up)
                if not given_up.is_set():
                    partial.replace(local)
            finally:
                partial.unlink(missing_ok=True)
            return copied


def _pour(source: BinaryIO, target: BinaryIO, given_up: threading.Event) -> int:
    copied = 0
    while not given_up.is_set() and (data := source.read(CHUNK)):
        copied += target.write(data)
    return copied


def _is_plain(name: str) -> bool:
    """Return whether the name is a valid file name on this machine, and not a path."""
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name and is_writable(name)
