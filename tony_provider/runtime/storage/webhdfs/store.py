"""Storage on HDFS over WebHDFS, with a cache of directories that are known to exist."""

from __future__ import annotations

import base64
import io
import logging
import re
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, BinaryIO, Optional, TypeVar

import attrs

from tony_provider.runtime.common.text import is_writable
from tony_provider.runtime.storage import errors, uris
from tony_provider.runtime.storage.base import (
    CHUNK,
    PRIVATE_DIRECTORY,
    PRIVATE_FILE,
    Body,
    FileStatus,
    QuotaRoom,
    Readers,
    Right,
    SharedFiles,
    Source,
    Storage,
    temporary_name,
)
from tony_provider.runtime.storage.uris import Uri
from tony_provider.runtime.storage.webhdfs.datanodes import DataNodes, RemoteFile
from tony_provider.runtime.storage.webhdfs.namenodes import Call, NameNodes
from tony_provider.runtime.storage.webhdfs.transport import (
    HDFS_REPORTS,
    Deadline,
    Negotiate,
    Transport,
    WebHdfsAnswer,
    WebHdfsConfig,
)

log = logging.getLogger(__name__)


_MOST = 10_000


class KnownDirectories:
    """Directories that this process has created or found. Other processes may have removed them since."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._paths: set[str] = set()

    def has(self, directory: Uri) -> bool:
        with self._lock:
            return directory.path in self._paths

    def add(self, directory: Uri) -> None:
        with self._lock:
            if len(self._paths) >= _MOST:
                self._paths.clear()
            self._paths.add(directory.path)

    @contextmanager
    def without(self, removed: Uri) -> Iterator[None]:
        """Context manager for the removal of a directory: before and after it, forget all known directories there."""
        self.forget(removed)
        try:
            yield
        finally:
            self.forget(removed)

    def forget(self, removed: Uri) -> None:
        """Forget a directory and everything below it."""
        below = removed.path.rstrip("/") + "/"
        with self._lock:
            self._paths = {path for path in self._paths if path != removed.path and not path.startswith(below)}


T = TypeVar("T")

SCHEMES = ("hdfs", "webhdfs", "swebhdfs")
_ROOT = Uri("hdfs", "", "/")  # for requests about the whole file system
_MAKING_TRIES = 2  # attempts to write into a directory, because another process may remove the new directory
_CONTENT = "user.tony.content"  # attribute of an empty file: the content of a record, compressed by zlib
_MOST_CONTENT = 12_000  # bytes, compressed; HDFS limits an attribute to 16 KiB by default
_MOST_UNPACKED = 16 << 20  # bytes; 12,000 bytes expand to at most 12 MB, but another program may have set the attribute
_REPLACING_TRIES = 3  # attempts to replace a file through HttpFS, because other processes may replace it too
_MOUNTED = re.compile(r"is a mount point|there are mount points")  # errors of routers
_JOINED_AT_ONCE = 20  # paths in one request, because NameNodes accept URLs of 64 KiB
_CLEAN_UP_TIMEOUT = 10.0  # seconds; short, because the caller of a failed write waits for it


class WebHdfsStorage(Storage):
    """Storage on HDFS: ``hdfs://<authority>/path``.

    The servers are those of the configuration, whatever the authority of a URI. Results have the requested authority.

    Authentication uses the first available item of this list: ``delegation_token`` (URL-safe string), Kerberos through
    ``negotiate`` (its errors are raised unchanged), ``config.user``.

    ``shared``: files that other users may read as soon as the files appear.
    ``others``: storages of other HDFS file systems, by authority. URIs with these authorities are passed to these
    storages. ``close`` also closes these storages.
    """

    def __init__(
        self,
        config: WebHdfsConfig,
        *,
        delegation_token: Optional[str] = None,
        negotiate: Optional[Negotiate] = None,
        shared: Optional[SharedFiles] = None,
        others: Optional[Mapping[str, WebHdfsStorage]] = None,
    ) -> None:
        self.config = config
        self._others = {name.lower(): each for name, each in (others or {}).items()}
        self._shared = shared
        self._cannot_share = False
        self._has_attributes = True  # until HDFS rejects one
        self._outside_zones: set[Uri] = set()  # directories; only an empty directory can become an encryption zone
        self._joins: Optional[bool] = None  # whether HDFS can concatenate files; None if unknown
        self._httpfs: Optional[bool] = None  # whether the server is HttpFS, see ``_is_httpfs``; None if unknown
        transport = Transport(config)
        self._namenodes = NameNodes(transport, delegation_token, negotiate)
        self._datanodes = DataNodes(transport, self._namenodes)
        self._known = KnownDirectories()

    def status(self, uri: str) -> FileStatus:
        parsed = self._parse(uri)
        try:
            return self._ask(
                Call("GET", "GETFILESTATUS", parsed, "get the status of"),
                lambda json: _file_status(parsed, json["FileStatus"]),
            )
        except errors.StorageNotADirectory as error:  # a parent of the path is a file
            raise errors.StorageNotFound(uri, "get the status of", error.problem) from error

    def list(self, uri: str) -> list[FileStatus]:
        parsed = self._parse(uri)
        found = self._ask(
            Call("GET", "LISTSTATUS", parsed, "list"),
            lambda json: [
                _file_status(parsed.child(entry["pathSuffix"]), entry) for entry in json["FileStatuses"]["FileStatus"]
            ],
        )
        if len(found) == 1 and not found[0].name:  # WebHDFS lists a file as one entry without a name
            raise errors.StorageNotADirectory(uri, "list", "it is a file")
        return sorted(found, key=lambda status: status.name)

    def open_read(self, uri: str, *, offset: int = 0, length: Optional[int] = None) -> BinaryIO:
        # HDFS rejects reads after the end of a file, and returns the whole file for a length of 0.
        status = self.status(uri)
        if status.is_directory:
            raise errors.StorageIsADirectory(uri, "read", "it is a directory")
        if status.size == 0:
            if content := self._attribute(uri):
                return io.BytesIO(content[offset:][:length])
            status = self.status(uri)  # an ordinary file may have replaced a record in between
        if (offset > 0 and offset >= status.size) or length == 0:
            return io.BytesIO()
        call = Call("GET", "OPEN", self._parse(uri), "read")
        try:
            opened = io.BufferedReader(RemoteFile(self._at(call.uri)._datanodes, call, offset, length), CHUNK)
            if opened.peek() or not status.size:
                return opened
            opened.close()
        except errors.StorageError:
            if self.status(uri).size:
                raise
        return io.BytesIO(self._attribute(uri)[offset:][:length])  # a record has replaced an ordinary file in between

    def write(
        self,
        uri: str,
        source: Source,
        *,
        overwrite: bool = False,
        permission: int = PRIVATE_FILE,
    ) -> int:
        target, body = self._parse(uri), Body(source)
        self._check_writable(target, body, overwrite)
        self._write(target, body, lambda _: None, overwrite=overwrite, permission=permission)
        return body.given

    def write_record(self, uri: str, data: bytes, *, overwrite: bool = False) -> bool:
        target, content = self._parse(uri), zlib.compress(data)
        hdfs = self._at(target)
        if hdfs._has_attributes and len(content) <= _MOST_CONTENT:
            written = partial(hdfs._set_attribute, content)
            try:
                if overwrite and hdfs._httpfs and self._is_record(target):
                    with suppress(errors.StorageNotFound):  # removed meanwhile
                        written(target)  # HttpFS cannot replace the file in one step
                        return True
                self._write(target, Body(b""), written, overwrite=overwrite, permission=PRIVATE_FILE)
            except _NoAttributesError as error:
                log.info("writing small records as ordinary files: %s", error)
                hdfs._has_attributes = False
            else:
                return True
        return super().write_record(uri, data, overwrite=overwrite)

    def open_record(self, listed: FileStatus) -> BinaryIO:
        content = b"" if listed.size else self._attribute(listed.path)
        return io.BytesIO(content) if content else super().open_record(listed)

    def _set_attribute(self, content: bytes, uri: Uri) -> None:
        """Set the content of an empty file.

        Raises _NoAttributesError if the server does not support attributes, or if the file is in an encryption zone,
        because HDFS does not encrypt attributes.
        """
        if uri.parent not in self._outside_zones:
            about = Call("GET", "GETFILESTATUS", uri, "get the status of")
            if self._ask(about, lambda json: bool(json["FileStatus"].get("encBit"))):
                raise _NoAttributesError(f"{uri} is in an encryption zone")
            self._outside_zones.add(uri.parent)
        value = "0s" + base64.b64encode(content).decode()
        params = {"xattr.name": _CONTENT, "xattr.value": value, "flag": "CREATE,REPLACE"}
        try:
            self._answer(Call("PUT", "SETXATTR", uri, "set the content of", params))
        except (errors.StorageNotFound, *errors.STORE_ERRORS):
            raise
        except errors.StorageError as error:
            raise _NoAttributesError(str(error)) from error

    def _attribute(self, uri: str) -> bytes:
        """Return the content that ``write_record`` has stored in an empty file, or no bytes. Raises StorageError."""
        call = Call("GET", "GETXATTRS", self._parse(uri), "read", {"encoding": "base64"})
        try:
            return self._ask(call, _content)
        except errors.StorageUnsupported:
            return b""

    def _write(
        self, target: Uri, body: Body, finish: Callable[[Uri], object], *, overwrite: bool, permission: int
    ) -> None:
        """Write a temporary file, call ``finish`` with its URI, and rename it to ``target``."""
        tried: list[Uri] = []
        few: list[bool] = []  # for each attempt: whether one replica was requested

        def create() -> Call:
            tried.append(target.parent.child(temporary_name()))
            # A parent that CREATE creates could be listed by other users. So ``make_directories`` creates the parent.
            params = {"overwrite": "false", "createparent": "false", "permission": f"{permission:o}"}
            few.append(self._at(target)._datanodes.silent.may_block_writes and self._replicates(target))
            if few[-1]:
                params["replication"] = "1"
            return Call("PUT", "CREATE", tried[-1], f"write {target} via the temporary file", params)

        try:
            self._send(create, body, target.parent)
            if few[-1]:
                self._replicate(tried[-1])
            self._share(tried[-1], target)
            finish(tried[-1])
            self._rename_written(tried[-1], target, overwrite=overwrite)
            del tried[-1]
        finally:
            for temporary in tried:
                self._clean_up(temporary)

    def can_join(self, directory: str) -> bool:
        """See Storage. HDFS rejects this in encryption zones, and gateways may not support it."""
        hdfs = self._at(self._parse(directory))
        if hdfs._joins is None:
            first, second = (uris.join(directory, temporary_name()) for _ in range(2))
            try:
                for each in (first, second):
                    self.write(each, b"0")
                self.join(first, [second])
                hdfs._joins = True
            except errors.STORE_ERRORS:
                raise
            except errors.StorageError as error:
                log.info("sending large files in one stream: %s", error)
                hdfs._joins = False
            finally:
                for each in (first, second):
                    self._clean_up(self._parse(each))
        return hdfs._joins

    def join(self, uri: str, others: Sequence[str]) -> None:
        paths, target = [self._parse(each).path for each in others], self._parse(uri)
        for number in range(0, len(paths), _JOINED_AT_ONCE):
            sources = ",".join(paths[number : number + _JOINED_AT_ONCE])
            call = Call("POST", "CONCAT", target, "append files to", {"sources": sources})
            try:
                self._answer(call)
            except errors.STORE_ERRORS:
                raise
            except errors.StorageError as error:
                if isinstance(error, errors.StorageNotFound) and call.perhaps_done:
                    continue
                self._at(target)._joins = False  # for example, HDFS refuses to join files that are in a snapshot
                raise

    def rename(self, source: str, target: str, *, overwrite: bool = False) -> None:
        parsed, new = self._parse(source), self._parse(target)
        if self._at(parsed) is not self._at(new):
            raise errors.StorageInvalidPath(source, "rename", f"{target} is on another HDFS")
        hdfs = self._at(parsed)
        hdfs._httpfs = hdfs._is_httpfs()
        with hdfs._known.without(parsed):
            self._rename(parsed, new, overwrite=overwrite, what="rename")

    def rename_target_problem(self, uri: str) -> str:
        """See Storage.

        Requests a rename to a path below the source, which HDFS always rejects. A router's error names mount points.
        """
        parsed = self._parse(uri)
        params = {"destination": parsed.child(temporary_name()).path, "renameoptions": "NONE"}
        try:
            self._answer(Call("PUT", "RENAME", parsed, "check", params))
        except errors.STORE_ERRORS:
            raise
        except errors.StorageError as error:
            if _MOUNTED.search(error.problem):
                return (
                    "it is or contains a mount point, which the HDFS router cannot move; name a directory below the "
                    "mount point"
                )
        return ""

    def make_directories(self, uri: str, *, permission: int = PRIVATE_DIRECTORY) -> None:
        parsed = self._parse(uri)
        call = Call("PUT", "MKDIRS", parsed, "make directory", {"permission": f"{permission:o}"})
        try:
            made = self._ask(call, _boolean)
        except errors.StorageExists as error:
            raise errors.StorageNotADirectory(uri, call.what, error.problem) from error
        if not made:
            raise errors.StorageError(uri, call.what, "HDFS failed without giving a reason")
        self._at(parsed)._known.add(parsed)

    def remove(self, uri: str, *, recursive: bool = False) -> bool:
        parsed = self._parse(uri)
        if parsed.path == "/":
            raise errors.StorageInvalidPath(uri, "remove", "this is the root of the store")
        with self._at(parsed)._known.without(parsed):
            return self._remove(parsed, recursive=recursive)

    def share(self, uri: str, readers: Readers, right: Right) -> None:
        # This replaces the whole access list, including entries inherited from the parent's default access list.
        others = right.value if readers.everybody else "---"
        owner = "rw-" if right is Right.READ else "rwx"
        entries = [f"user::{owner}", *readers.named(right), f"group::{others}", f"other::{others}"]
        self._set_entries("SETACL", uri, "grant read access to", entries)

    def let_pass(self, status: FileStatus, readers: Readers) -> None:
        group = (status.permission or 0) >> 3 & 0o7  # if there is an access list, these bits are the mask
        entries = readers.named(Right.PASS)
        if readers.everybody:
            # For users in the directory's group, HDFS checks the entry ``group`` and ignores ``other``.
            entries = [f"other::{Right.PASS.value}", *([] if group else [f"group::{Right.PASS.value}"])]
        else:
            # Without a mask entry, HDFS would compute a wider mask, and admit users that the current mask excludes.
            entries.append(f"mask::{_written(group | 0o1)}")
        self._set_entries("MODIFYACLENTRIES", status.path, "grant access through", entries)

    def _set_entries(self, op: str, uri: str, what: str, entries: Sequence[str]) -> None:
        self._answer(Call("PUT", op, self._parse(uri), what, {"aclspec": ",".join(entries)}))

    def take_token(self, token: str, name: str = "") -> None:
        owner = self._others.get(name.lower()) if name else self
        if owner is not None:
            owner._namenodes.token = token

    @property
    def clock_ahead(self) -> Optional[float]:
        return self._namenodes.clock_ahead

    def close(self) -> None:
        for each in (self, *self._others.values()):
            each._namenodes.close()

    def checksum(self, uri: str) -> Optional[str]:
        """Return the result of ``GETFILECHECKSUM``: ``MD5-of-0MD5-of-512CRC32C:<hex>``.

        The result depends on the block and checksum sizes, unless ``dfs.checksum.combine.mode`` is ``COMPOSITE_CRC``.
        """
        call = Call("GET", "GETFILECHECKSUM", self._parse(uri), "get the checksum of")
        answer = self._at(call.uri)._datanodes.ask(call)
        return _understood(call, answer, lambda json: "{algorithm}:{bytes}".format_map(json["FileChecksum"]))

    def version(self, uri: str) -> Optional[str]:
        """Return the IDs of a file's blocks with their generation stamps.

        Only HDFS sets generation stamps, and a stamp changes with each write. Return None if the server, such as HttpFS
        or another gateway, does not list blocks.
        """
        call = Call("GET", "GET_BLOCK_LOCATIONS", self._parse(uri), "list the blocks of")
        with _if_supported(errors.StorageNotFound, errors.StorageUnreachable):
            return self._ask(call, lambda json: _blocks(json["LocatedBlocks"]))
        return None

    def quota_room(self, uri: str) -> Optional[QuotaRoom]:
        """Return the free space from ``GETQUOTAUSAGE``, which Hadoop before 3.3 and gateways may not support.

        HDFS counts each replica in a quota. Therefore, the free bytes are divided by the default replication.
        """
        parsed = self._parse(uri)
        with _if_supported(errors.StorageNotFound, errors.StorageUnreachable):
            usage = self._ask(Call("GET", "GETQUOTAUSAGE", parsed, "get the quota of"), _quota_usage)
            if usage is None or usage.bytes is None:
                return usage
            return attrs.evolve(usage, bytes=usage.bytes // self._replication(parsed))
        return None

    def _replication(self, uri: Uri) -> int:
        call = Call("GET", "GETSERVERDEFAULTS", attrs.evolve(uri, path="/"), "get the replication of")
        return self._ask(call, lambda json: max(1, int(json["FsServerDefaults"]["replication"])))

    def _replicates(self, uri: Uri) -> bool:
        """Return whether new files have more than one replica. Return False if the server does not report this."""
        with _if_supported(errors.StorageUnreachable):  # Hadoop 2 does not support this operation
            return self._replication(uri) > 1
        return False

    def _replicate(self, written: Uri) -> None:
        """Request the default number of replicas for a file that was written with one replica."""
        params = {"replication": str(self._replication(written))}
        try:
            self._answer(Call("PUT", "SETREPLICATION", written, "set the replication of", params))
        except errors.StorageError as error:
            log.warning("%s has only one replica, because the default replication could not be set: %s", written, error)

    def get_delegation_token(self, renewer: str) -> Optional[str]:
        """Return a token (URL-safe string, kind ``WEBHDFS delegation``) of the current user.

        Returns None on a cluster without Kerberos, because such a cluster issues no tokens. ``renewer``: short name of
        the user that may renew the token, such as the user of the ResourceManager.
        """
        call = Call("GET", "GETDELEGATIONTOKEN", _ROOT, "get a token for", {"renewer": renewer})
        return self._ask(call, lambda json: str(json["Token"]["urlString"]) if json["Token"] is not None else None)

    def renew_delegation_token(self, token: str) -> int:
        """Renew a token and return its new expiry in epoch ms. This process's user must be the token's renewer."""
        call = Call("PUT", "RENEWDELEGATIONTOKEN", _ROOT, "renew a token of", {"token": token})
        return self._ask(call, lambda json: int(json["long"]))

    def cancel_delegation_token(self, token: str) -> None:
        call = Call("PUT", "CANCELDELEGATIONTOKEN", _ROOT, "cancel a token of", {"token": token})
        self._namenodes.ask(call)

    def key_server(self) -> str:
        """Return the URI of the key server for this HDFS's encryption zones (``kms://…``).

        Returns an empty string if there is no key server, or if HDFS does not report it, as in Hadoop 2. Raises
        StorageUnreachable.
        """
        call = Call("GET", "GETSERVERDEFAULTS", _ROOT, "get the key server of")
        with _if_supported(errors.StorageUnreachable):
            return self._ask(call, lambda json: str(json["FsServerDefaults"].get("keyProviderUri") or ""))
        return ""

    def _parse(self, uri: str) -> Uri:
        parsed = uris.parse(uri)
        if parsed.scheme not in SCHEMES:
            raise errors.StorageInvalidPath(uri, "use", f"HDFS's URIs begin with {', '.join(SCHEMES)}")
        allowed = self._at(parsed).config.authorities
        if allowed and parsed.authority and parsed.authority not in allowed:
            raise errors.StorageInvalidPath(
                uri, "use", f"{parsed.authority} is not the cluster of the connection", f"use {allowed[0]}"
            )
        if not is_writable(parsed.path):
            raise errors.StorageInvalidPath(ascii(uri), "use", "names in HDFS must be valid UTF-8")
        return parsed

    def _ask(self, call: Call, read: Callable[[dict[str, Any]], T], deadline: Optional[Deadline] = None) -> T:
        return _understood(call, self._answer(call, deadline), read)

    def _answer(self, call: Call, deadline: Optional[Deadline] = None) -> WebHdfsAnswer:
        return self._at(call.uri)._namenodes.ask(call, deadline)

    def _at(self, uri: Uri) -> WebHdfsStorage:
        """Return the storage for a URI's authority: one of ``others``, or this storage by default."""
        return self._others.get(uri.authority.lower(), self)

    def _check_writable(self, target: Uri, body: Body, overwrite: bool) -> None:
        """Raise an error early if the target cannot be written. Skips small files, because the rename checks again."""
        if ":" in target.path:
            raise errors.StorageInvalidPath(str(target), "write", 'HDFS does not permit ":" in names')
        if target.path != "/" and body.size is not None and body.size <= CHUNK:
            return
        there = self._status_if_any(target)
        if there is not None and (there.is_directory or not overwrite):
            raise _in_the_way(target, there)

    def _status_if_any(self, uri: Uri) -> Optional[FileStatus]:
        try:
            return self.status(str(uri))
        except errors.StorageNotFound:
            return None

    def _send(self, create: Callable[[], Call], body: Body, directory: Uri) -> None:
        """Send all bytes to a new file in a directory. A missing directory is created."""
        hdfs = self._at(directory)
        for left in reversed(range(_MAKING_TRIES)):
            if not hdfs._known.has(directory):
                self.make_directories(str(directory))
            try:
                hdfs._datanodes.send(create, body)
            except errors.StorageNotFound as error:  # another process has removed the directory in the meantime
                hdfs._known.forget(directory)
                if not left or not body.available:
                    raise errors.StorageUnreachable(error.uri, error.operation, error.problem) from error
            else:
                return

    def _share(self, written: Uri, target: Uri) -> None:
        """Give readers access to the file ``written``, which becomes ``target``, if ``target`` is a shared file.

        A failure does not fail the write. Only the first failure is logged as a warning.
        """
        if self._at(target) is not self or self._shared is None or not self._shared.has(target):
            return
        try:
            self.share(str(written), self._shared.readers, Right.READ)
        except errors.StorageError as error:
            log.log(
                logging.DEBUG if self._cannot_share else logging.WARNING,
                "could not share %s, so only its owner can read it: %s",
                target,
                error,
            )
            self._cannot_share = True

    def _rename_written(self, written: Uri, target: Uri, *, overwrite: bool) -> None:
        try:
            self._rename(written, target, overwrite=overwrite, what=f"write {target} by renaming")
        except errors.StorageExists as error:
            there = self._status_if_any(target)
            raise error if there is None else _in_the_way(target, there) from error

    def _rename(self, source: Uri, target: Uri, *, overwrite: bool, what: str) -> None:
        hdfs = self._at(target)
        if hdfs._httpfs:
            return self._rename_plainly(source, target, overwrite=overwrite, what=what)
        # Without renameoptions, HDFS reports no errors, and moves the source into an existing target directory.
        params = {"destination": target.path, "renameoptions": "OVERWRITE" if overwrite else "NONE"}
        call = Call("PUT", "RENAME", source, what, params)
        try:
            answer = self._answer(call)
        except errors.StorageNotFound:
            if call.perhaps_done and self.exists(str(target)):
                return None
            raise
        hdfs._httpfs = bool(answer.body)  # HttpFS ignores renameoptions, and answers with a truth value
        if not answer.body:
            return None
        # Only files of ``_write`` get here, whose names are unique. A directory was the target if it contains the file.
        inside = target.child(source.name)
        if self.exists(str(inside)):
            self._rename_once(inside, source, what)
        elif _understood(call, answer, _boolean) or self._is_renamed(call, target):
            return None
        return self._rename_plainly(source, target, overwrite=overwrite, what=what)

    def _rename_plainly(self, source: Uri, target: Uri, *, overwrite: bool, what: str) -> None:
        """Rename through HttpFS, which replaces nothing. For a moment, readers find nothing at a replaced target."""
        for _ in range(_REPLACING_TRIES if overwrite else 1):
            aside = self._put_aside(source, target, overwrite=overwrite, what=what)
            renamed = False
            try:
                renamed = self._rename_once(source, target, what)
            finally:
                # The former file comes back, unless another process has meanwhile replaced it.
                if aside and (renamed or not self._rename_once(aside, target, what)):
                    self._clean_up(aside)
            if renamed:
                return
        raise self._why_not_renamed(source, target, what)

    def _put_aside(self, source: Uri, target: Uri, *, overwrite: bool, what: str) -> Optional[Uri]:
        """Rename a file that is to be replaced, and return its new URI. Remove an empty directory.

        Return None if nothing is left. Raises StorageExists, StorageNotEmpty.
        """
        there = self._status_if_any(target)
        if there is None:
            return None
        if source == target or not overwrite or there.is_directory != self.status(str(source)).is_directory:
            raise errors.StorageExists(str(source), what, f"{target} exists already")
        if there.is_directory:
            self._remove(target, recursive=False)
            return None
        aside = target.parent.child(temporary_name())
        return aside if self._rename_once(target, aside, what) else None

    def _rename_once(self, source: Uri, target: Uri, what: str) -> bool:
        """Send a rename without options. Return whether the source is at the target now."""
        call = Call("PUT", "RENAME", source, what, {"destination": target.path})
        try:
            return self._ask(call, _boolean) or self._is_renamed(call, target)
        except errors.StorageNotFound:
            return self._is_renamed(call, target)

    def _is_renamed(self, call: Call, target: Uri) -> bool:
        """Return whether an attempt of a rename whose answer was lost has succeeded."""
        return call.perhaps_done and not self.exists(str(call.uri)) and self.exists(str(target))

    def _is_httpfs(self) -> bool:
        """Return whether the server is HttpFS, which renames without options. Sends a request if this is unknown.

        Only HttpFS has the operation INSTRUMENTATION. It refuses the operation to users who are not administrators.
        """
        if self._httpfs is not None:
            return self._httpfs
        try:
            self._namenodes.ask(Call("GET", "INSTRUMENTATION", _ROOT, "identify the server of"))
        except errors.StorageUnsupported:
            return False
        except errors.STORE_ERRORS:
            raise
        except errors.StorageError as error:
            return error.problem.startswith(HDFS_REPORTS)  # otherwise a proxy has answered
        return True

    def _is_record(self, uri: Uri) -> bool:
        """Whether a file of ``write_record`` exists that has its content in an attribute."""
        there = self._status_if_any(uri)
        return bool(there and not there.is_directory and not there.size and self._attribute(str(uri)))

    def _why_not_renamed(self, source: Uri, target: Uri, what: str) -> errors.StorageError:
        for needed in (source, target.parent):
            if not self.exists(str(needed)):
                return errors.StorageNotFound(str(source), what, f"{needed} does not exist")
        if self.exists(str(target)):
            return errors.StorageExists(str(source), what, f"{target} exists already")
        return errors.StorageError(str(source), what, f"HDFS refused to rename it to {target} without giving a reason")

    def _remove(self, uri: Uri, *, recursive: bool, deadline: Optional[Deadline] = None) -> bool:
        call = Call("DELETE", "DELETE", uri, "remove", {"recursive": "true" if recursive else "false"})
        try:
            removed = self._ask(call, _boolean, deadline)
        except errors.StorageNotADirectory:  # a parent of the path is a file
            return False
        return removed or call.perhaps_done

    def _clean_up(self, temporary: Uri) -> None:
        try:
            self._remove(temporary, recursive=False, deadline=Deadline(_CLEAN_UP_TIMEOUT))
        except errors.StorageError as error:
            log.warning("a failed write may have left a temporary file: %s", error)


@contextmanager
def _if_supported(*raised: type[errors.StorageError]) -> Iterator[None]:
    """Context manager that only logs errors of a request that the server may not support, or may deny.

    Errors of the classes ``raised`` are raised.
    """
    try:
        yield
    except raised:
        raise
    except errors.StorageError as error:
        log.debug("%s", error)


class _NoAttributesError(Exception):
    """HDFS has rejected an attribute, for example because its administrator has disabled attributes."""


def _content(json: dict[str, Any]) -> bytes:
    for each in json["XAttrs"]:
        if each["name"] == _CONTENT:
            content = base64.b64decode(str(each["value"]).removeprefix("0s"), validate=True)
            return zlib.decompressobj().decompress(content, _MOST_UNPACKED)
    return b""


def _blocks(located: dict[str, Any]) -> str:
    blocks = (each["block"] for each in located["locatedBlocks"])
    return ",".join(f"{each['blockPoolId']}:{each['blockId']}:{each['generationStamp']}" for each in blocks)


def _in_the_way(target: Uri, there: FileStatus) -> errors.StorageExists:
    if there.is_directory:
        return errors.StorageIsADirectory(str(target), "write", "it is a directory")
    return errors.StorageExists(str(target), "write", "it exists already")


def _understood(call: Call, answer: WebHdfsAnswer, read: Callable[[dict[str, Any]], T]) -> T:
    try:
        return read(answer.json)
    except (ValueError, LookupError, TypeError, AttributeError, zlib.error) as error:
        raise errors.StorageError(
            str(call.uri), call.what, "the server's answer is not from WebHDFS", "check that its address is a NameNode"
        ) from error


def _written(rights: int) -> str:
    """Format three permission bits as in an access-list entry, such as ``r-x``."""
    return "".join(letter if rights & bit else "-" for letter, bit in (("r", 4), ("w", 2), ("x", 1)))


def _quota_usage(json: dict[str, Any]) -> Optional[QuotaRoom]:
    """Return the free space from an answer to GETQUOTAUSAGE, with bytes of all replicas. None without a quota."""
    usage = json["QuotaUsage"]
    names, space = int(usage["quota"]), int(usage["spaceQuota"])
    if names < 0 and space < 0:
        return None
    return QuotaRoom(
        max(0, space - int(usage["spaceConsumed"])) if space >= 0 else None,
        max(0, names - int(usage["fileAndDirectoryCount"])) if names >= 0 else None,
    )


def _boolean(json: dict[str, Any]) -> bool:
    return bool(json["boolean"])


def _file_status(uri: Uri, entry: dict[str, Any]) -> FileStatus:
    return FileStatus(
        path=str(uri),
        size=int(entry["length"]),
        modified_ms=int(entry["modificationTime"]),
        is_directory=entry["type"] == "DIRECTORY",
        owner=str(entry["owner"]),
        permission=int(entry["permission"], 8),
    )
