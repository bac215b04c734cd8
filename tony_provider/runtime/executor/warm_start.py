"""The files of an earlier model, from which the user process takes its initial weights: copied once per container.

A checkpoint chain stands for its newest checkpoint at that time.
"""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path

from tony_provider.runtime import contract
from tony_provider.runtime.cancellation import Cancelled
from tony_provider.runtime.checkpoint.checkpoint_model import is_checkpoint
from tony_provider.runtime.checkpoint.restore import copy_checkpoint
from tony_provider.runtime.storage import Storage, StorageNotFound, uris, walk
from tony_provider.runtime.storage.base import CHUNK

_AT_ONCE = 4  # files


def fetch(storage: Storage, uri: str, directory: Path, cancelled: threading.Event) -> None:
    """Copy the directory at ``uri`` to ``directory``, completely or not at all. A second call has no effect.

    Blocks. Raises StorageError, OSError, Cancelled; of a checkpoint chain also DamagedCheckpoint.
    """
    if directory.exists():
        return
    if _is_chain(storage, uri):
        copy_checkpoint(storage, uri, directory, 0, cancelled)
        return
    partial = directory.with_name(directory.name + ".part")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(mode=0o700)
    _copy(storage, uri, partial, cancelled)
    partial.rename(directory)


def _is_chain(storage: Storage, uri: str) -> bool:
    """Return whether ``uri`` names a checkpoint chain, or one of its checkpoints."""
    if is_checkpoint(uri):
        return True
    try:
        return not storage.status(uris.join(uri, contract.CHAIN_FILE)).is_directory
    except StorageNotFound:
        return False


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
