"""Storage on S3 and S3-compatible object stores, by the library obstore.

obstore is imported when such a store is opened, because only few jobs use object stores. Object stores guarantee less
than HDFS and local disk:

- A write is one PUT, or a multi-part upload, and appears atomically. An interrupted upload leaves invisible parts,
  which a lifecycle rule of the bucket can remove.
- Without ``overwrite``, only a write of at most ``SINGLE_PUT`` bytes is exclusive. For longer writes, the file's
  existence is checked before the write, so several concurrent writers may succeed.
- A rename is a copy and a removal of each file, and is not atomic.
- Directories exist only as long as they contain files, and a file may have the name of a directory. Files have no
  permissions and owners.
"""

from __future__ import annotations

import importlib
import io
import itertools
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, BinaryIO, Optional

from tony_provider.runtime.common.network import web_address
from tony_provider.runtime.storage import errors, uris
from tony_provider.runtime.storage.base import PRIVATE_DIRECTORY, PRIVATE_FILE, Body, FileStatus, Source, Storage

SCHEMES = ("s3", "s3a")
PACKAGE = "obstore"
ACCESS_KEY, ENDPOINT = "AWS_ACCESS_KEY_ID", "AWS_ENDPOINT_URL"
SECRET_VARIABLES = (ACCESS_KEY, "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")  # some programs read only one of them
VARIABLES = (*SECRET_VARIABLES, ENDPOINT, *REGION_VARIABLES)
"""Environment variables with the access to an object store. Without an access key, the node's own access is used."""


def overridden(variables: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Merge a job's own variables. If they contain an access key, drop all other secrets."""
    kept = {name: value for name, value in variables.items() if not (ACCESS_KEY in own and name in SECRET_VARIABLES)}
    return {**kept, **own}


def _without_environment(config: Mapping[str, str]) -> dict[str, str]:
    """Return the configuration with values for variables of this process that obstore would also read."""
    found = {**config, **({"AWS_SKIP_SIGNATURE": "false"} if ACCESS_KEY in config else {})}
    if ENDPOINT in config and sys.version_info >= (3, 10):  # older versions of obstore do not know this variable
        found["AWS_ENDPOINT_URL_S3"] = config[ENDPOINT]
    return found


def _login(config: Mapping[str, str]) -> dict[str, Any]:
    """Return arguments of a store by which an access key is used without the variables of this process."""
    if ACCESS_KEY not in config:
        return {}
    key, secret, token = (config.get(name) for name in SECRET_VARIABLES)
    login = {"access_key_id": key, "secret_access_key": secret, "token": token, "expires_at": None}
    return {"credential_provider": lambda: login}


SINGLE_PUT = 8 << 20  # bytes; longer writes are multi-part uploads
_AT_ONCE = 1  # parts of a file that are sent concurrently, because executors have little memory
_SINGLE_GET = 2 << 20  # bytes
_MOST_PARTS = 9_000  # of a file; the limit of S3 is 10,000
_COPY_TIMEOUT = "1800s"  # S3 answers at the end of a copy
_LARGEST_COPY = 5 << 30  # bytes; the limit of S3 for a copy on the server
# Characters that obstore for Python 3.9 encodes wrongly in listings.
_QUOTED = re.compile(r"[^ !$&-)+-;=@-Z_a-z]")
_LISTED = 1000  # files to remove with one request
_CLIENT = {"connect_timeout": "5s", "timeout": "60s"}  # the second limit includes the transfer of SINGLE_PUT bytes
_RETRY = {"max_retries": 4, "retry_timeout": timedelta(seconds=20)}


class ObjectStorage(Storage):
    """Storage on one bucket, by a store of obstore."""

    renames_at_once = False

    def __init__(self, uri: str, store: Any, copying: Any = None) -> None:
        """``uri``: any URI in the bucket. ``copying``: the store with a longer timeout, for copies on the server."""
        parsed = uris.parse(uri)
        self._root = f"{parsed.scheme}://{parsed.authority}/"
        self._store = store
        self._copying = copying or store

    @classmethod
    def open(cls, uri: str, variables: Mapping[str, str]) -> ObjectStorage:
        """Open the bucket of a URI. ``variables``: see ``VARIABLES``; other variables are ignored.

        Without an access key, obstore also reads the variables of this process. Sends no request. Raises
        StorageUnsupported if obstore is not installed, and StorageInvalidPath.
        """
        config = {name: variables[name] for name in VARIABLES if variables.get(name)}
        endpoint = config.get(ENDPOINT, "https://")
        try:
            if ENDPOINT in config:
                web_address(endpoint, "https://host:port")
            given = {"config": _without_environment(config), "retry_config": _RETRY, **_login(config)}
            client = {**_CLIENT, "allow_http": endpoint.startswith("http://")}
            bucket, s3_store = uris.parse(uri).authority, importlib.import_module(f"{PACKAGE}.store").S3Store
            store = s3_store(bucket, client_options=client, **given)
            copying = s3_store(bucket, client_options={**client, "timeout": _COPY_TIMEOUT}, **given)
        except ImportError as error:
            raise errors.StorageUnsupported(
                uri,
                "open",
                f"the package {PACKAGE} is missing",
                "on Airflow's workers, install tony-provider with the extra object-stores",
            ) from error
        except ValueError as error:
            raise errors.StorageInvalidPath(uri, "open", f"{ENDPOINT} cannot be used: {error}") from error
        return cls(uri, store, copying)

    def status(self, uri: str) -> FileStatus:
        path = self._path(uri)
        with _translated(uri, "get the status of"):
            if path:
                try:
                    return _status(uri, self._store.head(path))
                except FileNotFoundError:
                    pass  # it may be a directory
            if path and not next(iter(self._store.list(self._prefix(uri), chunk_size=1)), None):
                raise errors.StorageNotFound(uri, "get the status of", "there is no such file or directory")
        return _status(uri, None)

    def list(self, uri: str) -> list[FileStatus]:
        path = self._path(uri)
        with _translated(uri, "list"):
            found = self._store.list_with_delimiter(self._prefix(uri) or None)
            if path and not found["objects"] and not found["common_prefixes"]:
                if not self.status(uri).is_directory:
                    raise errors.StorageNotADirectory(uri, "list", "it is a file")
                return []  # an object that marks the directory itself
        # A directory hides a file with the same name.
        entries = {each["path"]: each for each in found["objects"] if each["path"] != path}
        entries.update(dict.fromkeys(found["common_prefixes"]))
        children = [_status(self._root + each.strip("/"), entry) for each, entry in entries.items()]
        return sorted(children, key=lambda status: status.name)

    def open_read(self, uri: str, *, offset: int = 0, length: Optional[int] = None) -> BinaryIO:
        path, status = self._path(uri), self.status(uri)
        if status.is_directory:
            raise errors.StorageIsADirectory(uri, "read", "it is a directory")
        start = min(offset, status.size)
        end = status.size if length is None else min(start + length, status.size)
        return io.BufferedReader(_Reader(self._store, uri, path, start, end), max(1, min(_SINGLE_GET, end - start)))

    def write(
        self,
        uri: str,
        source: Source,
        *,
        overwrite: bool = False,
        permission: int = PRIVATE_FILE,
    ) -> int:
        path = self._path(uri)
        body = Body(source)
        chunks = body.chunks()
        beginning = _take(chunks, SINGLE_PUT)
        with _translated(uri, "write"):
            if len(beginning) <= SINGLE_PUT:
                mode = "overwrite" if overwrite else "create"
                self._store.put(path, beginning, mode=mode, use_multipart=False)
                return body.given
            if not overwrite and self.exists(uri):
                raise errors.StorageExists(uri, "write", "it exists already")
            whole = itertools.chain([beginning], chunks)
            del beginning  # so that it is freed when it was sent
            self._stream(uri, whole, body.size)
        return body.given

    def rename(self, source: str, target: str, *, overwrite: bool = False) -> None:
        if self._path(source) == self._path(target):
            raise errors.StorageExists(source, "rename", "source and target are the same")
        status = self.status(source)
        if (status.is_directory or not overwrite) and self.exists(target):
            kind = errors.StorageNotEmpty if status.is_directory else errors.StorageExists
            raise kind(target, "rename to", "it exists already")
        if not status.is_directory:
            self._move(source, target, status.size)
            return
        for path in self._paths_below(source):
            file = self._root + path
            self._move(file, uris.join(target, path[len(self._path(source)) :]), self.status(file).size)

    def make_directories(self, uri: str, *, permission: int = PRIVATE_DIRECTORY) -> None:
        """Do nothing, because a directory exists as soon as it contains a file."""
        self._path(uri)

    def remove(self, uri: str, *, recursive: bool = False) -> bool:
        path = self._path(uri)
        if not path:
            raise errors.StorageInvalidPath(uri, "remove", "this is the root of the store")
        try:
            status = self.status(uri)
        except errors.StorageNotFound:
            return False
        if status.is_directory and not recursive:
            raise errors.StorageNotEmpty(uri, "remove", "the directory is not empty")
        # A file and a directory may have the same name.
        below = self._paths_below(uri) if recursive else iter(())
        found = itertools.chain(below, [] if status.is_directory else [path])
        with _translated(uri, "remove"):
            while paths := [*itertools.islice(found, _LISTED)]:
                self._store.delete(paths)
        return True

    def checksum(self, uri: str) -> Optional[str]:
        """Return the entity tag of the store."""
        with _translated(uri, "get the checksum of"):
            return _checksum(self._store.head(self._path(uri)))

    def close(self) -> None:
        """Do nothing: obstore keeps no resources but idle connections."""

    def _path(self, uri: str) -> str:
        """Return the key of a URI in the bucket."""
        parsed = uris.parse(uri)
        if f"{parsed.scheme}://{parsed.authority}/" != self._root:
            raise errors.StorageInvalidPath(uri, "use", f"this store's URIs begin with {self._root}")
        return parsed.path[1:]

    def _prefix(self, uri: str) -> str:
        path = self._path(uri)
        if sys.version_info < (3, 10) and (found := _QUOTED.search(path)):
            why = f"obstore on Python 3.9 cannot list names with {found[0]!r}"
            raise errors.StorageInvalidPath(uri, "list", why, "use nodes with Python 3.10 or newer, or another name")
        return path

    def _paths_below(self, uri: str) -> Iterator[str]:
        with _translated(uri, "list"):
            for found in self._store.list(self._prefix(uri), chunk_size=_LISTED):
                for each in found:
                    yield each["path"]

    def _stream(self, uri: str, chunks: Iterator[bytes], size: Optional[int]) -> None:
        """Write a file in parts. If an error occurs, the file is not closed, and so it does not appear.

        ``size``: number of bytes, or None if it is not known. Without it, a file may have ``_MOST_PARTS`` of the usual
        parts.
        """
        open_writer = importlib.import_module(PACKAGE).open_writer
        part = max(SINGLE_PUT, -(-(size or 0) // _MOST_PARTS))
        file = open_writer(self._store, self._path(uri), buffer_size=part, max_concurrency=_AT_ONCE)
        for chunk in chunks:
            with _translated(uri, "write", of_writer=True):
                file.write(chunk)
        with _translated(uri, "write", of_writer=True):
            file.close()

    def _move(self, source: str, target: str, size: int) -> None:
        if size > _LARGEST_COPY:
            with self.open_read(source) as file:
                self._stream(target, iter(partial(file.read, _SINGLE_GET), b""), size)
        with _translated(source, "rename"):
            if size <= _LARGEST_COPY:
                self._copying.copy(self._path(source), self._path(target))
            self._store.delete(self._path(source))


class _Reader(io.RawIOBase):
    """Stream of the bytes [``at``, ``end``) of a file. Each read is a request."""

    def __init__(self, store: Any, uri: str, path: str, at: int, end: int) -> None:
        self._store, self._uri, self._path = store, uri, path
        self._at, self._end = at, end

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        size = min(len(buffer), _SINGLE_GET, self._end - self._at)
        if size > 0:
            with _translated(self._uri, "read"):
                data = memoryview(self._store.get_range(self._path, start=self._at, length=size))
            size = len(data)
            buffer[:size] = data
            self._at += size
        return size

    def readall(self) -> bytes:
        return b"".join(iter(lambda: self.read(_SINGLE_GET) or b"", b""))


def _status(uri: str, found: Optional[Mapping[str, Any]]) -> FileStatus:
    """Return the status of a file that the store describes, or of a directory if ``found`` is None."""
    path = str(uris.parse(uri))
    if found is None:
        return FileStatus(path, size=0, modified_ms=0, is_directory=True, owner="", permission=None)
    modified_ms = round(found["last_modified"].timestamp() * 1000)
    size, checksum = found["size"], _checksum(found)
    return FileStatus(path, size, modified_ms, is_directory=False, owner="", permission=None, checksum=checksum)


def _checksum(found: Mapping[str, Any]) -> Optional[str]:
    tag = found.get("e_tag")
    return f"ETag:{tag}" if tag else None


def _take(chunks: Iterator[bytes], at_least: int) -> bytes:
    """Read and return chunks until they have more than ``at_least`` bytes, or until the chunks end."""
    beginning = bytearray()
    for chunk in chunks:
        beginning += chunk
        if len(beginning) > at_least:
            break
    return bytes(beginning)


_ANSWER = re.compile(r"status code: (\d+)")
_CODE, _MESSAGE = re.compile(r"<Code>(\w+)</Code>|\(code: (\w+)\)"), re.compile(r"<Message>([^<]*)</Message>")
_REQUEST = re.compile(r"performing \w+ (\w+://[^/ ?]+).* - (.*)", re.DOTALL)
_EMPTY_NAME = re.compile(r"(?i)invalid path|empty path segment")
_CREDENTIAL_CODES = ("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken")
_CREDENTIAL_SERVERS = ("169.254.169.254", "169.254.170.2", "AssumeRole")
_CHECK_KEY = "check the access key in the AWS connection that `aws_conn_id` of the tony connection names"


@contextmanager
def _translated(uri: str, operation: str, *, of_writer: bool = False) -> Iterator[None]:
    """Convert obstore's errors to short StorageErrors. ``of_writer``: its file object, which raises OSErrors."""
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError if of_writer else FileNotFoundError) or type(error).__module__.startswith(PACKAGE):
            raise _error(uri, operation, type(error).__name__, str(error)) from None
        if isinstance(error, ValueError) and "parse path" in str(error):
            raise errors.StorageInvalidPath(uri, operation, str(error)) from None
        raise


def _error(uri: str, operation: str, kind: str, text: str) -> errors.StorageError:
    text = text.partition("\n\nDebug source")[0]
    answer, code, message = (pattern.search(text) for pattern in (_ANSWER, _CODE, _MESSAGE))
    name = next(filter(None, code.groups())) if code else ""
    problem = ": ".join(filter(None, [name, message[1] if message else ""])) or f"HTTP {answer[1]}" if answer else text
    if any(server in text for server in _CREDENTIAL_SERVERS):
        why = "no access key was given, and this machine has no role of its own"
        return errors.StorageAuthError(uri, operation, why, "set `aws_conn_id` in the tony connection")
    if _EMPTY_NAME.search(text):
        return errors.StorageInvalidPath(uri, operation, "a file's name has an empty part (//), which obstore rejects")
    if name == "NoSuchBucket":
        return errors.StorageInvalidPath(uri, operation, "the bucket does not exist")
    if kind == FileNotFoundError.__name__:
        return errors.StorageNotFound(uri, operation, "there is no such file")
    if kind in ("AlreadyExistsError", "PreconditionError"):
        return errors.StorageExists(uri, operation, "it exists already")
    if (answer and answer[1] in ("401", "403")) or name == "AccessDenied":
        denied = errors.StorageAuthError if name in _CREDENTIAL_CODES else errors.StoragePermissionDenied
        return denied(uri, operation, problem, _CHECK_KEY)
    if answer and answer[1] < "500":
        return errors.StorageError(uri, operation, problem)
    if not answer and (request := _REQUEST.search(text)):
        problem = f"a request to {request[1]} failed: {request[2]}"
    return errors.StorageUnreachable(uri, operation, problem)
