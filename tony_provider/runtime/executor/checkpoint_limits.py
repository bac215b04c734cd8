"""Bounded reading of checkpoint files, and size limits of stored checkpoints.

A separate process reads the files, because a malicious file may make a parser use unlimited time or memory. The
parsers have limits of their own. Time and memory limits on their process are the second line of defense.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

from tony_provider.runtime.artifacts.manifest import Tree
from tony_provider.runtime.artifacts.upload import SMALL
from tony_provider.runtime.checkpoint.content.zips import NotRead, Unreadable
from tony_provider.runtime.common import helper_processes
from tony_provider.runtime.common.quantities import count, size, some
from tony_provider.runtime.common.text import one_line
from tony_provider.runtime.executor import processes
from tony_provider.runtime.jobspec.model import Memory
from tony_provider.runtime.protocol import limits

log = logging.getLogger(__name__)

_PROGRAM = "tony_provider.runtime.checkpoint.content.readers"
_CPU_SECONDS = 30  # seconds of processor time for a small file
_CPU_BYTES = 10 << 20  # one more second of processor time per this many bytes of a file
_TIMES = 4  # limit of the elapsed time, as a multiple of the processor time
_MORE_SECONDS = 60.0  # seconds added to the elapsed time, because disks may be slow
_MOST_ANSWER = 32 << 20  # bytes of one result
_ATTEMPTS = 2  # attempts to read a file if another program kills the process


class _Ended(Exception):  # noqa: N818 - says what happened
    """The process has ended without an answer. The message names the cause.

    ``of_limits``: the process reached a limit, so the file is the cause.
    """

    def __init__(self, why: str, *, of_limits: bool = False) -> None:
        super().__init__(why)
        self.of_limits = of_limits


class CheckpointReader:
    """Reads checkpoint files by ``content.readers`` in a separate process, which is started when a file must be read.

    The reader process ends after some idle time, at ``close``, and when the executor ends. Threads use it in turn.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._socket: socket.socket  # connected to the process while it runs

    def read(self, reader: str, path: Path) -> Any:
        """Return the result of a reader for a file. Blocks.

        Raises Unreadable, OSError, and NotRead if no process can be started.
        """
        with self._lock:
            return self._read(reader, path)

    def close(self) -> None:
        """End the process if it runs."""
        with self._lock:
            self._end()

    def _read(self, reader: str, path: Path) -> Any:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return _value(self._ask(reader, path))
            except _Ended as ended:
                self._end()
                if ended.of_limits or attempt == _ATTEMPTS:
                    log.warning("gave up reading %s: %s", one_line(str(path)), ended)
                    raise Unreadable(f"gave up reading it: {ended}") from ended
        raise AssertionError

    def _ask(self, reader: str, path: Path) -> dict[str, Any]:
        seconds = _CPU_SECONDS + path.stat().st_size // _CPU_BYTES
        self._start()
        request = {"reader": reader, "path": os.path.abspath(path), "seconds": seconds}  # noqa: PTH100 - no links
        try:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
        except OSError as error:
            raise _Ended(f"the reader process does not respond ({error.strerror})") from error
        return self._answer(time.monotonic() + _MORE_SECONDS + _TIMES * seconds)

    def _answer(self, deadline: float) -> dict[str, Any]:
        data = bytearray()
        while not data.endswith(b"\n"):
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                piece = self._socket.recv(1 << 20)
            except socket.timeout as error:
                raise _Ended("no result within the time limit") from error
            except OSError:
                piece = b""
            if not piece:
                raise self._how_it_ended()
            data += piece
            if len(data) > _MOST_ANSWER:
                raise _Ended("the result is too large", of_limits=True)
        answer: dict[str, Any] = json.loads(data)
        return answer

    def _start(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self._end()
        self._socket, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = subprocess.Popen(
                    helper_processes.helper_command(_PROGRAM),
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    cwd="/",
                    env=helper_processes.helper_environment(),
                )
            except OSError as error:
                self._socket.close()
                said = f"cannot start a process to read checkpoints: {error.strerror}"
                raise NotRead(error.errno, said) from error
        processes.claim(self._process.pid)

    def _how_it_ended(self) -> _Ended:
        code = self._process.wait() if self._process is not None else 0
        if code == -signal.SIGXCPU:
            return _Ended("the reader process exceeded its CPU time limit", of_limits=True)
        name = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        return _Ended(f"the reader process has ended ({name})")

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()  # the process has no state to save
            process.wait()
            processes.disclaim(process.pid)
            self._socket.close()


def _value(answer: dict[str, Any]) -> Any:
    if "unreadable" in answer:
        raise Unreadable(str(answer["unreadable"]))
    if "errno" in answer:
        raise OSError(answer["errno"], answer["strerror"])
    return answer["value"]


_ENTRY = 115  # bytes of an entry in the request for a commit, without its names
_OBJECT = 60  # bytes of an object in that request; each large file has its own object
_NAMED = 3  # entries in a message


def snapshot_size_problem(tree: Tree, max_size: Optional[Memory]) -> str:
    """Return the reason if a tree is too large to be stored, otherwise an empty text.

    ``max_size``: ``checkpoint.max_size`` in MiB.
    """
    listed = sum(
        len(path.encode()) + len(node.target.encode()) + _ENTRY + (_OBJECT if node.version.size > SMALL else 0)
        for path, node in tree.nodes.items()
    )
    if listed > limits.size_limit("uploaded"):
        return too_many_entries(len(tree.nodes), listed)
    if max_size is None or tree.size <= max_size << 20:
        return ""
    sizes: dict[str, int] = {}
    for path, node in tree.files.items():
        top = path.partition("/")[0]
        sizes[top] = sizes.get(top, 0) + node.version.size
    largest = sorted(sizes, key=lambda top: (-sizes[top], top))
    return (
        f"the directory has {size(tree.size)}, more than checkpoint.max_size ({size(max_size << 20)}). "
        f"The largest entries are {some((f'{top} ({size(sizes[top])})' for top in largest), _NAMED)}. Have the "
        "program delete old saves, leave files out with checkpoint.exclude, or raise checkpoint.max_size"
    )


def too_many_entries(entries: int, listed: int) -> str:
    """Describe a directory with too many entries, whose list takes ``listed`` bytes."""
    return (
        f"the directory has {entries} files and directories. Their list has {size(listed)}, more than the limit of "
        f"{size(limits.size_limit('uploaded'))}. Have the program write fewer and larger files, or leave files out by "
        "checkpoint.exclude"
    )


def describe_excluded(directory: Path, paths: Sequence[str]) -> str:
    """Describe the entries that ``checkpoint.exclude`` leaves out. Raises OSError if one cannot be read."""
    below = (each for path in paths for each in (directory / path, *(directory / path).rglob("*")))
    sizes = [each.stat().st_size for each in below if each.is_file() and not each.is_symlink()]
    files = f"{count(len(sizes), 'file')} ({size(sum(sizes))})"
    return f"checkpoint.exclude leaves {files} out of checkpoints: {some(paths, _NAMED)}"
