"""The upload of a directory with all that is in it: a few files at a time."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import attrs

from tony_provider.runtime.at_once import at_once
from tony_provider.runtime.storage import Storage, upload, uris
from tony_provider.runtime.storage.base import PRIVATE_DIRECTORY, PRIVATE_FILE
from tony_provider.runtime.storage.webhdfs.store import SCHEMES

_AT_ONCE = 4  # files in transfer; each holds a buffer of storage.base.CHUNK or so


class UploadCancelledError(Exception):
    """The upload was told to stop."""


def is_empty(directory: Path) -> bool:
    """Whether nothing is in the directory. Raises OSError when something else than a directory is there."""
    return not directory.exists() or next(directory.iterdir(), None) is None


def check(cancelled: threading.Event) -> None:
    """Raises UploadCancelledError."""
    if cancelled.is_set():
        raise UploadCancelledError("the upload was cancelled")


@attrs.frozen
class TreeUpload:
    """How directories are copied to the store. All methods block."""

    storage: Storage
    cancelled: threading.Event
    warn: Callable[[str], None]  # is called for each entry that is left out or renamed
    file_permission: int = PRIVATE_FILE
    directory_permission: int = PRIVATE_DIRECTORY
    overwrite: bool = False  # files that are there already; without it they are an error

    def run(self, directory: Path, target: str, wanted: Callable[[str], bool] = lambda path: True) -> tuple[int, int]:
        """Make everything in ``directory`` the content of ``target``, a URI; returns how many files, and bytes.

        Broken links, links to a directory above them, and entries that are neither files nor directories are left out.
        HDFS does not permit colons in names, so they become ``%3A`` there. ``wanted`` says of a file, by its path in
        the directory, whether it is to be copied. Raises StorageError, OSError, UploadCancelledError.
        """
        sizes = at_once(
            lambda path: self.send(directory / path, uris.join(target, stored_path(target, path))),
            self._files(directory, target, wanted),
            _AT_ONCE,
            "upload",
        )
        files = size = 0
        for each in sizes:
            files, size = files + 1, size + each
        return files, size

    def send(self, path: Path, uri: str) -> int:
        """Copy one file; returns its size in bytes. Raises as ``run``."""
        check(self.cancelled)
        return upload(self.storage, path, uri, overwrite=self.overwrite, permission=self.file_permission)

    def _files(self, directory: Path, target: str, wanted: Callable[[str], bool]) -> Iterator[str]:
        for path, relative in walk_local(directory, self.warn):
            stored = stored_path(target, relative)
            if path.is_dir():
                self.storage.make_directories(uris.join(target, stored), permission=self.directory_permission)
            elif not path.is_file():  # a FIFO would be read for ever
                self.warn(f"{path} is neither a file nor a directory, nor a link to one, so it is not stored")
            elif stored != relative and os.path.lexists(directory / stored):
                self.warn(f"{path} is not stored, because {stored}, the name that HDFS permits, is another file")
            elif wanted(relative):
                if stored != relative:
                    self.warn(f"{path} is stored as {stored}, because HDFS does not permit colons in names")
                yield relative


def stored_path(target: str, path: str) -> str:
    """Return the path below the URI ``target`` under which a local path is stored."""
    return path.replace(":", "%3A") if uris.scheme(target) in SCHEMES else path


def walk_local(directory: Path, warn: Callable[[str], None]) -> Iterator[tuple[Path, str]]:
    """Every directory and file with its path below ``directory``, the directory itself first as the empty path.

    Symbolic links are followed, as copying would. Links to a directory above them are left out. Raises OSError.
    """
    for place, directories, names in os.walk(directory, onerror=_raise, followlinks=True):
        real = os.path.realpath(place)
        relative = Path(place).relative_to(directory)
        yield Path(place), "" if relative == Path() else relative.as_posix()
        for name in list(directories):
            entered = os.path.realpath(Path(place, name))
            if real == entered or real.startswith(entered.rstrip("/") + "/"):
                warn(f"{Path(place, name)} is a link to a directory that contains it, so it is not stored")
                directories.remove(name)
        for name in sorted(names):
            yield Path(place, name), (relative / name).as_posix()


def _raise(error: OSError) -> None:
    raise error
