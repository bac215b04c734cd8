"""Make a local directory equal to a stored tree, without copying the files that the directory already has."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import BinaryIO

import attrs

from tony_provider.runtime.artifacts.manifest import (
    ALGORITHM,
    Checksum,
    Entry,
    FileVersion,
    Kind,
    StoredTree,
    algorithm_of,
    has_checksum,
    parts_of,
)
from tony_provider.runtime.artifacts.upload import StoredFiles
from tony_provider.runtime.common.concurrency import Cancelled, in_parallel
from tony_provider.runtime.common.files import remove_tree
from tony_provider.runtime.storage import Storage, StorageNotFound, uris
from tony_provider.runtime.storage.base import CHUNK

log = logging.getLogger(__name__)

_TEMPORARY = ".restoring-"
_PARALLEL = 4  # objects read concurrently; each needs CHUNK bytes of memory
_SEPARATE = 100  # number of entries, the newest, that must get different values of st_ctime
_TICK = 0.001  # seconds between attempts to get a new st_ctime, which advances every 1 to 10 ms
_MINIMUM_AGE = 1.0  # age in seconds of the newest restored file, so that the program's next save is newer


class DamagedObject(Exception):  # noqa: N818 - describes what was found
    """A stored object is missing or differs from the manifest. ``str()`` names the object and the difference."""


@attrs.frozen
class RestoredTree:
    """The result of ``restore_tree``."""

    stored: StoredFiles  # argument for the next upload of the directory
    copied: int  # bytes copied from the storage
    reused: int  # bytes of files that the directory already had


def restore_tree(
    storage: Storage,
    objects_uri: str,
    tree: StoredTree,
    directory: Path,
    *,
    aside: Path,
    cancelled: threading.Event,
) -> RestoredTree:
    """Replace the content of ``directory`` by a stored tree: files, links, directories, permissions and times.

    If the newest file has a time in the future of this machine's clock, all times are moved back by the same amount.
    Files that ``directory`` already has are not copied. ``aside``: a path next to ``directory`` that receives its
    former content. Any previous content of ``aside`` is removed. On any exception, ``directory`` stays as it was.

    Blocks. Raises InvalidManifest, DamagedObject, Cancelled, StorageError, OSError.
    """
    tree.check()
    if shutil.disk_usage(directory.parent).free < tree.size:
        remove_tree(aside)
    with _replacement(directory, aside) as prepared:
        copied = _Restore(storage, objects_uri, directory, prepared, cancelled).run(tree)
        _finish(prepared, tree)
        stored = _stored(prepared, tree)
    return RestoredTree(stored, copied, tree.size - copied)


def empty_directory(directory: Path, *, aside: Path) -> None:
    """Replace ``directory`` by an empty directory. ``aside`` receives its former content. Raises OSError."""
    with _replacement(directory, aside):
        pass


@contextmanager
def _replacement(directory: Path, aside: Path) -> Iterator[Path]:
    """Provide an empty directory that replaces ``directory`` at the end. On any exception, ``directory`` stays."""
    prepared = directory.with_name(_TEMPORARY + secrets.token_hex(4))
    prepared.mkdir(mode=0o700)
    try:
        yield prepared
        _put_in_place(prepared, directory, aside)
    except BaseException:
        remove_tree(prepared)
        raise


class _Restore:
    def __init__(
        self, storage: Storage, objects_uri: str, source: Path, target: Path, cancelled: threading.Event
    ) -> None:
        self._storage = storage
        self._objects_uri = objects_uri
        self._source = source
        self._target = target
        self._cancelled = cancelled
        self._failed = threading.Event()
        self._streams = threading.BoundedSemaphore(_PARALLEL)  # limits the concurrent parts of all files
        self._lock = threading.Lock()
        self._inodes: set[int] = set()  # inodes of reused files

    def run(self, tree: StoredTree) -> int:
        """Create all files and directories, without permissions and times. Return the bytes copied from the storage."""
        wanted: dict[str, list[Entry]] = {}
        for entry in tree.entries:  # the entries list a directory before its content
            target = self._target / entry.path
            if entry.kind is Kind.DIRECTORY:
                target.mkdir(mode=0o700)
            elif entry.kind is Kind.FILE and not entry.size:
                target.touch(mode=0o600)
            elif entry.kind is Kind.FILE:
                wanted.setdefault(entry.object, []).append(entry)
        # Largest objects first, so that the restore does not wait for one large object at the end.
        order = sorted(wanted.items(), key=lambda item: -sum(entry.size for entry in item[1]))
        return sum(in_parallel(self._fetch, order, _PARALLEL, "restore", self._failed.set))

    def _fetch(self, wanted: tuple[str, Sequence[Entry]]) -> int:
        """Create the files that one object contains. Return the bytes copied from the storage."""
        name, entries = wanted
        missing = sorted(
            (entry for entry in entries if not self._reuse(entry)), key=lambda entry: (entry.offset, entry.size)
        )
        if not missing:
            return 0
        if wrong := self._read(name, missing):  # the network may have damaged the bytes, so read them again
            log.warning("%s differs from the stored checksum; reading its object %s again", wrong[0].path, name)
            wrong = self._read(name, wrong)
        if wrong:
            raise DamagedObject(f"{wrong[0].path} in the object {name} does not match its stored checksum")
        return sum(entry.size for entry in missing)

    def _reuse(self, entry: Entry) -> bool:
        """Create a hard link to the file in the former directory. Return False if that file is missing or differs."""
        source, target = self._source / entry.path, self._target / entry.path
        try:
            if source.is_symlink() or not source.is_file() or source.stat().st_size != entry.size:
                return False
            # Always compute the checksum, because size and times do not reveal every change. Read the new link, because
            # the program may replace the source.
            os.link(source, target, follow_symlinks=False)
            if self._is_new(target) and has_checksum(target, entry.checksum, self._cancelled):
                return True
            target.unlink()
        except OSError as error:
            log.info("%s cannot be reused: %s", source, error)
            target.unlink(missing_ok=True)
        return False

    def _is_new(self, target: Path) -> bool:
        """Return whether no other entry uses the same inode. Otherwise, a write to one entry would change another."""
        inode = target.stat().st_ino
        with self._lock:
            is_new = inode not in self._inodes
            self._inodes.add(inode)
        return is_new

    def _read(self, name: str, entries: Sequence[Entry]) -> list[Entry]:
        """Copy files from one object. ``entries`` are sorted by offset. Return entries with a wrong checksum."""
        begin, end = entries[0].offset, max(entry.offset + entry.size for entry in entries)
        wrong = []
        try:
            only = entries[0] if len(entries) == 1 else None
            if only and len(parts_of(only.size)) > 1 and algorithm_of(only.checksum) == ALGORITHM:
                return [] if self._copy_in_parts(name, only) else [only]
            with self._open(name, begin, end - begin) as source:
                stream = _Stream(source, begin)
                for place, same in groupby(entries, key=lambda entry: (entry.offset, entry.size)):
                    first, *others = same
                    stream.skip_to(place[0])
                    if not self._copy(stream, first):
                        wrong += [first, *others]
                    for other in others:
                        shutil.copyfile(self._target / first.path, self._target / other.path)
        except StorageNotFound as error:
            raise DamagedObject(f"the object {name}, which holds {entries[0].path}, is missing") from error
        return wrong

    def _copy_in_parts(self, name: str, entry: Entry) -> bool:
        """Copy a very large file from an object, several parts concurrently. Return whether it matches the checksum."""
        target = self._target / entry.path
        target.touch(mode=0o600)
        checksum = Checksum()
        read = partial(self._copy_part, name, entry)
        for _, each in sorted(in_parallel(read, parts_of(entry.size), _PARALLEL, "part", self._failed.set)):
            checksum.append(each)
        return checksum.text == entry.checksum

    def _copy_part(self, name: str, entry: Entry, part: tuple[int, int]) -> tuple[int, Checksum]:
        """Copy one part of a file. Return its offset and checksum."""
        (offset, size), summed = part, Checksum()
        target = self._target / entry.path
        with self._streams, self._open(name, entry.offset + offset, size) as source, target.open("r+b") as file:
            file.seek(offset)
            self._write(_Stream(source, offset), size, file, summed)
        return offset, summed

    def _open(self, name: str, offset: int, size: int) -> BinaryIO:
        return self._storage.open_read(uris.join(self._objects_uri, name), offset=offset, length=size)

    def _copy(self, stream: _Stream, entry: Entry) -> bool:
        """Copy the stream's next bytes into a file. Return whether they match the checksum."""
        target, summed = self._target / entry.path, Checksum(algorithm_of(entry.checksum))
        with target.open("wb") as file:
            target.chmod(0o600)
            self._write(stream, entry.size, file, summed)
        return summed.text == entry.checksum

    def _write(self, stream: _Stream, size: int, file: BinaryIO, summed: Checksum) -> None:
        """Copy the stream's next bytes into a file, and add them to a checksum. Raises Cancelled."""
        for data in stream.read(size):
            if self._cancelled.is_set() or self._failed.is_set():
                raise Cancelled("the restore was cancelled")
            summed.update(data)
            file.write(data)


class _Stream:
    """Sequential reader of an object, which knows its offset in the object."""

    def __init__(self, source: BinaryIO, at: int) -> None:
        self._source = source
        self._at = at

    def read(self, size: int) -> Iterator[bytes]:
        """Yield the next ``size`` bytes, or fewer if the object ends earlier."""
        left = size
        while left and (data := self._source.read(min(CHUNK, left))):
            left -= len(data)
            self._at += len(data)
            yield data

    def skip_to(self, offset: int) -> None:
        for _ in self.read(offset - self._at):
            pass


def _finish(prepared: Path, tree: StoredTree) -> None:
    """Create the links. Then set the permissions and times of all entries, the oldest entries first.

    The order matters, because some programs find their newest save by ``st_ctime``. Programs cannot set ``st_ctime``:
    it is the time at which an entry's permissions or times were last set.
    """
    for entry in tree.entries:
        if entry.kind is Kind.LINK:
            (prepared / entry.path).symlink_to(entry.target)
    newest = max((entry.mtime_ns for entry in tree.entries if entry.kind is Kind.FILE), default=0)
    shift = max(0, newest - time.time_ns() + int(_MINIMUM_AGE * 1e9))
    children_first = list(reversed(tree.entries))
    in_order = sorted(children_first, key=lambda entry: entry.mtime_ns)
    saves = [entry for entry in in_order if entry.kind is Kind.DIRECTORY or "/" not in entry.path]
    separate = {entry.path for entry in saves[-_SEPARATE:]}
    closed = {  # directories whose permissions deny access to their entries; set them last
        entry.path: entry.mode
        for entry in children_first
        if entry.kind is Kind.DIRECTORY and not entry.mode & stat.S_IXUSR
    }
    before_ns, mtime_ns = 0, 0
    for entry in in_order:
        target, when = prepared / entry.path, max(0, entry.mtime_ns - shift)
        if entry.kind is not Kind.LINK and entry.path not in closed:
            target.chmod(entry.mode)
        os.utime(target, ns=(when, when), follow_symlinks=False)
        while entry.path in separate and entry.mtime_ns > mtime_ns and target.lstat().st_ctime_ns <= before_ns:
            time.sleep(_TICK)
            os.utime(target, ns=(when, when), follow_symlinks=False)
        if entry.path in separate:
            before_ns, mtime_ns = target.lstat().st_ctime_ns, entry.mtime_ns
    for path, mode in closed.items():
        (prepared / path).chmod(mode)


def _stored(prepared: Path, tree: StoredTree) -> StoredFiles:
    files = {
        entry.path: (FileVersion.of((prepared / entry.path).lstat()), entry) for entry in tree.entries if entry.object
    }
    return StoredFiles(files, tree.objects)


def _put_in_place(prepared: Path, directory: Path, aside: Path) -> None:
    """Move ``directory`` to ``aside``, then ``prepared`` to ``directory``. Remove the former content of ``aside``."""
    if aside.exists():
        doomed = aside.with_name(_TEMPORARY + secrets.token_hex(4))
        aside.rename(doomed)
        remove_tree(doomed)
    with suppress(FileNotFoundError):
        directory.rename(aside)
    try:
        prepared.rename(directory)
    except OSError:
        if aside.exists():
            aside.rename(directory)
        raise
