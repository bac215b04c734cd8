"""Remember the SHA-256 of large files, so that submissions read each file only once.

A note is a file in the user's cache directory, named by the file and its version. The version changes with each write,
and no user can set it. For example, the version of a file on HDFS names the file's blocks. So a submission also detects
that a program has rewritten a file and restored its size and time.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Callable
from pathlib import Path

from tony_provider.cluster.user_cache import user_cache
from tony_provider.runtime.sha256 import sha256_of
from tony_provider.runtime.storage.base import FileStatus, Storage

log = logging.getLogger(__name__)

_SMALL = 4 << 20  # bytes: reading a file of this size costs no more than a request for its version
_MOST_NOTES = 1000
_SHA256 = re.compile(r"[0-9a-f]{64}")


def sha256_of_stored(storage: Storage, status: FileStatus) -> str:
    """Return the SHA-256 of a file on the storage. Read the file only if its version is new. Raises StorageError."""

    def read() -> str:
        with storage.open_read(status.path) as stream:
            return sha256_of(stream)

    version = storage.version(status.path) if status.size > _SMALL else None
    return _remembered(f"{status.path} {status.size} {version}", read) if version is not None else read()


def sha256_of_local(path: Path) -> str:
    """Return the SHA-256 of a file on this machine. Read the file only if its version is new. Raises OSError."""

    def read() -> str:
        with path.open("rb") as file:
            return sha256_of(file)

    stat = path.stat()
    if stat.st_size <= _SMALL:
        return read()
    # Users can set a file's modification time (mtime), but not its change time (ctime).
    return _remembered(f"{stat.st_dev} {stat.st_ino} {stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns}", read)


def _remembered(version: str, read: Callable[[], str]) -> str:
    note = user_cache() / "contents" / hashlib.sha256(version.encode()).hexdigest()
    try:
        if _SHA256.fullmatch(known := note.read_text()):
            os.utime(note)
            return known
    except FileNotFoundError:
        pass
    sha256 = read()
    try:
        _write(note, sha256)
    except OSError as error:
        log.warning("Cannot write %s, so the next submission reads a large file again: %s", note, error)
    return sha256


def _write(note: Path, sha256: str) -> None:
    note.parent.mkdir(mode=0o700, exist_ok=True)
    partial = note.with_name(f".{note.name}.{os.getpid()}")
    partial.write_text(sha256)
    partial.replace(note)
    notes = sorted(note.parent.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in notes[_MOST_NOTES:]:
        old.unlink(missing_ok=True)
