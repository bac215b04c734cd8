"""Pieces of what a task has printed, by how many bytes were printed before; and the end of it that was kept."""

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
    """Some bytes of a log, and where they are in all that the container has printed."""

    start: int  # bytes that come before
    data: bytes

    @property
    def end(self) -> int:
        return self.start + len(self.data)

    @classmethod
    def cut(cls, after: int, start: int, data: bytes) -> LogPiece:
        """The piece of a log that begins at ``after``, or later with a whole line where the bytes between are missing.

        What is left of a line whose beginning is missing may be the half of a secret, and is left out.
        """
        if start <= after:
            return cls(after, data[after - start :])
        whole = data.partition(b"\n")[2]
        return cls(start + len(data) - len(whole), whole)


def kept_form(data: bytes, dropped: int, lines: Optional[int] = None) -> bytes:
    """The end of a log as it is kept: below a line that says so where its first ``dropped`` bytes are missing.

    Where the log itself begins with such a line the note is there, too, and says that nothing is missing: the first
    one is always ours.
    """
    if not dropped and not _NOTE.match(data):
        return data
    return f"[tony] {f'{lines} ' if lines else ''}earlier lines ({dropped} bytes) were dropped\n".encode() + data


def read_kept(storage: Storage, uri: str, after: int, limit: int) -> LogPiece:
    """What comes after so many bytes of all that was printed, of the log that was kept of it at the container's end.

    At most the last ``limit`` bytes, however much comes meanwhile: it is the job's own file. Blocks; raises
    StorageNotFound when none was kept, StorageError.
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


OUTPUT_PATH = "output/"  # of the master's pages, below which each task has one
OUTPUT_END = 1 << 62  # more than any task prints: asked for what comes after it, a master tells where the end is


def output_request(task: str, attempt: Optional[int], after: int) -> str:
    """The path and query of the request for what ``task`` has printed after so many bytes."""
    query = f"after={after}" if attempt is None else f"after={after}&attempt={attempt}"
    return f"{OUTPUT_PATH}{path_of_task(task)}?{query}"


@attrs.frozen
class OutputPiece:
    """A piece of what a task has printed in one of its containers, without the values of the job's secrets.

    ``text`` was made of bytes with Python's ``surrogateescape``; masks make it longer or shorter than they were.
    """

    attempt: int  # the container's number, from 1
    newest: int  # the number of the task's newest container
    start: int  # bytes that were printed before; more than were asked for: those between are not to be had
    end: int  # bytes that were printed up to the end of this piece
    text: str = ""  # from the start of a line, or where it was asked for
    problem: str = ""  # why there is nothing just now

    WRITER_MAY_BE_NEWER: ClassVar[bool] = True  # see ``codec``

    @property
    def data(self) -> bytes:
        try:
            return self.text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:  # halves that stand for no byte: no master of ours wrote it
            return self.text.encode("utf-8", "replace")


@attrs.frozen
class SealedPart:
    """What one end of the TLS connection says, in the body of an HTTP request or of its answer."""

    conversation: str  # its name, chosen at random by whoever begins it
    data: str  # TLS records, in base64


@attrs.frozen
class TunnelPart:
    """The body of ``PUT control/tunnel``. Sent again, it changes nothing.

    A request either brings bytes, and is answered at once, or asks for those that come the other way, and is answered
    when there are some. Both are of TLS between the user's machine and the master.
    """

    tunnel: str  # its name, chosen at random by whoever begins it
    offset: int = 0  # of ``data`` among all bytes that go to the master
    data: str = ""  # in base64
    received: Optional[int] = None  # so many bytes of the master's have come, and more are asked for
    over: bool = False  # nobody needs the tunnel any more


@attrs.frozen
class TunnelAnswer:
    """The answer to a TunnelPart."""

    received: int  # so many bytes have come to the master in all
    data: str = ""  # in base64: those of the master's that come after ``received`` of the request
    over: str = ""  # why the tunnel has ended; empty: it has not
