"""Upload a directory to the storage as plain files at their own paths, for other programs to read.

``artifacts.upload`` sends the trees of checkpoints, which only this project reads.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

import attrs

from tony_provider.runtime.artifacts.upload import PacedFile
from tony_provider.runtime.common.concurrency import Cancelled, in_parallel
from tony_provider.runtime.storage import Storage, StorageError, StorageExists, uris
from tony_provider.runtime.storage.base import PRIVATE_DIRECTORY, PRIVATE_FILE
from tony_provider.runtime.storage.webhdfs.store import SCHEMES

log = logging.getLogger(__name__)

_AT_ONCE = 4  # concurrent file transfers; each has a buffer of about storage.base.CHUNK


def is_empty_directory(directory: Path) -> bool:
    """Return whether the directory is empty or missing. Raises OSError if the path is not a directory."""
    return not directory.exists() or next(directory.iterdir(), None) is None


@attrs.frozen
class DirectoryUpload:
    """Copies directories to the store. All methods block."""

    storage: Storage
    cancelled: threading.Event
    warn: Callable[[str], None]  # called for each entry that is left out or renamed
    file_permission: int = PRIVATE_FILE
    directory_permission: int = PRIVATE_DIRECTORY
    overwrite: bool = False  # replace existing files, which otherwise are an error

    def run(self, directory: Path, target: str, wanted: Callable[[str], bool] = lambda path: True) -> tuple[int, int]:
        """Copy the content of ``directory`` to the URI ``target``. Return the numbers of files and bytes.

        Broken links, links to a directory above them, and entries that are neither files nor directories are left out.
        HDFS does not permit colons in names, so they become ``%3A`` there. ``wanted`` gets the path of a file in the
        directory and returns whether to copy the file. Raises StorageError, OSError, Cancelled.
        """
        sizes = in_parallel(
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
        """Copy one file. Return its size in bytes. Raises the errors of ``run``."""
        with path.open("rb", buffering=0) as opened:
            source = cast(BinaryIO, PacedFile(opened, self.cancelled))
            return self.storage.write(uri, source, overwrite=self.overwrite, permission=self.file_permission)

    def _files(self, directory: Path, target: str, wanted: Callable[[str], bool]) -> Iterator[str]:
        for path, relative in walk_local(directory, self.warn):
            stored = stored_path(target, relative)
            if path.is_dir():
                self.storage.make_directories(uris.join(target, stored), permission=self.directory_permission)
            elif not path.is_file():  # reading a FIFO would block forever
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
    """Yield every directory and file with its path below ``directory``, first the directory itself with an empty path.

    Follows symbolic links, like a copy. Links to a directory above them are left out. Raises OSError.
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


def publish_directory(
    storage: Storage, directory: Path, target: str, cancelled: threading.Event, warn: Callable[[str], None]
) -> str:
    """Make the content of ``directory`` the content of the URI ``target``, and return ``target``. Blocks.

    Existing content (of a former generation) is replaced. Between two renames ``target`` does not exist. Raises
    StorageError, OSError, Cancelled.
    """
    mark = secrets.token_hex(4)
    temporary = f"{target}.tmp-{mark}"
    try:
        DirectoryUpload(storage, cancelled, warn).run(directory, temporary)
        _put_in_place(storage, temporary, target, f"{target}.old-{mark}", cancelled)
    except BaseException:
        _remove(storage, temporary)
        raise
    return target


def _remove(storage: Storage, uri: str) -> None:
    """Remove a directory. Only log a failure, so that the original error is reported."""
    try:
        storage.remove(uri, recursive=True)
    except StorageError as error:
        log.warning("%s is left on the store: %s", uri, error)


def _put_in_place(storage: Storage, temporary: str, target: str, former: str, cancelled: threading.Event) -> None:
    if cancelled.is_set():
        raise Cancelled("the upload was cancelled")
    try:
        storage.rename(temporary, target)
    except StorageExists:
        storage.rename(target, former)
        try:
            storage.rename(temporary, target)
        except StorageError:
            _put_back(storage, former, target)
            raise
        storage.remove(former, recursive=True)


def _put_back(storage: Storage, former: str, target: str) -> None:
    try:
        storage.rename(former, target)
    except StorageError as error:
        log.warning("what %s held before is now in %s: %s", target, former, error)
