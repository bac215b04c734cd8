"""The Storage interface: files for both sides of a job, on HDFS over WebHDFS, local disk, or any fsspec store.

All calls block, end by a deadline, and are safe from several threads at once. From asyncio use ``asyncio.to_thread``.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterable
from types import TracebackType
from typing import BinaryIO, Callable, Optional, Union

import attrs

from tony_provider.runtime.storage.errors import StorageNotFound, StorageUnsupported
from tony_provider.runtime.storage.readers import Readers, Right

Source = Union[bytes, BinaryIO, Iterable[bytes]]
"""What ``write`` takes. A file object is read from where it stands; only bytes and seekable files can be sent twice."""

Before = Callable[[], object]
"""What is called before a file appears, see ``Storage.write``."""

CHUNK = 1 << 20  # bytes moved at a time
PRIVATE_FILE = 0o600
PRIVATE_DIRECTORY = 0o700
_TEMPORARY_PREFIX = ".tony-tmp-"


def right_away() -> None:
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
        before_it_appears: Before = right_away,
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
