"""Common operations on files, made of the few that a Storage has."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Callable, Optional, TypeVar

from tony_provider.runtime.storage.base import CHUNK, PRIVATE_FILE, Before, FileStatus, Storage, right_away
from tony_provider.runtime.storage.errors import StorageNotFound, StorageTooLarge

T = TypeVar("T")

_SIDE_BY_SIDE = 16  # files


def read_bytes(storage: Storage, uri: str, *, offset: int = 0, length: Optional[int] = None) -> bytes:
    """The bytes of a file from ``offset`` on, at most ``length`` of them."""
    with storage.open_read(uri, offset=offset, length=length) as stream:
        return stream.read()


def read_whole(storage: Storage, uri: str, most_bytes: int) -> bytes:
    """All of a small file: for what others write, with a bound of ``most_bytes``. Raises StorageTooLarge beyond it."""
    data = read_bytes(storage, uri, length=most_bytes + 1)
    if len(data) > most_bytes:
        raise StorageTooLarge(uri, "read", f"it has more than {most_bytes} bytes, which none of its kind has")
    return data


def read_text(storage: Storage, uri: str, *, offset: int = 0, length: Optional[int] = None) -> str:
    """The text of a file, as UTF-8; what is not is replaced, since a log may be cut anywhere.

    ``offset`` and ``length`` in bytes, as those of ``read_bytes``.
    """
    return read_bytes(storage, uri, offset=offset, length=length).decode("utf-8", "replace")


def write_atomically(
    storage: Storage,
    uri: str,
    data: bytes,
    *,
    permission: int = PRIVATE_FILE,
    before_it_appears: Before = right_away,
) -> int:
    """Put ``data`` in place of whatever the file held: readers see the old or the new bytes, never a mixture.

    Returns how many bytes that were. ``before_it_appears``: see ``Storage.write``.
    """
    return storage.write(uri, data, overwrite=True, permission=permission, before_it_appears=before_it_appears)


def write_in_order(writes: Sequence[Callable[[Before], T]]) -> list[T]:
    """Make files side by side that appear one after the other; returns what each of ``writes`` gives.

    Each is called in a thread, with what ``Storage.write`` is to call as ``before_it_appears``. Once one has failed, no
    later one appears; when all have ended, its error is raised. HDFS often takes 0.4 s for the end of a small file:
    this way it does so once.
    """
    with ThreadPoolExecutor(min(len(writes), _SIDE_BY_SIDE), thread_name_prefix="tony-writes") as pool:
        futures: list[Future[T]] = []
        for write in writes:
            # A thread waits for one that has begun before it: there are always enough of them.
            before: Before = futures[-1].result if futures else right_away
            futures.append(pool.submit(write, before))
        return [future.result() for future in futures]


def upload(storage: Storage, local: Path, uri: str, *, overwrite: bool = False, permission: int = PRIVATE_FILE) -> int:
    """Copy a local file to the store; returns its size in bytes. Raises OSError when it cannot be read."""
    with local.open("rb") as source:
        return storage.write(uri, source, overwrite=overwrite, permission=permission)


def download(storage: Storage, uri: str, local: Path, *, permission: int = PRIVATE_FILE) -> int:
    """Copy a file of the store to this machine; returns its size in bytes.

    The local file is replaced, and appears whole or not at all; its directory must exist. Raises OSError when it cannot
    be written.
    """
    partial = local.with_name(f".{local.name[:200]}.{os.getpid()}.part")
    try:
        with storage.open_read(uri) as source, partial.open("wb") as target:
            os.fchmod(target.fileno(), permission)
            shutil.copyfileobj(source, target, CHUNK)
            size = target.tell()
        partial.replace(local)
    finally:
        partial.unlink(missing_ok=True)
    return size


def walk(storage: Storage, uri: str, *, links: bool = True) -> Iterator[FileStatus]:
    """Everything below a directory, each directory before what is in it; what vanishes meanwhile is left out.

    Without ``links`` symbolic links are left out, too: they may lead anywhere, and back.
    Raises StorageNotFound, StorageNotADirectory for ``uri`` itself.
    """
    left = [iter(storage.list(uri))]  # and no recursion: a job may nest directories more deeply than Python calls
    while left:
        for status in left[-1]:
            if status.is_link and not links:
                continue
            yield status
            if status.is_directory:
                with suppress(StorageNotFound):
                    left.append(iter(storage.list(status.path)))
                    break
        else:
            left.pop()
