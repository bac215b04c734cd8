"""Who may read some files of a store beside their owner, and which files these are."""

from __future__ import annotations

import io
import os
import secrets
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Callable, Optional, TypeVar, Union, cast

import attrs

from tony_provider.runtime.storage.errors import StorageNotFound, StorageTooLarge, StorageUnsupported
from tony_provider.runtime.storage.uris import Uri


class Right(str, Enum):
    """What somebody may do with a file or directory, as access lists of HDFS write it."""

    READ = "r--"  # a file
    LIST = "r-x"  # a directory, and get to what is in it
    PASS = "--x"  # through a directory, to what is in it by names that one knows


@attrs.frozen
class Readers:
    """Users and groups that may read what others own."""

    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    everybody: bool = False

    def __bool__(self) -> bool:
        return bool(self.everybody or self.users or self.groups)

    def named(self, right: Right) -> list[str]:
        """The entries of an access list that give this right to those who are named, as HDFS reads them."""
        everyone = [*(f"user:{name}" for name in self.users), *(f"group:{name}" for name in self.groups)]
        return [f"{each}:{right.value}" for each in everyone]


@attrs.frozen
class SharedFiles:
    """The files that readers may read: those at ``files``, and all that are in ``directories``, but not below them."""

    readers: Readers
    files: frozenset[str]  # paths
    directories: frozenset[str]  # paths

    def has(self, uri: Uri) -> bool:
        return uri.path in self.files or uri.parent.path in self.directories


Source = Union[bytes, BinaryIO, Iterable[bytes]]
"""What ``write`` takes. A file object is read from where it stands; only bytes and seekable files can be sent twice."""

Before = Callable[[], object]
"""What is called before a file appears, see ``Storage.write``."""

CHUNK = 1 << 20  # bytes moved at a time
PRIVATE_FILE = 0o600
PRIVATE_DIRECTORY = 0o700
_TEMPORARY_PREFIX = ".tony-tmp-"


def without_waiting() -> None:
    """Do nothing: a file appears as soon as it is whole."""


@attrs.frozen
class FileStatus:
    """What a store says of a file or directory."""

    path: str  # full URI, with the scheme and authority it was asked for
    size: int  # bytes; 0 for directories
    modified_ms: int  # epoch, exactly as the store reports it: YARN's localisation compares it
    is_directory: bool
    owner: str  # empty where the store has no owners
    permission: Optional[int]  # such as 0o600; None where the store has none
    is_link: bool = False  # in a list, on this machine's disk: the rest says what it leads to

    @property
    def name(self) -> str:
        return self.path.rsplit("/", 1)[1]


@attrs.frozen
class QuotaRoom:
    """The free space in the quotas of a directory."""

    bytes: Optional[int]  # of new files; None if there is no such quota
    names: Optional[int]  # of new files and directories


class Storage(ABC):
    """One store and the operations on its files. URIs are literal, see ``uris``.

    Every method raises a StorageError: beside those named below StoragePermissionDenied, StorageInvalidPath,
    StorageUnreachable or StorageTimeout at the deadline, StorageAuthError, and StorageNoSpace where bytes are written.
    """

    renames_at_once = True  # False: a directory that is renamed moves file by file

    @abstractmethod
    def status(self, uri: str) -> FileStatus:
        """What the store says of a file or directory. Raises StorageNotFound."""

    @abstractmethod
    def list(self, uri: str) -> list[FileStatus]:
        """The direct children of a directory, sorted by name. Raises StorageNotFound, StorageNotADirectory.

        Writes under way show as names that ``is_temporary`` knows.
        """

    @abstractmethod
    def open_read(self, uri: str, *, offset: int = 0, length: Optional[int] = None) -> BinaryIO:
        """A buffered stream of the bytes from ``offset`` on, at most ``length`` of them; beyond the end it is empty.

        Close it. Raises StorageNotFound and StorageIsADirectory here, other StorageErrors from its ``read`` too.
        """

    @abstractmethod
    def write(
        self,
        uri: str,
        source: Source,
        *,
        overwrite: bool = False,
        permission: int = PRIVATE_FILE,
        before_it_appears: Before = without_waiting,
    ) -> int:
        """Make a file of everything in ``source``, in bounded memory; returns how many bytes that were.

        Parents are made with 0700 where missing.

        The file appears whole or not at all, under whatever crash: readers see the old one or the new one. When a
        server is lost on the way, all of it is sent again; of a source that can be read once only, the caller gets
        StorageUnreachable and may call again with a new one.
        Without ``overwrite`` exactly one of several writers wins and the others get StorageExists.
        ``before_it_appears`` is called once the store has all bytes and only their name is missing, so that files can
        be written side by side and appear in an order; what it raises passes through, and nothing appears.
        Raises StorageExists, StorageIsADirectory, StorageNotADirectory (for a parent).
        fsspec stores promise less, see there.
        """

    @abstractmethod
    def rename(self, source: str, target: str, *, overwrite: bool = False) -> None:
        """Move a file or a directory, atomically on HDFS and local disk.

        With ``overwrite`` a file takes the place of a file, a directory that of an empty directory. Repeated after a
        lost answer, so that a move someone else made of the same source to the same target counts as done. Raises
        StorageNotFound (source, or target's parent), StorageExists when the target cannot be replaced.
        """

    @abstractmethod
    def make_directories(self, uri: str, *, permission: int = PRIVATE_DIRECTORY) -> None:
        """Make a directory and the missing ones above it.

        Each one made gets exactly ``permission``, whatever the umask; those that exist keep theirs. Raises
        StorageNotADirectory when a file is in the way.
        """

    @abstractmethod
    def remove(self, uri: str, *, recursive: bool = False) -> bool:
        """Remove a file or a directory; False when there was none.

        Raises StorageNotEmpty without ``recursive``, StorageInvalidPath for the root.
        """

    def share(self, uri: str, readers: Readers, right: Right) -> None:
        """Let these have this right to a file or directory, and nobody else any but its owner.

        Raises StorageNotFound, and StorageUnsupported where the store has no access lists.
        """
        raise StorageUnsupported(uri, "let others read", "this store has no access lists that we know to set")

    def let_pass(self, status: FileStatus, readers: Readers) -> None:
        """Let these pass through a directory, beside those who have rights to it already, who keep theirs.

        Raises as ``share``.
        """
        raise StorageUnsupported(status.path, "let others pass", "this store has no access lists that we know to set")

    def take_token(self, token: str, name: str = "") -> None:
        """Show a newer delegation token from now on, from all threads. Nothing to do where none is asked for.

        ``name``: what URIs name another HDFS by, where the token is of one.
        """
        return

    @property
    def clock_ahead(self) -> Optional[float]:
        """The seconds by which the store's clock is ahead of this machine's. None before its first answer, or unknown.

        Where servers answer by HTTP, it is known to about one second.
        """
        return None

    @abstractmethod
    def close(self) -> None:
        """End waits for unreachable servers and free what is held. Streams that are open stay so."""

    def checksum(self, uri: str) -> Optional[str]:
        """What the store has as a checksum of a file's content: its kind, ``:``, and its value. None: it has none.

        Only equal ones say something: of the same content there may be others. Raises StorageNotFound.
        """
        return None

    def version(self, uri: str) -> Optional[str]:
        """Return a version that changes with each write to a file and that no user can set. None if the store has none.

        Raises StorageNotFound.
        """
        return None

    def quota_room(self, uri: str) -> Optional[QuotaRoom]:
        """Return the free space in the quotas of a directory, or None if it has no quota or the quota is unknown.

        Quotas of directories above do not count. Raises StorageNotFound.
        """
        return None

    def exists(self, uri: str) -> bool:
        """Whether there is such a file or directory."""
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
    """A name for a file on its way to its final one. Short, since the final name may use all that a store allows."""
    return _TEMPORARY_PREFIX + secrets.token_hex(8)


def is_temporary(name: str) -> bool:
    """Whether a write that is under way, or that died, made this name."""
    return name.startswith(_TEMPORARY_PREFIX)


class Body:
    """The bytes to be written. ``size`` in bytes is None when only the end of the stream will tell.

    ``given``: how many bytes ``chunks`` has given, the last time.
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
        """Whether all of it can (still, or again) be read from the beginning."""
        return self._start is not None or not self._used

    def chunks(self) -> Iterator[bytes]:
        """All bytes from the beginning, no chunk empty. Of a file no more than ``size``: it may be growing."""
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
    """A stream of the next ``length`` bytes of an open file, which it owns."""

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


T = TypeVar("T")

_SIDE_BY_SIDE = 16  # files


def read_bytes(storage: Storage, uri: str, *, offset: int = 0, length: Optional[int] = None) -> bytes:
    """The bytes of a file from ``offset`` on, at most ``length`` of them."""
    with storage.open_read(uri, offset=offset, length=length) as stream:
        return stream.read()


def read_whole(storage: Storage, uri: str, most_bytes: int) -> bytes:
    """All of a small file: for what others write, with a bound of ``most_bytes``. Raises StorageTooLarge beyond it."""
    data = read_bytes(storage, uri, length=most_bytes + 1)
    if len(data) > most_bytes:
        raise StorageTooLarge(uri, "read", f"it has more than {most_bytes} bytes, which none of its kind has")
    return data


def read_text(storage: Storage, uri: str, *, offset: int = 0, length: Optional[int] = None) -> str:
    """The text of a file, as UTF-8; what is not is replaced, since a log may be cut anywhere.

    ``offset`` and ``length`` in bytes, as those of ``read_bytes``.
    """
    return read_bytes(storage, uri, offset=offset, length=length).decode("utf-8", "replace")


def write_atomically(
    storage: Storage,
    uri: str,
    data: bytes,
    *,
    permission: int = PRIVATE_FILE,
    before_it_appears: Before = without_waiting,
) -> int:
    """Put ``data`` in place of whatever the file held: readers see the old or the new bytes, never a mixture.

    Returns how many bytes that were. ``before_it_appears``: see ``Storage.write``.
    """
    return storage.write(uri, data, overwrite=True, permission=permission, before_it_appears=before_it_appears)


def write_in_order(writes: Sequence[Callable[[Before], T]]) -> list[T]:
    """Make files side by side that appear one after the other; returns what each of ``writes`` gives.

    Each is called in a thread, with what ``Storage.write`` is to call as ``before_it_appears``. Once one has failed, no
    later one appears; when all have ended, its error is raised. HDFS often takes 0.4 s for the end of a small file:
    this way it does so once.
    """
    with ThreadPoolExecutor(min(len(writes), _SIDE_BY_SIDE), thread_name_prefix="tony-writes") as pool:
        futures: list[Future[T]] = []
        for write in writes:
            # A thread waits for one that has begun before it: there are always enough of them.
            before: Before = futures[-1].result if futures else without_waiting
            futures.append(pool.submit(write, before))
        return [future.result() for future in futures]


def upload(storage: Storage, local: Path, uri: str, *, overwrite: bool = False, permission: int = PRIVATE_FILE) -> int:
    """Copy a local file to the store; returns its size in bytes. Raises OSError when it cannot be read."""
    with local.open("rb") as source:
        return storage.write(uri, source, overwrite=overwrite, permission=permission)


def download(storage: Storage, uri: str, local: Path, *, permission: int = PRIVATE_FILE) -> int:
    """Copy a file of the store to this machine; returns its size in bytes.

    The local file is replaced, and appears whole or not at all; its directory must exist. Raises OSError when it cannot
    be written.
    """
    partial = local.with_name(f".{local.name[:200]}.{os.getpid()}.part")
    try:
        with storage.open_read(uri) as source, partial.open("wb") as target:
            os.fchmod(target.fileno(), permission)
            shutil.copyfileobj(source, target, CHUNK)
            size = target.tell()
        partial.replace(local)
    finally:
        partial.unlink(missing_ok=True)
    return size


def walk(storage: Storage, uri: str, *, links: bool = True) -> Iterator[FileStatus]:
    """Everything below a directory, each directory before what is in it; what vanishes meanwhile is left out.

    Without ``links`` symbolic links are left out, too: they may lead anywhere, and back.
    Raises StorageNotFound, StorageNotADirectory for ``uri`` itself.
    """
    left = [iter(storage.list(uri))]  # and no recursion: a job may nest directories more deeply than Python calls
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
