"""The interface of all stores, access rights for other users, and file operations that work with every store."""

from __future__ import annotations

import io
import os
import secrets
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import BinaryIO, Optional, TypeVar, Union, cast

import attrs

from tony_provider.runtime.common.concurrency import Cancelled
from tony_provider.runtime.storage.errors import StorageNotFound, StorageTooLarge, StorageUnsupported
from tony_provider.runtime.storage.uris import Uri


class Right(str, Enum):
    """Permission to access a file or directory, in the notation of HDFS access lists."""

    READ = "r--"  # read a file
    LIST = "r-x"  # list a directory and access its entries
    PASS = "--x"  # access entries of a directory by name, without listing the directory


@attrs.frozen
class Readers:
    """Users and groups to which the owner of files gives read access."""

    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    everybody: bool = False

    def __bool__(self) -> bool:
        return bool(self.everybody or self.users or self.groups)

    def named(self, right: Right) -> list[str]:
        """Return the access-list entries that give this right to the named users and groups, in HDFS's form."""
        everyone = [*(f"user:{name}" for name in self.users), *(f"group:{name}" for name in self.groups)]
        return [f"{each}:{right.value}" for each in everyone]


@attrs.frozen
class SharedFiles:
    """Files that readers may read: the paths in ``files``, and the files directly in ``directories``."""

    readers: Readers
    files: frozenset[str]  # paths of single files
    directories: frozenset[str]  # paths of directories, whose subdirectories are not shared

    def has(self, uri: Uri) -> bool:
        return uri.path in self.files or uri.parent.path in self.directories


Source = Union[bytes, BinaryIO, Iterable[bytes]]
"""Content for ``write``. A file is read from its position; only bytes and seekable files can be sent twice."""

CHUNK = 1 << 20  # bytes to copy at a time
PRIVATE_FILE = 0o600
PRIVATE_DIRECTORY = 0o700
_TEMPORARY_PREFIX = ".tony-tmp-"


@attrs.frozen
class FileStatus:
    """Status of a file or directory, as its store reports it."""

    path: str  # full URI, with the requested scheme and authority
    size: int  # bytes; 0 for directories
    modified_ms: int  # epoch milliseconds, exactly as the store reports them, because YARN compares them
    is_directory: bool
    owner: str  # empty if the store has no owners
    permission: Optional[int]  # such as 0o600; None if the store has no permissions
    is_link: bool = False  # symbolic link on the local disk; all other fields describe the link's target
    checksum: Optional[str] = None  # as of ``Storage.checksum``, if the store reports it with the status

    @property
    def name(self) -> str:
        return self.path.rsplit("/", 1)[1]


@attrs.frozen
class QuotaRoom:
    """Free space in the quotas of a directory."""

    bytes: Optional[int]  # bytes that new files may have; None if there is no space quota
    names: Optional[int]  # new files and directories; None if there is no quota of names


class Storage(ABC):
    """One store and the operations on its files. URIs are literal, see ``uris``.

    Methods raise the StorageErrors in their docstrings. Every method may also raise StoragePermissionDenied,
    StorageInvalidPath, StorageUnreachable, StorageAuthError, and StorageTimeout at the deadline. Methods that write
    bytes may raise StorageNoSpace.
    """

    renames_at_once = True  # whether ``rename`` moves a directory in one step; if not, file by file
    # Variables with the access to object stores of the same jobs, for ``JobStores``. Never logged.
    object_store_variables: Mapping[str, str] = MappingProxyType({})

    @abstractmethod
    def status(self, uri: str) -> FileStatus:
        """Return the status of a file or directory. Raises StorageNotFound."""

    @abstractmethod
    def list(self, uri: str) -> list[FileStatus]:
        """Return the direct children of a directory, sorted by name. Raises StorageNotFound, StorageNotADirectory.

        Unfinished writes have names that ``is_temporary`` recognizes.
        """

    @abstractmethod
    def open_read(self, uri: str, *, offset: int = 0, length: Optional[int] = None) -> BinaryIO:
        """Return a buffered stream of at most ``length`` bytes, from ``offset`` on.

        ``offset`` may be after the end of the file. The caller closes the stream. Raises StorageNotFound and
        StorageIsADirectory. The stream's ``read`` may raise other StorageErrors.
        """

    @abstractmethod
    def write(
        self,
        uri: str,
        source: Source,
        *,
        overwrite: bool = False,
        permission: int = PRIVATE_FILE,
    ) -> int:
        """Create a file from everything in ``source``, and return the number of bytes. Needs bounded memory.

        Missing parents are created with mode 0700.

        The file appears atomically, even if this process crashes: readers see the old file or the new file. If a server
        is lost, all bytes are sent again. But if ``source`` can be read only once, StorageUnreachable is raised, and
        the caller may repeat the call with a new source.

        Without ``overwrite``, exactly one of several concurrent writers succeeds. All others raise StorageExists.

        Raises StorageExists, StorageIsADirectory, and StorageNotADirectory if a parent is a file. The guarantees of
        ``ObjectStorage`` are weaker.
        """

    def write_record(self, uri: str, data: bytes, *, overwrite: bool = False) -> bool:
        """Create a small file quickly. Guarantees and errors are those of ``write``.

        HDFS stores the content as an attribute of an empty file, because DataNodes often need 0.4 s to complete a file.
        ``open_read`` returns the content as for any other file, but ``status`` reports a size of 0. Returns whether the
        file is such a record, which other programs cannot read.
        """
        self.write(uri, data, overwrite=overwrite)
        return False

    def open_record(self, listed: FileStatus) -> BinaryIO:
        """Open a small file that was just listed. HDFS needs fewer requests than for ``open_read``."""
        return self.open_read(listed.path)

    def can_join(self, directory: str) -> bool:
        """Return whether ``join`` is possible for files in this directory. May create temporary files to test this."""
        return False

    def join(self, uri: str, others: Sequence[str]) -> None:
        """Append the content of other files to a file in the same directory, and remove the other files.

        Only a store whose ``can_join`` returns True supports this. Raises StorageNotFound.
        """
        raise StorageUnsupported(uri, "append files to", "the store cannot do this")

    @abstractmethod
    def rename(self, source: str, target: str, *, overwrite: bool = False) -> None:
        """Move a file or a directory, atomically on HDFS and local disk.

        With ``overwrite``, a file replaces a file, and a directory replaces an empty directory.

        If a server's answer is lost, the request is repeated. The repeated request succeeds if the source is gone and
        the target exists, even if another process has moved the source.

        Raises StorageNotFound if the source or the target's parent is missing, and StorageExists if the target cannot
        be replaced.
        """

    def rename_target_problem(self, uri: str) -> str:
        """Return why a rename cannot replace this path, with a remedy, or an empty string. Raises StorageError."""
        return ""

    @abstractmethod
    def make_directories(self, uri: str, *, permission: int = PRIVATE_DIRECTORY) -> None:
        """Create a directory and its missing parents.

        New directories get exactly ``permission``, whatever the umask. Existing directories keep their permissions.
        Raises StorageNotADirectory if a parent or the path itself is a file.
        """

    @abstractmethod
    def remove(self, uri: str, *, recursive: bool = False) -> bool:
        """Remove a file or a directory. Return False if it does not exist.

        Raises StorageInvalidPath for the root, and StorageNotEmpty for a directory with content without ``recursive``.
        """

    def share(self, uri: str, readers: Readers, right: Right) -> None:
        """Give readers the right ``right`` to a file or directory. All other users except the owner lose their rights.

        Raises StorageNotFound, and StorageUnsupported if the store has no access lists.
        """
        raise StorageUnsupported(uri, "grant read access to", "access lists are not supported for this store")

    def let_pass(self, status: FileStatus, readers: Readers) -> None:
        """Give readers the right to pass through a directory. Existing rights of other users stay.

        Raises the errors of ``share``.
        """
        raise StorageUnsupported(status.path, "grant access through", "access lists are not supported for this store")

    def take_token(self, token: str, name: str = "") -> None:
        """Use a newer delegation token from now on, in all threads. Does nothing if the store needs no token.

        ``name``: empty if the token is for this store, otherwise the authority of the other HDFS.
        """
        return

    @property
    def clock_ahead(self) -> Optional[float]:
        """Seconds by which the store's clock is ahead of this machine's clock, or None if unknown.

        It is unknown before the store's first answer. For stores with an HTTP interface, the precision is about one
        second.
        """
        return None

    @abstractmethod
    def close(self) -> None:
        """Release resources, and interrupt operations that wait for unreachable servers. Open streams stay open."""

    def checksum(self, uri: str) -> Optional[str]:
        """Return the store's checksum of a file's content as ``kind:value``, or None if the store has none.

        Equal checksums mean equal content, but equal content may have different checksums. Raises StorageNotFound.
        """
        return None

    def version(self, uri: str) -> Optional[str]:
        """Return a text that changes with each write to a file, and that users cannot set. None if the store has none.

        Raises StorageNotFound.
        """
        return None

    def quota_room(self, uri: str) -> Optional[QuotaRoom]:
        """Return the free space in the quotas of a directory. Return None if there is no quota, or an unknown quota.

        Quotas of its parent directories are ignored. Raises StorageNotFound.
        """
        return None

    def exists(self, uri: str) -> bool:
        """Return whether a file or directory exists."""
        try:
            self.status(uri)
        except StorageNotFound:
            return False
        return True

    def __enter__(self) -> Storage:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()


def temporary_name() -> str:
    """Return a new temporary name. Independent of the final name, which may already have the maximum length."""
    return _TEMPORARY_PREFIX + secrets.token_hex(8)


def is_temporary(name: str) -> bool:
    """Return whether a file of this name is from a write that is still running or has failed."""
    return name.startswith(_TEMPORARY_PREFIX)


class Body:
    """Bytes to write, from bytes, a file or an iterable.

    ``size`` is the number of bytes, or None if it is not known in advance. ``given`` is the number of bytes that the
    latest call of ``chunks`` has yielded so far.
    """

    def __init__(self, source: Source) -> None:
        self._file: Optional[BinaryIO] = None
        self._iterable: Iterable[bytes] = ()
        if isinstance(source, (bytes, bytearray, memoryview)):
            self._file = io.BytesIO(source)
        elif hasattr(source, "read"):
            self._file = cast(BinaryIO, source)
        else:
            self._iterable = source
        self._start: Optional[int] = None
        self._used = False
        self.size: Optional[int] = None
        self.given = 0
        if self._file is not None and self._file.seekable():
            self._start = self._file.tell()
            self.size = max(0, self._file.seek(0, io.SEEK_END) - self._start)
            self._file.seek(self._start)

    @property
    def available(self) -> bool:
        """Whether ``chunks`` can yield all bytes, because the source can be rewound or was not read yet."""
        return self._start is not None or not self._used

    def chunks(self) -> Iterator[bytes]:
        """Yield all bytes from the start, without empty chunks. A growing file is read only up to ``size``."""
        self._used, self.given = True, 0
        for chunk in self._of_file(self._file) if self._file is not None else self._iterable:
            if chunk:
                self.given += len(chunk)
                yield chunk

    def _of_file(self, file: BinaryIO) -> Iterator[bytes]:
        if self._start is not None:
            file.seek(self._start)
        while (most := CHUNK if self.size is None else min(CHUNK, self.size - self.given)) > 0:
            chunk = file.read(most)
            if not chunk:
                break
            yield chunk


class Range(io.RawIOBase):
    """Stream of the next ``length`` bytes of an open file. Closing the stream also closes the file."""

    def __init__(self, file: BinaryIO, length: int) -> None:
        self._file = file
        self._left = length

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._file.read(min(len(buffer), self._left))
        buffer[: len(data)] = data
        self._left -= len(data)
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


class SeekableReader(io.RawIOBase):
    """A file of a known size. Subclasses read from the position ``_at``, and move it."""

    def __init__(self, size: int) -> None:
        self._size, self._at = size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = max(0, offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence])
        return self._at


T = TypeVar("T")


def list_existing(storage: Storage, uri: str) -> list[FileStatus]:
    """Return the entries of a directory like ``Storage.list``, or an empty list if the directory does not exist."""
    try:
        return storage.list(uri)
    except StorageNotFound:
        return []


def read_bytes(storage: Storage, uri: str, *, offset: int = 0, length: Optional[int] = None) -> bytes:
    """Return at most ``length`` bytes of a file from ``offset``."""
    with storage.open_read(uri, offset=offset, length=length) as stream:
        return stream.read()


def read_whole(storage: Storage, uri: str, size_limit: int) -> bytes:
    """Return the content of a small file. Raises StorageTooLarge if it has more than ``size_limit`` bytes."""
    data = read_bytes(storage, uri, length=size_limit + 1)
    if len(data) > size_limit:
        raise StorageTooLarge(uri, "read", f"it has more than {size_limit} bytes, the limit for such files")
    return data


def read_text(storage: Storage, uri: str, *, offset: int = 0, length: Optional[int] = None) -> str:
    """Return the text of a UTF-8 file. ``offset`` and ``length`` are in bytes, as in ``read_bytes``.

    Invalid bytes are replaced, because ``offset`` or ``length`` may cut a character in two.
    """
    return read_bytes(storage, uri, offset=offset, length=length).decode("utf-8", "replace")


def write_atomically(storage: Storage, uri: str, data: bytes, *, permission: int = PRIVATE_FILE) -> int:
    """Replace a file's content by ``data``. Readers see the old or the new bytes, never a mixture.

    Returns the number of bytes.
    """
    return storage.write(uri, data, overwrite=True, permission=permission)


def upload(storage: Storage, local: Path, uri: str, *, overwrite: bool = False, permission: int = PRIVATE_FILE) -> int:
    """Copy a local file to the store, and return its size in bytes. Raises OSError if the local file cannot be read."""
    with local.open("rb") as source:
        return storage.write(uri, source, overwrite=overwrite, permission=permission)


def download(
    storage: Storage,
    uri: str,
    local: Path,
    *,
    permission: int = PRIVATE_FILE,
    cancelled: Optional[threading.Event] = None,
) -> int:
    """Copy a file of the store to this machine, and return its size in bytes.

    Replaces the local file atomically. The local directory must exist. Raises Cancelled soon after ``cancelled`` is
    set, and OSError if the local file cannot be written.
    """
    partial = local.with_name(temporary_name())
    try:
        with storage.open_read(uri) as source, partial.open("wb") as target:
            os.fchmod(target.fileno(), permission)
            while chunk := source.read(CHUNK):
                if cancelled is not None and cancelled.is_set():
                    raise Cancelled(f"copying {uri} was cancelled")
                target.write(chunk)
            size = target.tell()
        partial.replace(local)
    finally:
        partial.unlink(missing_ok=True)
    return size


def walk(storage: Storage, uri: str, *, links: bool = True) -> Iterator[FileStatus]:
    """Yield everything below a directory, each directory before its content. Ignores entries that vanish meanwhile.

    With ``links=False``, symbolic links are ignored, because links may lead to any directory and form cycles.

    Raises StorageNotFound, StorageNotADirectory if ``uri`` is not a directory.
    """
    left = [iter(storage.list(uri))]  # not recursive, because directories may be nested more deeply than Python permits
    while left:
        for status in left[-1]:
            if status.is_link and not links:
                continue
            yield status
            if status.is_directory:
                with suppress(StorageNotFound):
                    left.append(iter(storage.list(status.path)))
                    break
        else:
            left.pop()
