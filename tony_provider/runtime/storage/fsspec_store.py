"""Storage by fsspec, for all stores except HDFS and the local disk (s3, gs, abfs, memory, …).

The package fsspec is imported when such a store is opened. Object stores guarantee less than HDFS and local disk:

- A write of at most ``SINGLE_PUT`` bytes is one PUT, and appears atomically. A longer write is a multi-part upload,
  which is atomic if the store's driver can discard an unfinished upload. The drivers of s3, gs and abfs can.
- Without ``overwrite``, only a single PUT with a driver that has conditional writes (s3, gs, memory) is exclusive.
  Otherwise, the file's existence is checked before the write, so several concurrent writers may succeed.
- A rename is a copy and a removal, and is not atomic. To commit something, write one small file instead of renaming.
- Directories exist only as long as they contain files. Files have no permissions and owners.
"""

from __future__ import annotations

import asyncio
import errno
import glob
import importlib
import io
import itertools
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, BinaryIO, Optional

from tony_provider.runtime.storage import errors, uris
from tony_provider.runtime.storage.base import (
    PRIVATE_DIRECTORY,
    PRIVATE_FILE,
    Body,
    FileStatus,
    Range,
    Source,
    Storage,
)

SINGLE_PUT = 8 << 20  # bytes; longer writes are multi-part uploads

_TIMEOUTS = (TimeoutError, socket.timeout, asyncio.TimeoutError)  # the same class since Python 3.11
_ERRORS: list[tuple[type[BaseException], type[errors.StorageError]]] = [
    (FileNotFoundError, errors.StorageNotFound),
    (FileExistsError, errors.StorageExists),
    (IsADirectoryError, errors.StorageIsADirectory),
    (NotADirectoryError, errors.StorageNotADirectory),
    (PermissionError, errors.StoragePermissionDenied),
    *((kind, errors.StorageTimeout) for kind in _TIMEOUTS),
    (ConnectionError, errors.StorageUnreachable),
    (NotImplementedError, errors.StorageUnsupported),
]
_MODIFIED_KEYS = ("LastModified", "last_modified", "mtime", "updated", "modified", "created")
_CHECKSUM_KEYS = ("md5Hash", "crc32c", "ETag", "etag")


class FsspecStorage(Storage):
    """Storage on a store with an fsspec driver.

    OSErrors, timeouts and NotImplementedErrors of the driver become StorageErrors. All its other errors are raised
    unchanged. The driver determines the deadlines.
    """

    renames_at_once = False

    def __init__(self, scheme: str) -> None:
        self.scheme = scheme
        self._fs = _driver(scheme)

    def status(self, uri: str) -> FileStatus:
        with _translated(uri, "get the status of"):
            return self._status(uri, self._fs.info(self._path(uri)))

    def list(self, uri: str) -> list[FileStatus]:
        path = self._path(uri)
        with _translated(uri, "list"):
            if not self._fs.isdir(path):
                if self._fs.exists(path):
                    raise errors.StorageNotADirectory(uri, "list", "it is a file")
                raise errors.StorageNotFound(uri, "list", "no such directory")
            entries = self._fs.ls(path, detail=True)
            found = [self._status(uris.join(uri, _name(entry)), entry) for entry in entries if _name(entry)]
        # Some drivers list an object that marks the directory itself. Leave this object out.
        return sorted((s for s in found if s.path != str(uris.parse(uri))), key=lambda status: status.name)

    def open_read(self, uri: str, *, offset: int = 0, length: Optional[int] = None) -> BinaryIO:
        path = self._path(uri)
        with _translated(uri, "read"):
            if self._fs.isdir(path):
                raise errors.StorageIsADirectory(uri, "read", "it is a directory")
            file = self._fs.open(path, "rb")
            size = int(self._fs.size(path) or 0)
            start = min(offset, size)
            file.seek(start)
        return io.BufferedReader(Range(file, size - start if length is None else min(length, size - start)))

    def write(
        self,
        uri: str,
        source: Source,
        *,
        overwrite: bool = False,
        permission: int = PRIVATE_FILE,
    ) -> int:
        path = self._path(uri)
        with _translated(uri, "write"):
            if self._fs.isdir(path):
                raise errors.StorageIsADirectory(uri, "write", "it is a directory")
            if not overwrite and self._fs.exists(path):
                raise errors.StorageExists(uri, "write", "it exists already")
            self._check_parents(uri)
            self._fs.makedirs(self._path(uris.parent(uri)), exist_ok=True)
        body = Body(source)
        chunks = body.chunks()
        beginning = _take(chunks, SINGLE_PUT)
        with _translated(uri, "write"):
            if len(beginning) <= SINGLE_PUT:
                self._fs.pipe_file(path, beginning, mode="overwrite" if overwrite else "create")
            else:
                self._stream(path, itertools.chain([beginning], chunks))
        return body.given

    def rename(self, source: str, target: str, *, overwrite: bool = False) -> None:
        source_path, target_path = self._path(source), self._path(target)
        if source_path == target_path:
            raise errors.StorageExists(source, "rename", "source and target are the same")
        with _translated(source, "rename", f" (to {target})"):
            from_directory = self._fs.isdir(source_path)
            if not from_directory and not self._fs.exists(source_path):
                raise errors.StorageNotFound(source, "rename", "there is no such file")
            self._check_target(target, from_directory, overwrite)
            # Move each file, because the driver's mv and rm treat *, ? and [ in names as patterns.
            base = self._fs._strip_protocol(source_path)
            for path in self._fs.find(source_path) if from_directory else [base]:
                self._fs.cp_file(path, target_path + path[len(base) :])
            self._remove_all(source_path)

    def make_directories(self, uri: str, *, permission: int = PRIVATE_DIRECTORY) -> None:
        with _translated(uri, "make directory"):
            self._check_parents(str(uris.parse(uri).child("x")))
            self._fs.makedirs(self._path(uri), exist_ok=True)

    def remove(self, uri: str, *, recursive: bool = False) -> bool:
        parsed = uris.parse(uri)
        path = self._path(uri)
        if parsed.path == "/":
            raise errors.StorageInvalidPath(uri, "remove", "this is the root of the store")
        with _translated(uri, "remove"):
            if not self._fs.exists(path):
                return False
            if not recursive and self._fs.isdir(path) and self._fs.ls(path, detail=False):
                raise errors.StorageNotEmpty(uri, "remove", "the directory is not empty")
            self._remove_all(path)
        return True

    def checksum(self, uri: str) -> Optional[str]:
        """Return the checksum that the driver reports: entity tag (S3, Azure), MD5 or CRC32C (Google)."""
        with _translated(uri, "get the checksum of"):
            info = self._fs.info(self._path(uri))
        known = (f"{key}:{value}" for key in _CHECKSUM_KEYS if isinstance(value := info.get(key), str) and value)
        return next(known, None)

    def close(self) -> None:
        """Do nothing: fsspec shares and caches drivers."""

    def _path(self, uri: str) -> str:
        """Return the form of a URI that the driver expects: bucket and key, without the scheme.

        Characters that are special for fsspec have no effect.
        """
        parsed = uris.parse(uri)
        if parsed.scheme != self.scheme:
            raise errors.StorageInvalidPath(uri, "use", f"this store's URIs begin with {self.scheme}://")
        self._fs.invalidate_cache()
        return parsed.authority + parsed.path

    def _status(self, uri: str, info: Mapping[str, Any]) -> FileStatus:
        is_directory = info["type"] == "directory"
        return FileStatus(
            path=str(uris.parse(uri)),
            size=0 if is_directory else int(info.get("size") or 0),
            modified_ms=_modified_ms(info),
            is_directory=is_directory,
            owner="",
            permission=None,
        )

    def _check_parents(self, uri: str) -> None:
        parsed = uris.parse(uri)
        while parsed.path != "/":
            parsed = parsed.parent
            if parsed.path != "/" and self._fs.isfile(self._path(str(parsed))):
                raise errors.StorageNotADirectory(uri, "make", f"{parsed} is a file")

    def _check_target(self, target: str, from_directory: bool, overwrite: bool) -> None:
        path = self._path(target)
        if not self._fs.exists(path):
            return
        if self._fs.isdir(path):
            if not from_directory:
                raise errors.StorageIsADirectory(target, "rename to", "it is a directory")
            if not overwrite or self._fs.ls(path, detail=False):
                raise errors.StorageNotEmpty(target, "rename to", "it is a directory")
            self._fs.rmdir(path)
        elif not overwrite or from_directory:
            raise errors.StorageExists(target, "rename to", "it exists already")
        else:
            self._fs.rm_file(path)

    def _remove_all(self, path: str) -> None:
        if not self._fs.isdir(path):
            self._fs.rm_file(path)
            return
        found = self._fs.find(path, withdirs=True, detail=True)
        if not glob.has_magic(path + "".join(found)):
            self._fs.rm(path, recursive=True)  # one request removes many files
            return
        for child, info in sorted(found.items(), reverse=True):
            if info["type"] != "directory":
                self._fs.rm_file(child)
            elif child != path:
                self._fs.rmdir(child)
        if self._fs.isdir(path):
            self._fs.rmdir(path)

    def _stream(self, path: str, chunks: Iterator[bytes]) -> None:
        file = self._fs.open(path, "wb", block_size=SINGLE_PUT)
        try:
            for chunk in chunks:
                file.write(chunk)
        except BaseException:
            file.discard()
            if isinstance(file, importlib.import_module("fsspec.spec").AbstractBufferedFile):
                file.closed = True  # prevents that a later close commits the bytes sent so far
            else:
                file.close()
                self._fs.rm_file(path)
            raise
        file.close()


def _driver(scheme: str) -> Any:
    try:
        return importlib.import_module("fsspec").filesystem(scheme, use_listings_cache=False)
    except (ImportError, ValueError) as error:
        raise errors.StorageUnsupported(
            f"{scheme}://", "use", str(error), f"install fsspec and its driver for {scheme} on this machine"
        ) from error


def _name(entry: Mapping[str, Any]) -> str:
    return str(entry["name"]).rstrip("/").rsplit("/", 1)[-1]


def _modified_ms(info: Mapping[str, Any]) -> int:
    """Return the modification time in epoch ms, or 0 if the driver does not report it (directories)."""
    for key in _MODIFIED_KEYS:
        value = info.get(key)
        if isinstance(value, str):
            try:
                value = datetime.fromisoformat(value.replace("Z", "+00:00"))
            except ValueError:  # not an ISO 8601 date
                continue
        if isinstance(value, datetime):
            return round(value.timestamp() * 1000)
        if isinstance(value, (int, float)):
            return round(value * 1000)
    return 0


def _take(chunks: Iterator[bytes], at_least: int) -> bytes:
    """Read and return chunks until they have more than ``at_least`` bytes, or until the chunks end."""
    beginning = bytearray()
    for chunk in chunks:
        beginning += chunk
        if len(beginning) > at_least:
            break
    return bytes(beginning)


@contextmanager
def _translated(uri: str, operation: str, detail: str = "") -> Iterator[None]:
    try:
        yield
    except errors.StorageError:
        raise
    except (OSError, NotImplementedError, *_TIMEOUTS) as error:
        kind = next((ours for theirs, ours in _ERRORS if isinstance(error, theirs)), errors.StorageError)
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            kind = errors.StorageNoSpace
        raise kind(uri, operation, f"{error}{detail}") from error
