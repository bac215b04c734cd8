"""Messages over HTTP: pieces of a task's output, and the parts of sealed and tunnelled TLS connections.

A piece of output is located by the number of bytes that the container printed before it.
"""

from __future__ import annotations

import re
from typing import ClassVar, Optional

import attrs

from tony_provider.runtime.common.contract import path_of_task
from tony_provider.runtime.storage import Storage, read_bytes

_NOTE = re.compile(rb"\[tony\] (?:\d+ )?earlier lines \((\d+) bytes\) were dropped\n")
_LONGEST_NOTE = 120  # bytes


@attrs.frozen
class LogPiece:
    """Bytes of a log, with their position in everything that the container has printed."""

    start: int  # bytes before this piece
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


def read_kept(storage: Storage, uri: str, after: int, limit: int) -> LogPiece:
    """Read a log that was kept at the container's end, from ``after`` bytes of the container's output on.

    Reads at most the last ``limit`` bytes, even if the file grows, because the job can write it. Blocks. Raises
    StorageNotFound if no log was kept, StorageError.
    """
    size = storage.status(uri).size
    note = _NOTE.match(read_bytes(storage, uri, length=min(size, _LONGEST_NOTE)))
    dropped, skipped = (int(note[1]), note.end()) if note else (0, 0)
    end = size - skipped + dropped
    start = min(max(after, dropped), end)
    if end - start > limit:
        return LogPiece.cut(after, end - limit, read_bytes(storage, uri, offset=size - limit, length=limit))
    if end == start:
        return LogPiece(start, b"")
    return LogPiece(start, read_bytes(storage, uri, offset=start - dropped + skipped, length=end - start))


OUTPUT_PATH = "output/"  # path of the master's pages; each task has a page below it
STORY_PATH = "story/"  # likewise: each task has its TaskStory below it
OUTPUT_END = 1 << 62  # more bytes than any task prints: a request from there on returns the position of the end


def output_request(task: str, attempt: Optional[int], after: int) -> str:
    """Return the path and query of the request for the output of ``task`` from ``after`` bytes on."""
    query = f"after={after}" if attempt is None else f"after={after}&attempt={attempt}"
    return f"{OUTPUT_PATH}{path_of_task(task)}?{query}"


@attrs.frozen
class OutputPiece:
    """Piece of a task's output in one of its containers, with the job's secrets masked.

    ``text`` is decoded with Python's ``surrogateescape``. Masks make it longer or shorter than the bytes.
    """

    attempt: int  # the container's number, from 1
    newest: int  # the number of the task's newest container
    start: int  # bytes printed before; if more than requested, those in between are unavailable
    end: int  # bytes printed up to the end of this piece
    text: str = ""  # from the start of a line, or from the requested position
    problem: str = ""  # why no output is available now

    WRITER_MAY_BE_NEWER: ClassVar[bool] = True  # see ``codec``

    @property
    def data(self) -> bytes:
        try:
            return self.text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:  # half surrogates that represent no byte, which no master of ours writes
            return self.text.encode("utf-8", "replace")


@attrs.frozen
class SealedPart:
    """Part of a TLS connection in the body of an HTTP request or its answer."""

    conversation: str  # random name, chosen by the client
    data: str  # TLS records, in base64


@attrs.frozen
class TunnelPart:
    """Body of ``PUT control/tunnel``. Repeating the request changes nothing.

    A request either sends bytes and is answered at once, or requests bytes of the other direction and is answered when
    there are some. All bytes belong to TLS between the user's machine and the master.
    """

    tunnel: str  # random name, chosen by the client
    offset: int = 0  # of ``data`` within all bytes to the master
    data: str = ""  # base64
    received: Optional[int] = None  # number of the master's bytes received so far; requests more
    over: bool = False  # the client no longer needs the tunnel


@attrs.frozen
class TunnelAnswer:
    """Answer to a TunnelPart."""

    received: int  # total number of bytes that the master has received
    data: str = ""  # base64; the master's bytes after ``received`` of the request
    over: str = ""  # why the tunnel has ended; empty: it is open
