"""The errors of storage: each says which file, during what, why, and what to do about it."""

# ruff: noqa: N818 (these names say what was found; "StorageNotFoundError" says it no better)

from __future__ import annotations

from typing import ClassVar, Optional


class StorageError(Exception):
    """A storage operation failed. ``str()`` is a complete sentence for the user; it never holds a token."""

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
    """No such file or directory."""


class StorageExists(StorageError):
    """Something is there already that may not be replaced."""


class StorageNotEmpty(StorageExists):
    """A directory holds something, and was to be removed or replaced without what is in it."""

    default_advice = "remove it recursively or choose another place"


class StorageIsADirectory(StorageExists):
    """A file was meant, and a directory is there."""


class StorageNotADirectory(StorageError):
    """A directory was meant, and a file is there."""


class StorageInvalidPath(StorageError):
    """The path or URI is one that this store cannot have."""


class StoragePermissionDenied(StorageError):
    """The user may not do this."""

    default_advice = "check the owner and permissions of the path, and the user of the connection"


class StorageZoneClosed(StoragePermissionDenied):
    """It lies in an encryption zone, whose key its server may not decrypt with."""

    default_advice = (
        "over WebHDFS DataNodes decrypt as their own user: let the zone's key be used by that one, name an HttpFS "
        "gateway as `webhdfs`, or choose a directory outside the zone"
    )


class StorageNoSpace(StorageError):
    """The disk or the cluster is full, or a quota is used up."""

    default_advice = "free space or raise the quota"


class StorageUnreachable(StorageError):
    """No server of the store answered usefully until the deadline."""

    default_advice = "check that the store runs and that its addresses are right"


class StorageTimeout(StorageUnreachable):
    """A server took the connection and then fell silent."""


class StorageAuthError(StorageError):
    """The store does not accept who we say we are."""

    default_advice = "check the Kerberos ticket or the delegation token, and that it has not expired"


class StorageTooLarge(StorageError):
    """A file has more bytes than anything of its kind."""

    default_advice = "somebody has changed it, or it is none of ours: remove it"


class StorageUnsupported(StorageError):
    """This store, or this installation, cannot do that."""


# They tell of the store as a whole; the others of one file or directory.
STORE_ERRORS = (StorageUnreachable, StorageAuthError)
