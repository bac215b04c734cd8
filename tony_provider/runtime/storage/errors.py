"""Errors of storage. Each message names the file, the operation, the problem and, if known, a remedy."""

# ruff: noqa: N818 (names such as StorageNotFound already describe the error without the suffix Error)

from __future__ import annotations

from typing import ClassVar, Optional


class StorageError(Exception):
    """A storage operation failed. ``str()`` is a complete sentence for the user, and never contains a token."""

    default_advice: ClassVar[str] = ""

    def __init__(self, uri: str, operation: str, problem: str, advice: Optional[str] = None) -> None:
        super().__init__(uri, operation, problem, advice)
        self.uri = uri
        self.operation = operation
        self.problem = problem
        self.advice = self.default_advice if advice is None else advice

    def __str__(self) -> str:
        text = f"cannot {self.operation} {self.uri}: {self.problem}"
        return f"{text}; {self.advice}" if self.advice else text


class StorageNotFound(StorageError):
    """The file or directory does not exist."""


class StorageExists(StorageError):
    """The path already exists, and the operation must not replace it."""


class StorageNotEmpty(StorageExists):
    """A directory is not empty, and the operation must not remove or replace its content."""

    default_advice = "remove the directory recursively, or choose another path"


class StorageIsADirectory(StorageExists):
    """The path is a directory, but a file was expected."""


class StorageNotADirectory(StorageError):
    """The path is a file, but a directory was expected."""


class StorageInvalidPath(StorageError):
    """The store does not allow this path or URI."""


class StorageOtherMount(StorageInvalidPath):
    """An HDFS router cannot rename, because source and target are on different NameNodes."""

    default_advice = "choose paths below the same mount point"


class StoragePermissionDenied(StorageError):
    """The user lacks the permission for the operation."""

    default_advice = "check the owner and permissions of the path, and the user of the connection"


class StorageZoneClosed(StoragePermissionDenied):
    """The path is in an encryption zone, and the server has no permission to decrypt with the zone's key."""

    default_advice = (
        "over WebHDFS, DataNodes decrypt as their own user: permit this user to use the zone's key, or choose a "
        "directory outside the zone"
    )


class StorageNoSpace(StorageError):
    """The disk or the cluster is full, or a quota is exhausted."""

    default_advice = "free space or raise the quota"


class StorageUnreachable(StorageError):
    """No server of the store gave a usable answer before the deadline."""

    default_advice = "check that the store runs and that its addresses are right"


class StorageTimeout(StorageUnreachable):
    """A server of the store accepted the connection, but did not answer in time."""


class StorageAuthError(StorageError):
    """The store does not accept the user's identity."""

    default_advice = "check that the Kerberos ticket or the delegation token is valid and has not expired"


class StorageTooLarge(StorageError):
    """A file exceeds the size limit for files of its kind."""

    default_advice = "another program has created or changed this file: remove it"


class StorageUnsupported(StorageError):
    """The store or this installation does not support the operation."""


# Errors of the whole store. All other errors are about a single file or directory.
STORE_ERRORS = (StorageUnreachable, StorageAuthError)
