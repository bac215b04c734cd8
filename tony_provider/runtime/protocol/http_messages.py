"""Messages over HTTP: pieces of a task's output, and sealed and tunnelled TLS connections.

A piece of output is located by the number of bytes that the container printed before it. A TLS end has no socket: HTTP
requests transport its bytes between a client and the application master.
"""

from __future__ import annotations

import io
import logging
import re
import ssl
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from typing import Callable, ClassVar, Optional

import attrs

from tony_provider.runtime.common import contract
from tony_provider.runtime.common.contract import path_of_task
from tony_provider.runtime.common.network import load_key
from tony_provider.runtime.protocol.limits import BUNDLED_LOGS, LAST_WORDS, MOST_BUNDLED
from tony_provider.runtime.protocol.task_identity import secret
from tony_provider.runtime.storage import (
    FileStatus,
    Storage,
    StorageError,
    StorageNotFound,
    StorageTooLarge,
    read_bytes,
    read_whole,
    uris,
)

log = logging.getLogger(__name__)

_NOTE = re.compile(rb"\[tony\] (?:\d+ )?earlier lines \((\d+) bytes\) were dropped\n")
LONGEST_NOTE = 120  # bytes of the note in ``kept_form``


@attrs.frozen
class LogPiece:
    """Bytes of a log, with their position in everything that the container has printed."""

    start: int  # number of bytes printed before this piece
    data: bytes

    @property
    def end(self) -> int:
        return self.start + len(self.data)

    @classmethod
    def cut(cls, after: int, start: int, data: bytes) -> LogPiece:
        """Return the piece from ``after``, or from the next whole line if the bytes before ``start`` are missing.

        The rest of a line whose beginning is missing may be half of a secret, so it is left out.
        """
        if start <= after:
            return cls(after, data[after - start :])
        whole = data.partition(b"\n")[2]
        return cls(start + len(data) - len(whole), whole)


def kept_form(data: bytes, dropped: int, lines: Optional[int] = None) -> bytes:
    """Return the kept end of a log, with a note in its first line if its first ``dropped`` bytes are missing.

    If the log itself starts with such a line, a note of 0 bytes is added, so that the first note is always the
    runtime's.
    """
    if not dropped and not _NOTE.match(data):
        return data
    return f"[tony] {f'{lines} ' if lines else ''}earlier lines ({dropped} bytes) were dropped\n".encode() + data


@attrs.frozen
class StoredLog:
    """The log of a container: a file on the store, a part of a bundle, or bytes that the master has not stored yet."""

    name: str  # see ``contract.log_name``
    size: int  # bytes
    read: Callable[[int, int], bytes]  # arguments: offset, maximum bytes; blocks; raises StorageError
    modified_ms: int = 0  # epoch

    def after(self, after: int, limit: int) -> LogPiece:
        """Return the part of the log that follows the first ``after`` bytes of the container's output.

        Reads at most the last ``limit`` bytes. This limit also holds while the file grows, because the job can write to
        the file. Blocks. Raises StorageError.
        """
        note = _NOTE.match(self.read(0, min(self.size, LONGEST_NOTE)))
        dropped, skipped = (int(note[1]), note.end()) if note else (0, 0)
        end = self.size - skipped + dropped
        start = min(max(after, dropped), end)
        if end - start > limit:
            return LogPiece.cut(after, end - limit, self.read(self.size - limit, limit))
        if end == start:
            return LogPiece(start, b"")
        return LogPiece(start, self.read(start - dropped + skipped, end - start))


# Errors of zipfile for a damaged or malicious file: programs of the job can write to the directory.
_BAD_BUNDLE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    RuntimeError,
    ValueError,
    EOFError,
    LookupError,
    ArithmeticError,
)
_LARGEST_BUNDLE = BUNDLED_LOGS + (4 << 20)  # bytes of a file; logs may be incompressible
_KEPT_BUNDLES = 4  # bundles in memory, because the next log is often in the same bundle
_MOST_LOGS = 100_000  # in all bundles of a job; each needs memory, although the files may be small
OpenBundle = Callable[[str], zipfile.ZipFile]
"""Reads the bundle at a URI. Raises StorageError, and the errors of _BAD_BUNDLE."""
_BUNDLED = b"PK\1\2"  # signature of an entry in the central directory of a zip archive


def pack_logs(logs: Mapping[str, bytes]) -> bytes:
    """Return a bundle with logs by their names: a zip archive."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, data in logs.items():
            bundle.writestr(name, data)
    return made.getvalue()


def stored_logs(storage: Storage, directory: str) -> dict[str, StoredLog]:
    """Return the logs in a directory of the store, by their names. Blocks. Raises StorageError."""
    bundled: dict[str, StoredLog] = {}
    whole = {}
    opened = lru_cache(_KEPT_BUNDLES)(partial(_opened_bundle, storage))  # all bundles may need much memory
    try:
        for file in storage.list(directory):
            if file.name.endswith(contract.BUNDLE_ENDING):
                if len(bundled) > _MOST_LOGS:
                    log.warning("%s is not read, because there are more than %d logs", file.path, _MOST_LOGS)
                    continue
                bundled.update(_bundled_logs(opened, file))
            elif not file.is_directory:
                whole[file.name] = _log_file(storage, file)
    except StorageNotFound:
        return {}
    return {**bundled, **whole}


def _log_file(storage: Storage, file: FileStatus) -> StoredLog:
    def read(offset: int, length: int) -> bytes:
        return read_bytes(storage, file.path, offset=offset, length=length)

    return StoredLog(file.name, file.size, read, file.modified_ms)


def _bundled_logs(opened: OpenBundle, file: FileStatus) -> Iterator[tuple[str, StoredLog]]:
    try:
        bundle = opened(file.path)
    except (StorageTooLarge, *_BAD_BUNDLE) as error:
        log.warning("cannot read %s, which contains logs: %s", file.path, error)
        return
    for info in bundle.infolist():
        if _is_readable(info):
            read = partial(_read_bundled, opened, file.path, info.filename)
            yield info.filename, StoredLog(info.filename, info.file_size, read, file.modified_ms)


def _opened_bundle(storage: Storage, uri: str) -> zipfile.ZipFile:
    """Read a bundle. Raises StorageError, and the errors of _BAD_BUNDLE."""
    data = read_whole(storage, uri, _LARGEST_BUNDLE)
    if data.count(_BUNDLED) > 2 * MOST_BUNDLED:  # each needs memory, although the file may be small
        raise ValueError(f"it has more than {2 * MOST_BUNDLED} logs")
    return zipfile.ZipFile(io.BytesIO(data))


def _is_readable(info: zipfile.ZipInfo) -> bool:
    """Return whether the log has a valid name and size. zipfile limits the size of expanded data only for deflate."""
    is_bounded = info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    return is_bounded and info.file_size <= 2 * LAST_WORDS and "/" not in info.filename


def _read_bundled(opened: OpenBundle, uri: str, name: str, offset: int, length: int) -> bytes:
    try:
        bundle = opened(uri)  # may be a newer version, with other logs
        info = bundle.getinfo(name)
        if not _is_readable(info):
            raise ValueError("it has changed")
        return bundle.read(info)[offset:][:length]
    except _BAD_BUNDLE as error:
        raise StorageError(uri, "read", f"{name} is damaged: {error}") from error


def stored_log(storage: Storage, directory: str, name: str) -> StoredLog:
    """Return one log. Blocks. Raises StorageNotFound if no such log is stored, StorageError."""
    try:
        return _log_file(storage, storage.status(uris.join(directory, name)))
    except StorageNotFound:
        found = stored_logs(storage, directory).get(name)
        if found is None:
            raise
        return found


OUTPUT_PATH = "output/"  # path of the master's pages; each task has a page below it
STORY_PATH = "story/"  # path of recorded state transitions; each task has its TaskStory below it
OUTPUT_END = 1 << 62  # more bytes than any task prints: a request from there on returns the position of the end


def output_request(task: str, attempt: Optional[int], after: int) -> str:
    """Return the path and query of the request for the output of ``task`` from ``after`` bytes on."""
    query = f"after={after}" if attempt is None else f"after={after}&attempt={attempt}"
    return f"{OUTPUT_PATH}{path_of_task(task)}?{query}"


@attrs.frozen
class OutputPiece:
    """Piece of a task's output in one of its containers, with the job's secrets masked.

    ``text`` is decoded with Python's ``surrogateescape``. Masking may make it longer or shorter than ``end - start``.
    """

    attempt: int  # the container's number, from 1
    newest: int  # the number of the task's newest container
    start: int  # bytes printed before; if more than requested, the bytes in between are unavailable
    end: int  # bytes printed up to the end of this piece
    text: str = ""  # from the start of a line, or from the requested position
    problem: str = ""  # reason why no output is available now

    WRITER_MAY_BE_NEWER: ClassVar[bool] = True  # see ``codec``

    @property
    def data(self) -> bytes:
        try:
            return self.text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:  # lone surrogates that represent no byte; only a faulty master writes them
            return self.text.encode("utf-8", "replace")


@attrs.frozen
class SealedPart:
    """Part of a TLS connection in the body of an HTTP request or its answer."""

    conversation: str  # random name, chosen by the client
    data: str  # TLS records, in base64


@attrs.frozen
class TunnelPart:
    """Body of ``PUT control/tunnel``. Repeating the request changes nothing.

    A request either sends bytes and is answered at once, or requests bytes from the master and is answered when some
    are available. All bytes belong to a TLS connection between the user's machine and the master.
    """

    tunnel: str  # random name, chosen by the client
    offset: int = 0  # position of ``data`` within all bytes to the master
    data: str = ""  # base64
    received: Optional[int] = None  # number of bytes received from the master so far; if set, requests more
    over: bool = False  # the client no longer needs the tunnel


@attrs.frozen
class TunnelAnswer:
    """Answer to a TunnelPart."""

    received: int  # total number of bytes that the master has received
    data: str = ""  # base64; the master's bytes that follow the request's ``received``
    over: str = ""  # reason why the tunnel has ended; empty while it is open


LONGEST_MESSAGE = 16 << 10  # bytes of one message
_END = b"\n"


class PipeError(Exception):
    """The other end cannot prove its identity, or violates TLS or the message format."""


def master_context(secrets: Mapping[str, bytes]) -> ssl.SSLContext:
    """Return the TLS settings of an application master, with its application's certificate.

    Blocks. Raises OSError, MissingSecretError.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    load_key(context, secret(secrets, contract.SECRET_AM_KEY) + secret(secrets, contract.SECRET_AM_CERTIFICATE))
    return context


def client_context(authority: str) -> ssl.SSLContext:
    """Return the TLS settings of a master's client. Raises PipeError.

    ``authority`` is the PEM certificate of the authority that issued the master's certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_verify_locations(cadata=authority)
    except (ssl.SSLError, ValueError) as error:
        raise PipeError(f"the application's CA certificate is not valid: {error}") from error
    return context


class TlsEnd:
    """One end of a TLS connection: consumes received bytes, and produces bytes to send."""

    def __init__(self, context: ssl.SSLContext, application_id: Optional[str] = None) -> None:
        """``application_id`` identifies the master at the other end. If it is None, this end is the master."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=application_id is None, server_hostname=application_id
        )
        self.is_open = False  # whether the handshake is complete, in which the master has proved its identity

    def take(self, data: bytes) -> None:
        """Consume received bytes. Raises PipeError."""
        self._incoming.write(data)
        self._shake_hands()

    def write(self, data: bytes) -> None:
        """Encrypt data for the other end. Raises PipeError before the handshake is complete."""
        if not self.is_open:
            raise PipeError("the other end has not proved its identity")
        self._tls.write(data)

    def outgoing(self) -> bytes:
        """Return the bytes to send to the other end. Raises PipeError."""
        self._shake_hands()
        return self._outgoing.read()

    def read(self, most: int) -> bytes:
        """Return decrypted data, or an empty string if no data are available. Raises PipeError."""
        if not self.is_open:
            return b""
        try:
            said = self._tls.read(most)
        except ssl.SSLWantReadError:
            return b""
        except ssl.SSLError as error:
            raise PipeError(str(error)) from error
        if not said:
            raise PipeError("the other end closed the connection before its message was complete")
        return said

    def _shake_hands(self) -> None:
        if self.is_open:
            return
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLCertVerificationError as error:
            raise PipeError(f"the other end is not the application's master: {error.verify_message}") from error
        except ssl.SSLError as error:
            raise PipeError(f"the other end does not speak TLS 1.3: {error}") from error
        self.is_open = True


class TlsPipe(TlsEnd):
    """TLS end for messages without a newline, each of at most LONGEST_MESSAGE bytes."""

    def __init__(self, context: ssl.SSLContext, application_id: Optional[str] = None) -> None:
        super().__init__(context, application_id)
        self._message = b""

    def give(self, message: Optional[bytes] = None) -> bytes:
        """Return the bytes to send; ``message`` requires a complete handshake. Raises PipeError."""
        if message is not None:
            self.write(message + _END)
        return self.outgoing()

    def message(self) -> Optional[bytes]:
        """Return the received message, or None if it is incomplete. Raises PipeError."""
        while (
            _END not in self._message
            and len(self._message) <= LONGEST_MESSAGE
            and (piece := self.read(LONGEST_MESSAGE))
        ):
            self._message += piece
        if len(self._message) > LONGEST_MESSAGE + len(_END):
            raise PipeError(f"a message has more than {LONGEST_MESSAGE} bytes")
        message, end, _ = self._message.partition(_END)
        return message if end else None
