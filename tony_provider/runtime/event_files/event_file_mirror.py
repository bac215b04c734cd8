"""A copy of event files: from directories of the store, which several programs write, into directories of this machine.

What the store says of names and sizes is not trusted: nothing is written outside of those directories, or without end.
Nor are symbolic links followed, which could lead to any file of this machine.
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

MOST_FILES = 20_000  # that one mirror looks at
DEEPEST = 16  # directories below each other

Trouble = Union[StorageError, OSError]


def is_event_file(name: str) -> bool:
    """Whether the file of this name only grows at its end: by the mark that TensorBoard itself knows event files by."""
    return "tfevents" in name.rpartition("/")[2]


def _everything(name: str) -> bool:
    return True


@attrs.define
class MirrorRound:
    """What one round has done."""

    files: int = 0  # copied anew, or continued
    bytes: int = 0
    left_out: int = 0  # files for which there was no room
    is_cut: bool = False  # there are more files than ``MOST_FILES``, and the rest was not looked at
    trouble: Optional[Trouble] = None  # the last one, of one file or directory: what else there is was copied


class EventFileMirror:
    """Copies what is new of event files.

    They grow here as they do there: TensorBoard reads on in a file that it has open. Used by one thread at a time.
    """

    def __init__(
        self,
        storage: Storage,
        places: Mapping[str, Path],
        most_bytes: int,
        wanted: Callable[[str], bool] = _everything,
    ) -> None:
        """Copy from the URIs in ``places`` to their directories here, with what is below them.

        ``wanted`` says by a name below such a directory, with slashes, whether that file is copied.
        """
        self._storage = storage
        self._places = places
        self._most_bytes = most_bytes
        self._wanted = wanted
        self._seen: dict[Path, tuple[int, int]] = {}  # size and time on the store when it was copied
        self._bytes = 0  # of all these

    def round(self, given_up: threading.Event) -> MirrorRound:
        """Copy what is new, until all is copied or ``given_up`` is set. Blocks.

        Raises StorageUnreachable: what was copied stays, and the next round goes on there.
        """
        done = MirrorRound()
        for source, directory in self._places.items():
            for status, name in self._files(source, done):
                if given_up.is_set():
                    return done
                self._copy(status, directory / name, done, given_up)
        return done

    def held(self, directory: Path) -> tuple[int, int]:
        """How many files were copied to below that directory, and their bytes."""
        sizes = [size for path, (size, _) in self._seen.items() if directory in path.parents]
        return len(sizes), sum(sizes)

    def _files(self, source: str, done: MirrorRound) -> Iterator[tuple[FileStatus, str]]:
        """Those that are wanted, with their names below ``source``; a name that leads elsewhere is none."""
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
            return []  # nobody has written anything yet
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
        if self._bytes - before + status.size > self._most_bytes:
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
        self._seen[local] = state
        self._bytes += status.size - before
        done.files += 1
        done.bytes += copied

    def _fetch(self, status: FileStatus, local: Path, given_up: threading.Event) -> int:
        """Never more than what was listed: what comes after that is the next round's."""
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
    """Whether it names something in its directory, and nothing else, on this machine too."""
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name and is_writable(name)
