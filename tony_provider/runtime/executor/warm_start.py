"""The files of an earlier model, from which the user process takes its initial weights: copied once per container."""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path

from tony_provider.runtime.checkpoint.errors import Cancelled
from tony_provider.runtime.storage import Storage, uris, walk
from tony_provider.runtime.storage.base import CHUNK

_AT_ONCE = 4  # files


def fetch(storage: Storage, uri: str, directory: Path, cancelled: threading.Event) -> None:
    """Make ``directory`` hold what the directory at ``uri`` holds, whole or not at all; nothing is done a second time.

    Blocks. Raises StorageError, OSError, Cancelled.
    """
    if directory.exists():
        return
    partial = directory.with_name(directory.name + ".part")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(mode=0o700)
    _copy(storage, uri, partial, cancelled)
    partial.rename(directory)


def _copy(storage: Storage, uri: str, directory: Path, cancelled: threading.Event) -> None:
    files = []
    root = uris.parse(uri).path
    for status in walk(storage, uri):
        target = directory / uris.parse(status.path).path[len(root) :].lstrip("/")
        if status.is_directory:
            target.mkdir(mode=0o700)
        else:
            files.append((status.path, target))

    def copy(source: str, target: Path) -> None:
        with storage.open_read(source) as stream, target.open("xb") as file:
            while chunk := stream.read(CHUNK):
                if cancelled.is_set():
                    raise Cancelled(f"copying {uri} was cancelled")
                file.write(chunk)

    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="warm-start") as pool:
        copying = [pool.submit(copy, source, target) for source, target in files]
        done, rest = wait(copying, return_when=FIRST_EXCEPTION)
        for future in rest:
            future.cancel()
    for future in done:
        future.result()
