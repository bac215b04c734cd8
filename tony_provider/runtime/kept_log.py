"""Pieces of what a task has printed, by how many bytes were printed before; and the end of it that was kept."""

from __future__ import annotations

import re
from typing import Optional

import attrs

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
