"""Unpack an archive once for all containers that share it, in a separate process with limits."""

from __future__ import annotations

import subprocess
import tempfile
import threading
import time
from pathlib import Path

from tony_provider.runtime import limited_process
from tony_provider.runtime.cancellation import Cancelled
from tony_provider.runtime.file_lock import locked
from tony_provider.runtime.local.trees import remove_tree
from tony_provider.runtime.local.unpacking import LONGEST_WORD, SECONDS, ArchiveError

_PROGRAM = "tony_provider.runtime.local.unpacking"
_MORE_SECONDS = 60.0  # that a container waits, after SECONDS, for another container's lock
_POLL = 0.05  # seconds


def unpack_once(archive: Path, target: Path, cancelled: threading.Event) -> None:
    """Unpack the archive to ``target``, unless another container has done so. The target appears atomically.

    Blocks. Raises ArchiveError if the archive cannot be unpacked, or if another container takes more than SECONDS to
    unpack it. Raises Cancelled, OSError.
    """
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        with locked(target.with_name(f"{target.name}.lock"), SECONDS + _MORE_SECONDS):
            if not target.exists():
                _unpack(archive, target, cancelled)
    except TimeoutError as error:
        raise ArchiveError(f"cannot unpack {archive}: {error}") from error


def _unpack(archive: Path, target: Path, cancelled: threading.Event) -> None:
    partial = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        problem = _unpack_apart(archive, partial, cancelled)
        if problem:
            raise ArchiveError(f"cannot unpack {archive}: {problem}")
        partial.rename(target)
    finally:
        remove_tree(partial)


def _unpack_apart(archive: Path, directory: Path, cancelled: threading.Event) -> str:
    """Unpack in a separate process. Return an empty string, or why it failed. Raises Cancelled, OSError."""
    with subprocess.Popen(
        limited_process.command(_PROGRAM, str(archive.absolute()), str(directory.absolute())),
        stdin=subprocess.PIPE,  # the process ends when this pipe is closed
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env=limited_process.environment(),
    ) as process:
        try:
            code = _wait(process, cancelled)
        finally:
            process.kill()
        said = process.stdout.read(4 * LONGEST_WORD).decode("utf-8", "replace") if process.stdout else ""
    if code is None:
        return f"unpacking takes more than {SECONDS} s"
    if code == 0:
        return ""
    if code == 1 and said:
        return said
    return f"the unpacking process has ended ({code}): the archive takes too much time or memory, or it did not start"


def _wait(process: subprocess.Popen[bytes], cancelled: threading.Event) -> int | None:
    """Return the exit code, or None after SECONDS. Raises Cancelled."""
    deadline = time.monotonic() + SECONDS
    while (code := process.poll()) is None and time.monotonic() < deadline:
        if cancelled.wait(_POLL):
            raise Cancelled("unpacking the job's files was cancelled")
    return code
