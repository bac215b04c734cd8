"""Upload a directory tree to the storage, as a snapshot of objects or as plain files.

For a snapshot (ArtifactUpload), only files that the storage does not have are sent. Each large file becomes an object,
and small files are packed into shared objects. If the store can join files, the parts of a very large file are sent
concurrently. All uploads share a rate limiter. Until a file is sent, a hard link or a copy preserves its scanned
version.

DirectoryUpload copies files one by one under their own names.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import secrets
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Optional, cast

import attrs

from tony_provider.runtime.artifacts.manifest import (
    Checksum,
    Entry,
    FileVersion,
    Kind,
    StoredTree,
    SummedFile,
    Tree,
    TreeNode,
    has_checksum,
    parts_of,
)
from tony_provider.runtime.common.concurrency import Cancelled, in_parallel
from tony_provider.runtime.storage import Storage, StorageError, StorageExists, uris
from tony_provider.runtime.storage.base import CHUNK, PRIVATE_DIRECTORY, PRIVATE_FILE, SeekableReader
from tony_provider.runtime.storage.webhdfs.store import SCHEMES

log = logging.getLogger(__name__)


_BURST = 0.25  # seconds; after a pause, the bytes for this time may be sent at once


class Throttle:
    """Limits the total bytes per second of all threads that share this object."""

    def __init__(self, rate: Optional[float]) -> None:
        """``rate``: limit in bytes per second, or None for no limit."""
        self._rate = rate
        self._lock = threading.Lock()
        self._free_at = float("-inf")  # monotonic time at which all reserved bytes are sent

    def take(self, count: int, cancelled: threading.Event) -> None:
        """Wait until ``count`` bytes may be sent. Blocks. Raises Cancelled."""
        wait = self.reserve(count, time.monotonic())
        if cancelled.wait(wait) if wait > 0 else cancelled.is_set():
            raise Cancelled("the copy was cancelled")

    def reserve(self, count: int, now: float) -> float:
        """Reserve ``count`` bytes and return the seconds to wait for them. ``now``: seconds of a monotonic clock."""
        if not self._rate:
            return 0.0
        with self._lock:
            self._free_at = max(self._free_at, now - _BURST) + count / self._rate
            return self._free_at - now


_UNLIMITED = Throttle(None)
SMALL = 256 << 10  # bytes; files up to this size share an object, because HDFS needs up to 0.4 s for each file
PACK = 64 << 20  # bytes of small files in one shared object
_PARALLEL = 4  # objects sent concurrently; each needs CHUNK bytes of memory
_IN_MEMORY = 4  # maximum number of packs (see PACK) kept in memory if the disk is full
_NO_LINKS = {errno.EPERM, errno.EXDEV, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS}


class PacedFile:
    """A file for ``Storage.write`` whose ``read`` waits for a rate limiter and can be cancelled."""

    def __init__(
        self,
        file: BinaryIO,
        cancelled: threading.Event,
        throttle: Throttle = _UNLIMITED,
        moved: Callable[[], None] = lambda: None,
    ) -> None:
        """``moved``: called when bytes are read for the first time, but not when a retry reads the same bytes again."""
        self._file = file
        self._cancelled = cancelled
        self._throttle = throttle
        self._moved = moved
        self._furthest = 0
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        """Read like a file. Raises Cancelled."""
        data = self._file.read(size)
        self._throttle.take(len(data), self._cancelled)
        if (now := self._file.tell()) > self._furthest:
            self._furthest = now
            self._moved()
        return data


class FilePart(SeekableReader):
    """Part of an open file. Several threads may read parts of the same file concurrently."""

    def __init__(self, file: BinaryIO, offset: int, size: int) -> None:
        super().__init__(size)
        self._file, self._offset = file.fileno(), offset

    def read(self, size: int = -1) -> bytes:
        left = self._size - self._at
        data = os.pread(self._file, left if size < 0 else min(size, left), self._offset + self._at)
        self._at += len(data)
        return data


@attrs.define(eq=False)
class TreeChanged(Exception):  # noqa: N818 - describes what happened
    """A program changed or replaced a file after the scan. The next scan finds the new version."""

    path: str

    def __str__(self) -> str:
        return f"{self.path} was changed while it was copied"


@attrs.frozen
class StoredFiles:
    """Local files whose content is already in the storage."""

    files: Mapping[str, tuple[FileVersion, Entry]] = attrs.field(factory=dict)  # by path
    objects: Mapping[str, int] = attrs.field(factory=dict)  # size in bytes by object name


@attrs.frozen
class UploadedTree:
    """The result of ``ArtifactUpload.run``."""

    tree: StoredTree
    stored: StoredFiles  # argument for the next upload of the directory
    sent: int  # number of bytes sent


class ArtifactUpload:
    """One upload of a snapshot. Call ``run`` once, in a thread; call ``cancel`` from any thread."""

    def __init__(self, storage: Storage, objects_uri: str, name: str, throttle: Throttle) -> None:
        """``name``: prefix for the names of new objects. It must be unique in the directory at ``objects_uri``."""
        self._storage = storage
        self._objects_uri = objects_uri
        self._name = name
        self._throttle = throttle
        self._cancelled = threading.Event()
        self._streams = threading.BoundedSemaphore(_PARALLEL)
        self.objects: list[str] = []  # names of all objects that the upload may have created
        self.moved: Optional[float] = None  # monotonic time of the last progress; None while no bytes are being sent

    def cancel(self) -> None:
        """Stop sending bytes. A thread that waits for a silent server continues until the storage's timeout."""
        self._cancelled.set()

    def run(
        self,
        directory: Path,
        tree: Tree,
        stored: StoredFiles,
        hold: Path,
        *,
        copy: bool = False,
        growing: Collection[str] = (),
    ) -> UploadedTree:
        """Send the files of a scanned tree that ``stored`` does not contain.

        ``hold``: path of a temporary directory on the same file system; the upload creates and removes it.
        ``copy``: copy changed files instead of hard-linking them, so that the program may write into them during the
        upload.
        ``growing``: paths of files that may grow during the upload; only the bytes up to the scanned length are stored.

        Blocks. Raises TreeChanged, StorageError, OSError, Cancelled. After an exception, some of ``objects`` may exist
        in the storage.
        """
        reused = _Reuse(directory, tree, stored, self._cancelled).find()
        names: dict[tuple[int, int], list[str]] = {}  # paths of each changed file, by device and inode
        for path, node in tree.files.items():
            if path not in reused:
                names.setdefault((node.version.device, node.version.inode), []).append(path)
        changed = {paths[0]: tree.nodes[paths[0]] for paths in names.values()}
        hold.mkdir(mode=0o700)
        held = _Hold(directory, hold, copy=copy, growing=frozenset(growing))
        try:
            parcels = [*held.large(changed), *held.packs(changed, self._cancelled)]
            self.moved = time.monotonic()
            sent = {entry.path: entry for entry in self._send_all(parcels)}
            self.moved = None
            held.check(sent.values(), self._cancelled)
        finally:
            held.close()
            shutil.rmtree(hold, ignore_errors=True)
        linked = {path: sent[first] for first, *others in names.values() for path in others if first in sent}
        entries = _entries(tree, {**reused, **sent, **linked})
        sizes = {**stored.objects, **{name: parcel.size for name, parcel in zip(self.objects, parcels)}}
        result = StoredTree(entries, {name: sizes[name] for name in sorted({each.object for each in entries} - {""})})
        return UploadedTree(result, _stored_now(directory, tree, result), sum(parcel.size for parcel in parcels))

    def _send_all(self, parcels: list[_Parcel]) -> list[Entry]:
        """Send all objects, the largest first. The first failure cancels all other transfers."""
        self.objects = [f"{self._name}-{number}" for number in range(len(parcels))]
        largest_first = sorted(zip(parcels, self.objects), key=lambda each: -each[0].size)
        return [
            entry for sent in in_parallel(self._send, largest_first, _PARALLEL, "upload", self.cancel) for entry in sent
        ]

    def _send(self, named: tuple[_Parcel, str]) -> list[Entry]:
        parcel, name = named
        parts = parts_of(parcel.size)
        if len(parts) > 1 and not self._storage.can_join(self._objects_uri):
            parts = [(0, parcel.size)]
        names = [name, *(f"{name}-part-{number}" for number in range(1, len(parts)))]
        self.objects += names[1:]
        with parcel.local.open("rb", buffering=0) as opened:
            sources = [SummedFile(self._paced(FilePart(opened, offset, size))) for offset, size in parts]
            pieces = [(cast(BinaryIO, source), each) for source, each in zip(sources, names)]
            try:
                for _ in in_parallel(self._send_piece, pieces, _PARALLEL, "part", self.cancel):
                    pass
            except StorageError as error:
                if os.fstat(opened.fileno()).st_size < parcel.size:
                    raise TreeChanged(parcel.entries[0].path) from error
                raise
        checksum, *others = (source.checksum for source in sources)
        for each in others:
            checksum.append(each)
        if checksum.size != parcel.size:
            raise TreeChanged(parcel.entries[0].path)
        if names[1:]:
            first, *following = (uris.join(self._objects_uri, each) for each in names)
            self._storage.join(first, following)
        if len(parcel.entries) > 1:
            return [attrs.evolve(entry, object=name) for entry in parcel.entries]
        return [attrs.evolve(parcel.entries[0], object=name, checksum=checksum.text)]

    def _paced(self, file: io.RawIOBase) -> BinaryIO:
        return cast(BinaryIO, PacedFile(cast(BinaryIO, file), self._cancelled, self._throttle, self._move))

    def _send_piece(self, piece: tuple[BinaryIO, str]) -> None:
        source, name = piece
        with self._streams:
            self._storage.write(uris.join(self._objects_uri, name), source)

    def _move(self) -> None:
        self.moved = time.monotonic()


@attrs.frozen
class _Parcel:
    """One object to send, and the entries of the files in it."""

    local: Path
    size: int  # bytes
    entries: list[Entry]  # the field ``object`` is still empty


@attrs.frozen
class _Reuse:
    """Finds the files of a tree that the storage already has."""

    _directory: Path
    _tree: Tree
    _stored: StoredFiles
    _cancelled: threading.Event

    def find(self) -> dict[str, Entry]:
        """Return the entries of the stored files by path. Raises OSError, Cancelled."""
        versions = {version.without_ctime: entry for version, entry in self._stored.files.values()}
        found = {}
        for path, node in self._tree.files.items():
            version, entry = self._stored.files.get(path, (None, None))
            if entry is None or version != node.version:
                entry = versions.get(node.version.without_ctime)
                if entry is None or not self._holds(path, entry):
                    continue
            if entry.size:
                found[path] = attrs.evolve(entry, path=path, mode=node.mode, mtime_ns=max(0, node.version.mtime_ns))
        return self._without_sparse(found)

    def _holds(self, path: str, entry: Entry) -> bool:
        """Return whether a renamed, newly linked or chmod-ed file still has the stored content, by its checksum."""
        try:
            return has_checksum(self._directory / path, entry.checksum, self._cancelled)
        except FileNotFoundError:
            return False

    def _without_sparse(self, found: dict[str, Entry]) -> dict[str, Entry]:
        """Leave out the files in objects of which less than half is still used.

        The caller sends these files again, so that the old objects can be removed.
        """
        used: dict[str, dict[int, int]] = {}
        for entry in found.values():
            used.setdefault(entry.object, {})[entry.offset] = entry.size
        sparse = {name for name, parts in used.items() if 2 * sum(parts.values()) < self._stored.objects[name]}
        return {path: entry for path, entry in found.items() if entry.object not in sparse}


class _Hold:
    """Temporary directory that preserves the scanned version of each file to send, by a hard link or a copy."""

    def __init__(self, directory: Path, hold: Path, *, copy: bool, growing: frozenset[str]) -> None:
        self._directory = directory
        self._hold = hold
        self._copy = copy
        self._growing = growing
        self._linked: dict[str, tuple[Path, FileVersion]] = {}
        self._in_memory: list[BinaryIO] = []

    def large(self, changed: Mapping[str, TreeNode]) -> Iterator[_Parcel]:
        """Link or copy each large file, and yield it as an object. Raises TreeChanged, OSError."""
        large = [path for path, node in changed.items() if node.version.size > SMALL]
        for number, path in enumerate(large):
            node, local = changed[path], self._hold / f"file-{number}"
            if self._copy or path in self._growing or not self._link(path, node, local):
                with local.open("xb") as file:
                    self._append(path, node, file)
            yield _Parcel(local, node.version.size, [_entry(path, node, "")])

    def packs(self, changed: Mapping[str, TreeNode], cancelled: threading.Event) -> Iterator[_Parcel]:
        """Copy the small files into packs, and yield each pack as an object. Raises TreeChanged, OSError, Cancelled."""
        small = {path: node for path, node in changed.items() if 0 < node.version.size <= SMALL}
        waiting = deque(sorted(small))
        number = 0
        while waiting:
            paths, size = [], 0
            while waiting and size < PACK:
                paths.append(waiting.popleft())
                size += small[paths[-1]].version.size
            local = self._hold / f"pack-{number}"
            try:
                with local.open("xb") as file:
                    entries = self._pack(paths, small, file, cancelled)
            except OSError as error:
                if error.errno != errno.ENOSPC or len(self._in_memory) == _IN_MEMORY:
                    raise
                local.unlink()
                file = os.fdopen(os.memfd_create("pack"), "wb")
                self._in_memory.append(file)
                entries, local = self._pack(paths, small, file, cancelled), Path(f"/proc/self/fd/{file.fileno()}")
                file.flush()
            yield _Parcel(local, size, entries)
            number += 1

    def _pack(
        self, paths: Iterable[str], small: Mapping[str, TreeNode], file: BinaryIO, cancelled: threading.Event
    ) -> list[Entry]:
        """Append files to a pack. Raises TreeChanged, OSError, Cancelled."""
        entries, size = [], 0
        for path in paths:
            if cancelled.is_set():
                raise Cancelled("the upload was cancelled")
            checksum = self._append(path, small[path], file)
            entries.append(attrs.evolve(_entry(path, small[path], checksum), offset=size))
            size += small[path].version.size
        return entries

    def close(self) -> None:
        """Free the memory of packs that did not fit on the disk."""
        for file in self._in_memory:
            file.close()

    def check(self, sent: Iterable[Entry], cancelled: threading.Event) -> None:
        """Raise TreeChanged if a program wrote into a linked file. Raises OSError, Cancelled."""
        for entry in sent:
            local, version = self._linked.get(entry.path, (None, None))
            if local is None or version is None or (now := FileVersion.of(local.lstat())) == version:
                continue
            # If only ctime_ns differs, the file may have been renamed or removed. But a program may also have written
            # into it and reset mtime_ns, so compare the content.
            if now.without_ctime != version.without_ctime or not has_checksum(local, entry.checksum, cancelled):
                raise TreeChanged(entry.path)

    def _link(self, path: str, node: TreeNode, local: Path) -> bool:
        """Create a hard link to a file. Return False if the file system does not permit it.

        Raises TreeChanged, OSError.
        """
        try:
            if FileVersion.of((self._directory / path).lstat()) != node.version:
                raise TreeChanged(path)
            os.link(self._directory / path, local, follow_symlinks=False)
        except FileNotFoundError as error:
            raise TreeChanged(path) from error
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            return False
        version = FileVersion.of(local.lstat())  # the link has changed the inode's ctime
        if version.without_ctime != node.version.without_ctime:
            raise TreeChanged(path)
        self._linked[path] = local, version
        return True

    def _append(self, path: str, node: TreeNode, file: BinaryIO) -> str:
        """Append a file's bytes and return their checksum. Raises TreeChanged, OSError."""
        summed, left = Checksum(), node.version.size
        try:
            descriptor = os.open(self._directory / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError as error:
            raise TreeChanged(path) from error
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise TreeChanged(path) from error
            raise
        with os.fdopen(descriptor, "rb", buffering=0) as source:
            while left and (data := source.read(min(left, CHUNK))):
                file.write(data)
                summed.update(data)
                left -= len(data)
            is_same = FileVersion.of(os.fstat(descriptor)) == node.version
        if left or not (is_same or path in self._growing):
            raise TreeChanged(path)
        return summed.text


def _entries(tree: Tree, files: Mapping[str, Entry]) -> list[Entry]:
    """Return the entries of a tree. ``files``: entry by path for each non-empty file; ``entry.path`` may differ."""
    entries = []
    for path, node in sorted(tree.nodes.items()):
        if path in files:
            entries.append(attrs.evolve(files[path], path=path))
        elif node.kind is Kind.FILE:
            entries.append(_entry(path, node, Checksum().text))
        else:
            entries.append(Entry(path, node.kind, node.mode, max(0, node.version.mtime_ns), target=node.target))
    return entries


def _entry(path: str, node: TreeNode, checksum: str) -> Entry:
    return Entry(path, Kind.FILE, node.mode, max(0, node.version.mtime_ns), node.version.size, checksum)


def _stored_now(directory: Path, tree: Tree, result: StoredTree) -> StoredFiles:
    """Return the uploaded files that still exist unchanged. Removed hard links have changed their ``ctime_ns``."""
    files = {}
    for entry in result.entries:
        node = tree.nodes[entry.path]
        if not entry.object:
            continue
        try:
            version = FileVersion.of((directory / entry.path).lstat())
        except OSError:
            continue  # the program has removed the file
        if version.without_ctime == node.version.without_ctime:
            files[entry.path] = version, entry
    return StoredFiles(files, result.objects)


_AT_ONCE = 4  # concurrent file transfers; each has a buffer of about storage.base.CHUNK


def is_empty_directory(directory: Path) -> bool:
    """Return whether the directory is empty or missing. Raises OSError if the path is not a directory."""
    return not directory.exists() or next(directory.iterdir(), None) is None


@attrs.frozen
class DirectoryUpload:
    """Copies directories to the store file by file. All methods block."""

    storage: Storage
    cancelled: threading.Event
    warn: Callable[[str], None]  # called for each entry that is left out or renamed
    file_permission: int = PRIVATE_FILE
    directory_permission: int = PRIVATE_DIRECTORY
    overwrite: bool = False  # replace existing files; if False, an existing file is an error

    def run(self, directory: Path, target: str, wanted: Callable[[str], bool] = lambda path: True) -> tuple[int, int]:
        """Copy the content of ``directory`` to the URI ``target``. Return the numbers of files and bytes.

        Leaves out broken links, links to a parent directory, and entries that are neither files nor directories. HDFS
        does not permit colons in names, so colons become ``%3A`` on HDFS. ``wanted`` gets the path of a file in the
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
        """Copy one file, and return the size of the file in bytes. Raises the errors of ``run``."""
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
                self.warn(f"{path} is not stored: HDFS permits no colons in names, and {stored} is another file")
            elif wanted(relative):
                if stored != relative:
                    self.warn(f"{path} is stored as {stored}, because HDFS does not permit colons in names")
                yield relative


def stored_path(target: str, path: str) -> str:
    """Return the path below the URI ``target`` for a local relative path. On HDFS, colons become ``%3A``."""
    return path.replace(":", "%3A") if uris.scheme(target) in SCHEMES else path


def walk_local(directory: Path, warn: Callable[[str], None]) -> Iterator[tuple[Path, str]]:
    """Yield every directory and file with its path below ``directory``.

    The first item is ``directory`` itself, with an empty path. Follows symbolic links, except links to a directory
    that contains the link. Raises OSError.
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
    """Replace the content of the URI ``target`` by the content of ``directory``, and return ``target``. Blocks.

    An existing ``target`` is missing for a moment, between two renames. Raises StorageError, OSError, Cancelled.
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
    """Remove a directory after an error. A failure is only logged, so that the caller can raise the original error."""
    try:
        storage.remove(uri, recursive=True)
    except StorageError as error:
        log.warning("could not remove %s from the store: %s", uri, error)


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
        log.warning("%s was moved to %s and could not be moved back: %s", target, former, error)
