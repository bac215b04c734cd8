"""Files and directories on this machine: locks, private files, atomic writes, hashes, and removal. Blocks."""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

log = logging.getLogger(__name__)


def remove_tree(directory: Path) -> None:
    """Remove a directory and its content, even if a process has taken away permissions.

    Does nothing if the directory does not exist. If some content cannot be removed, it stays, and a warning is logged.
    """
    _unlock(directory)
    for parent, names, _ in os.walk(directory):  # os.walk lists each directory after this loop has unlocked it
        for name in names:
            _unlock(Path(parent, name))
    shutil.rmtree(directory, ignore_errors=True)
    if directory.exists():
        log.warning("could not remove %s", directory)


def _unlock(directory: Path) -> None:
    if not directory.is_symlink():
        with suppress(OSError):  # owned by another user, or gone: the caller checks what remains
            directory.chmod(0o700)


_POLL = 0.05  # seconds; flock() has no timeout


@contextmanager
def locked(path: Path, seconds: float) -> Iterator[None]:
    """Hold an exclusive lock on the file within the context. The system releases the lock if the process ends.

    Creates the file if it does not exist, and does not remove it.

    Raises TimeoutError if another process still holds the lock after ``seconds``. Raises OSError if the file cannot be
    opened.
    """
    deadline = time.monotonic() + seconds
    with path.open("a") as file:
        while not _try(file.fileno()):
            if time.monotonic() >= deadline:
                raise TimeoutError(f"another process has locked {path} for {seconds:g} s")
            time.sleep(_POLL)
        yield  # closing the file releases the lock


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def write_private_file(path: Path, content: bytes, *, replace: bool = True) -> None:
    """Write a file atomically, readable only by its owner from the start. Blocks. Raises OSError.

    Without ``replace``, keep a file that another process has written meanwhile.
    """
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        partial = Path(file.name)
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            if replace:
                partial.replace(path)
            else:
                _link_once(partial, path)
        finally:
            partial.unlink(missing_ok=True)


def _link_once(source: Path, target: Path) -> None:
    """Move the file unless the target exists."""
    try:
        os.link(source, target)
    except FileExistsError:
        return
    except OSError:  # a file system without hard links: replace the target, which has equal content
        source.replace(target)


def keep_newest(files: Iterable[Path], number: int) -> None:
    """Remove all files except the ``number`` most recently modified ones. Blocks. Raises OSError."""
    for old in sorted(files, key=lambda path: path.stat().st_mtime, reverse=True)[number:]:
        old.unlink(missing_ok=True)


_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class UnsafeDirectoryError(Exception):
    """Directory where another user could put files; the message names the directory and the remedy."""


def make_own_directory(path: Path) -> None:
    """Create a directory and its missing parents with mode 0700, and check it as ``expect_own_directory`` does.

    Blocks. Raises UnsafeDirectoryError, OSError.
    """
    expect_own_directory(path)
    for each in [*reversed(path.parents), path]:
        if not each.exists():
            each.mkdir(mode=0o700, exist_ok=True)
    expect_own_directory(path)


def expect_own_directory(path: Path) -> None:
    """Check that a directory, if it exists, is this user's, and that no other user can replace it or write there.

    Each parent directory must belong to this user or to root. A parent directory that other users can write must have
    the sticky bit, as /tmp has. Write permission for the group of this user or of root is accepted. The check covers
    links as well as the directories that they lead to. Blocks. Raises UnsafeDirectoryError, OSError.
    """
    absolute = Path(os.path.abspath(path))  # noqa: PTH100 - Path.resolve would follow links
    for way in (absolute, absolute.resolve()):
        for each in [*reversed(way.parents), way]:
            try:
                found = each.lstat()
            except (FileNotFoundError, NotADirectoryError):
                break  # it does not exist, so no other user has created it
            _check(each, found, is_goal=each == way)


def _check(path: Path, found: os.stat_result, *, is_goal: bool) -> None:
    is_link = stat.S_ISLNK(found.st_mode)
    if found.st_uid != os.getuid() and (found.st_uid != 0 or (is_goal and not is_link)):
        raise UnsafeDirectoryError(
            f"{path} belongs to user {found.st_uid} instead of this user {os.getuid()}; use a directory of this user"
        )
    if is_link:
        return  # no other user can change the link, because no other user can write its directory
    others = found.st_mode & _OTHERS
    if others == stat.S_IWGRP and found.st_gid in (0, os.getgid()):
        return
    if others and (is_goal or not found.st_mode & stat.S_ISVTX):
        raise UnsafeDirectoryError(
            f"other users may write to {path} (mode {stat.S_IMODE(found.st_mode):04o}); run: chmod go-w {path}"
        )


_CHUNK = 1 << 20  # bytes read at a time


def sha256_of(stream: BinaryIO) -> str:
    """Return the SHA-256 of the rest of a stream, in hexadecimal. Raises the errors of its ``read``."""
    digest = hashlib.sha256()
    while chunk := stream.read(_CHUNK):
        digest.update(chunk)
    return digest.hexdigest()
