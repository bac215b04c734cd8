"""Output of user processes: size-limited log files, and their last lines."""

from __future__ import annotations

import asyncio
import io
import logging
import os
import re
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Callable, Optional

import attrs

from tony_provider.runtime.common.contract import LOG_SIZE
from tony_provider.runtime.common.text import LONGEST_LINE, end_of_log, masked_in_place, without_cut_secret
from tony_provider.runtime.executor import workspace
from tony_provider.runtime.jobspec.model import Memory
from tony_provider.runtime.protocol import limits, tony_pb2
from tony_provider.runtime.protocol.http_messages import LogPiece, kept_form

log = logging.getLogger(__name__)

_FILES = 4  # files per process: the current and the previous file of stdout and of stderr
_LEAST = 256 << 10  # bytes that a file may have even on a nearly full disk
KEPT_LIMIT = 10_000_000  # bytes of both streams together that are uploaded at the end
TAIL_LINES = 100  # the end of torchrun's own output has 50 lines
TAIL_LIMIT = limits.OUTPUT_TAIL
_CHUNK = 256 << 10  # bytes read at a time
_BEGINNING = re.compile(rb"(?:\A|(?<=[\r\n]))(?=[^\r\n])")  # start of a line that is not empty


class CappedFile:
    """A log file with a size limit, which is renamed to ``<name>.1`` when it is full. Several threads may use it.

    If the disk is full, lines are lost, but the process that prints them continues.
    """

    def __init__(
        self,
        path: Path,
        limit: int,
        *,
        announce: bool = True,
        crowded: Callable[[Path, int], Optional[str]] = lambda directory, wanted: None,
    ) -> None:
        """Prepare the file. With ``announce``, a new file begins with the number of lines that were dropped.

        ``crowded`` gets a directory and a number of bytes. It returns the reason if the directory's disk has too little
        space for these bytes, otherwise None. While there is a reason, the file keeps at most ``_LEAST`` bytes.
        """
        self.path = path
        self.problem = ""  # reason why lines are lost although the limit allows them; empty otherwise
        self.dropped = 0  # lines
        self.written = 0  # bytes, including former files
        self._limit = limit
        self._announce = announce
        self._crowded = crowded
        self._lock = threading.Lock()
        self._file: Optional[io.FileIO] = None
        self._size = self._size_before = 0  # bytes of the current and the previous file
        self._lines = 0  # in the current file
        self._lines_before = 0  # in the previous file
        self._failed = False

    def write(self, data: bytes) -> None:
        """Append bytes. Blocks."""
        lines = data.count(b"\n")
        with self._lock:
            try:
                limit = self._limit_for(len(data))
                if self._file is None or (self._size and self._size + len(data) > limit):
                    self._file = self._next(limit)
                _write_all(self._file, data)
            except OSError as error:
                self.dropped += lines
                if not self._failed:
                    self._complain(f"cannot write {self.path}: {error.strerror}")
                self._failed = True
            else:
                self._failed = False
                self._size += len(data)
                self._lines += lines
                self.written += len(data)

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def last(self, limit: int, secrets: Iterable[str] = ()) -> bytes:
        """Return at most the last ``limit`` bytes, from the start of a line, in the form for the store (``kept_form``).

        The values of ``secrets`` are masked. A very long line, such as that of a progress bar, is cut. Other threads
        may write meanwhile. Reads only these bytes. Blocks. Raises OSError.
        """
        with self._lock:
            data = self._end(limit + 1)
            dropped, lines, written = self.dropped, self._lines_before + self._lines, self.written
        if len(data) > limit:
            data = end_of_log(data, limit)
            dropped += lines - data.count(b"\n")
        if len(data) < written:
            data = without_cut_secret(data, secrets)
        return kept_form(masked_in_place(data, secrets), written - len(data), dropped)

    def tail(self, limit: int) -> bytes:
        """Return the last ``limit`` bytes, without a count of dropped lines. Other threads may write meanwhile.

        Reads only these bytes. Blocks. Raises OSError.
        """
        with self._lock:
            data = self._end(limit + 1)
        return end_of_log(data, limit)

    def since(self, after: int, limit: int) -> LogPiece:
        """Return at most the last ``limit`` bytes after position ``after``. Other threads may write meanwhile.

        Blocks. Raises OSError.
        """
        with self._lock:
            data = self._end(max(0, min(self.written - after, limit)))
            return LogPiece.cut(min(after, self.written), self.written - len(data), data)

    def _end(self, size: int) -> bytes:
        """Return the last ``size`` bytes of the current and the previous file together. Raises OSError."""
        data = _end(self.path, size)
        if len(data) < size:
            data = _end(self._previous, size - len(data)) + data
        return data

    @property
    def _previous(self) -> Path:
        return self.path.with_name(self.path.name + ".1")

    def _limit_for(self, size: int) -> int:
        """Return the size limit of the current file if ``size`` more bytes are written."""
        crowded = self._crowded(self.path.parent, size)
        if not crowded or self._limit <= _LEAST:
            return self._limit
        if self._size + self._size_before > 2 * _LEAST and not self.problem:
            self._complain(crowded)
        self._give_up_previous(_LEAST)
        return _LEAST

    def _give_up_previous(self, least: int) -> None:
        """Remove the previous file if it has more than ``least`` bytes."""
        if self._size_before > least:
            self._previous.unlink(missing_ok=True)
            self.dropped += self._lines_before
            self._lines_before = self._size_before = 0

    def _complain(self, problem: str) -> None:
        self.problem = self.problem or problem
        log.warning("lines of the user process are lost: %s", problem)

    def _next(self, limit: int) -> io.FileIO:
        if self._file is not None:
            self.path.replace(self._previous)
            self._file.close()
            self._file = None
            self.dropped += self._lines_before
            self._lines_before, self._lines = self._lines, 0
            self._size_before, self._size = self._size, 0
            if limit < self._limit:
                self._give_up_previous(limit)
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
        file = io.FileIO(descriptor, "w")
        if self._announce:
            _write_all(file, _dropped_note(self.dropped))
        return file


def _end(path: Path, size: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, io.SEEK_END) - size))
            return file.read()
    except FileNotFoundError:
        return b""


def _write_all(file: io.FileIO, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def _dropped_note(lines: int) -> bytes:
    return f"[tony] {lines} earlier lines were dropped\n".encode() if lines else b""


class Tail:
    """The last lines of a stream. A line that was redrawn (a progress bar) counts with its final text."""

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque(maxlen=TAIL_LINES)
        self._rest = b""

    def add(self, data: bytes) -> None:
        *lines, rest = (self._rest + data).split(b"\n")
        self._lines.extend(line[-TAIL_LIMIT:] for line in lines[-TAIL_LINES:])
        self._rest = rest[-TAIL_LIMIT:]

    def text(self) -> str:
        """Return the lines as text of at most ``TAIL_LIMIT`` bytes. Bytes that are not UTF-8 are replaced."""
        lines = [*self._lines, self._rest] if self._rest else list(self._lines)
        shown = [line.rstrip(b"\r\b").rpartition(b"\r")[2].decode("utf-8", "replace") for line in lines[-TAIL_LINES:]]
        text = "\n".join(shown).strip("\n").encode()
        return text[-TAIL_LIMIT:].decode("utf-8", "ignore")


class _Lines:
    """Joins the pieces of a stream to whole lines, so that two streams in one file do not cut each other's lines."""

    def __init__(self) -> None:
        self._rest = b""

    def add(self, data: bytes) -> bytes:
        data = self._rest + data
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if not end and len(data) > LONGEST_LINE:
            end = len(data)
        self._rest = data[end:]
        return data[:end]

    def end(self) -> bytes:
        rest, self._rest = self._rest, b""
        return rest + b"\n" if rest else b""


@attrs.define(eq=False)
class ProcessFiles:
    """The output files of one of the container's user processes, for all of its starts."""

    stdout: CappedFile
    stderr: CappedFile
    mark: bytes = b""  # prefix of the process's lines in the common file; empty if the container runs one process

    @classmethod
    def of(cls, log_dir: Path, local_rank: int, limit: int, mark: bytes) -> ProcessFiles:
        name = f"task-{local_rank}" if local_rank else "task"
        return cls(
            CappedFile(log_dir / f"{name}.out", limit, crowded=workspace.disk_reserve_problem),
            CappedFile(log_dir / f"{name}.err", limit, crowded=workspace.disk_reserve_problem),
            mark,
        )

    def marked(self, lines: bytes) -> bytes:
        """Return whole lines with the prefix that they have in the common file."""
        return _BEGINNING.sub(self.mark, lines) if self.mark else lines


@attrs.define(eq=False)
class Output:
    """The output files of a container's user processes."""

    processes: Sequence[ProcessFiles]  # by local rank
    both: CappedFile  # both streams of all processes: shown to users, and uploaded at the end

    @classmethod
    def of(cls, log_dir: Path, work_dir: Path, size: Optional[Memory] = None, count: int = 1) -> Output:
        """Return the files in these directories.

        ``size``: limit in MiB for stdout and stderr of all ``count`` processes together in the log directory.
        """
        limit = ((size or LOG_SIZE) << 20) // (_FILES * count)
        marks = [f"[{local_rank}] ".encode() if count > 1 else b"" for local_rank in range(count)]
        return cls(
            [ProcessFiles.of(log_dir, local_rank, limit, mark) for local_rank, mark in enumerate(marks)],
            CappedFile(work_dir / "output.log", KEPT_LIMIT, announce=False),
        )

    @property
    def problem(self) -> str:
        """The reason if lines within the limits are lost, otherwise an empty text."""
        return next((file.problem for file in self._files if file.problem), "")

    @property
    def _files(self) -> list[CappedFile]:
        return [self.both, *(file for process in self.processes for file in (process.stdout, process.stderr))]

    def note(self, text: str) -> None:
        """Write a line of the executor, which begins with ``[tony]``, into the common file. Blocks."""
        self.both.write(_own_line(text))

    def note_error(self, text: str) -> None:
        """Write a line of the executor into the common file, and into the stderr file of local rank 0. Blocks."""
        self.processes[0].stderr.write(_own_line(text))
        self.both.write(_own_line(text))

    def close(self) -> None:
        for file in self._files:
            file.close()


def _own_line(text: str) -> bytes:
    return f"[tony] {text}\n".encode("utf-8", "replace")


class Capture:
    """The pipes of one user process.

    Enter it by ``async with``, pass ``stdout`` and ``stderr`` to the process, then call ``close_write_ends``.
    """

    def __init__(self, output: Output, local_rank: int = 0) -> None:
        self.out_tail = Tail()
        self.err_tail = Tail()
        self._both = output.both
        self._files = output.processes[local_rank]
        self._tasks: list[asyncio.Task[None]] = []
        self._transports: list[asyncio.ReadTransport] = []
        self.stdout = self.stderr = -1  # file descriptors for the process

    async def __aenter__(self) -> Capture:
        self.stdout = await self._open(self._files.stdout, self.out_tail)
        self.stderr = await self._open(self._files.stderr, self.err_tail)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close_write_ends()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for transport in self._transports:
            transport.close()

    def close_write_ends(self) -> None:
        """Close the executor's write ends once the process has them. Otherwise the output would never end."""
        for descriptor in (self.stdout, self.stderr):
            if descriptor >= 0:
                os.close(descriptor)
        self.stdout = self.stderr = -1

    async def drained(self, seconds: float) -> bool:
        """Wait for the end of the output. Return False if a process still holds a pipe after ``seconds``."""
        _, pending = await asyncio.wait(self._tasks, timeout=seconds)
        return not pending

    def tail(self) -> str:
        """Return the last lines of stderr, or those of stdout if stderr is empty."""
        return self.err_tail.text() or self.out_tail.text()

    async def _open(self, file: CappedFile, tail: Tail) -> int:
        reading, writing = os.pipe()
        reader = asyncio.StreamReader(limit=_CHUNK)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), io.FileIO(reading)
        )
        self._transports.append(transport)
        self._tasks.append(asyncio.create_task(self._copy(reader, file, tail)))
        return writing

    async def _copy(self, reader: asyncio.StreamReader, file: CappedFile, tail: Tail) -> None:
        lines = _Lines()
        while data := await reader.read(_CHUNK):
            tail.add(data)
            await asyncio.to_thread(self._write, file, data, lines.add(data))
        await asyncio.to_thread(self._write, file, b"", lines.end())

    def _write(self, file: CappedFile, data: bytes, lines: bytes) -> None:
        if data:
            file.write(data)
        if lines:
            self._both.write(self._files.marked(lines))


async def answer_tail(
    output: Output, wanted: tony_pb2.TailWanted, send: Callable[[tony_pb2.FromExecutor], None]
) -> None:
    """Send the end of the output that the application master has requested."""
    tail = tony_pb2.Tail(question=wanted.question)
    try:
        if wanted.HasField("after"):
            piece = await asyncio.to_thread(output.both.since, wanted.after, wanted.bytes)
            tail.data, tail.end = piece.data, piece.end
        else:
            tail.data = await asyncio.to_thread(output.both.tail, wanted.bytes)
    except OSError as error:
        log.warning("the log cannot be read: %s", error)
        tail.problem = str(error)
    send(tony_pb2.FromExecutor(tail=tail))
