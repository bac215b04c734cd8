"""What a user process leaves, on its way to the store: uploaded aside, then there by one rename."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path

from tony_provider.runtime import contract
from tony_provider.runtime.executor.order import Order
from tony_provider.runtime.executor.returned import keep_returned, read_returned
from tony_provider.runtime.executor.stopping import Stopping
from tony_provider.runtime.executor.surroundings import Surroundings
from tony_provider.runtime.storage import Storage, StorageError, StorageExists, upload, uris

log = logging.getLogger(__name__)

_CANCEL_PATIENCE = 5.0  # seconds for an upload that was told to stop to clear away what it has made
_AT_ONCE = 4  # files in transfer; each holds a buffer of storage.base.CHUNK or so


class UploadCancelledError(Exception):
    """The upload was told to stop; nothing of it is left on the store."""


async def keep_results(its: Surroundings, order: Order, stopping: Stopping) -> str:
    """Commit what the user process left as its model to the store, and what it returned.

    The model's URI there, empty when it left none. Raises StorageError, OSError, ReturnedError, and
    UploadCancelledError when it was told to stop.
    """
    uploading = asyncio.ensure_future(asyncio.to_thread(_keep, its, order, stopping.cancelled))
    if not await stopping.bound(uploading, lambda: stopping.asked_at + _CANCEL_PATIENCE):
        raise UploadCancelledError("the upload did not end when it was told to")
    return uploading.result()


def _keep(its: Surroundings, order: Order, cancelled: threading.Event) -> str:
    directory, model = its.container.description.application_dir, its.workspace.model
    returned = read_returned(its.workspace.result_file)  # before the model, which may take long and be for nothing
    uri = ""
    if not is_empty(model):
        uri = commit_directory(its.storage, model, uris.join(directory, contract.MODEL_DIR), cancelled)
    keep_returned(its.storage, uris.join(directory, contract.RETURNED_FILE), returned, may_exist=order.start > 1)
    return uri


def is_empty(directory: Path) -> bool:
    """Whether nothing is there. Raises OSError when something else than a directory is."""
    return not directory.exists() or next(directory.iterdir(), None) is None


def commit_directory(storage: Storage, directory: Path, target: str, cancelled: threading.Event) -> str:
    """Make everything in ``directory`` the content of ``target``, a URI, which is returned. Blocks.

    What is there already (of a former generation) is replaced; between two renames there is nothing.
    Raises StorageError, OSError, UploadCancelledError.
    """
    mark = secrets.token_hex(4)
    temporary = f"{target}.tmp-{mark}"
    try:
        _upload_tree(storage, directory, temporary, cancelled)
        _put_in_place(storage, temporary, target, f"{target}.old-{mark}")
    except BaseException:
        storage.remove(temporary, recursive=True)
        raise
    return target


def _put_in_place(storage: Storage, temporary: str, target: str, former: str) -> None:
    try:
        storage.rename(temporary, target)
    except StorageExists:
        storage.rename(target, former)
        try:
            storage.rename(temporary, target)
        except StorageError:
            _put_back(storage, former, target)
            raise
        storage.remove(former, recursive=True)


def _put_back(storage: Storage, former: str, target: str) -> None:
    try:
        storage.rename(former, target)
    except StorageError as error:
        log.warning("what %s held before is now in %s: %s", target, former, error)


def _upload_tree(storage: Storage, directory: Path, target: str, cancelled: threading.Event) -> None:
    files: list[tuple[Path, str]] = []
    for path, relative in _walk(directory):
        if path.is_dir():
            storage.make_directories(uris.join(target, relative) if relative else target)
        elif path.is_file():
            files.append((path, uris.join(target, relative)))
        else:  # a FIFO would be read for ever
            raise OSError(f"{path} is neither a file nor a directory, nor a link to one")

    def send(path: Path, uri: str) -> None:
        if cancelled.is_set():
            raise UploadCancelledError("the upload was cancelled")
        upload(storage, path, uri)

    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="upload") as pool:
        sending = [pool.submit(send, path, uri) for path, uri in files]
        done, rest = wait(sending, return_when=FIRST_EXCEPTION)
        for future in rest:
            future.cancel()
    for future in done:
        future.result()


def _walk(directory: Path) -> Iterator[tuple[Path, str]]:
    """Every directory and file with its path below ``directory``, the directory itself first as the empty path.

    Symbolic links are followed, as copying would; one that leads back to a directory above it raises OSError.
    """
    for place, directories, names in os.walk(directory, onerror=_raise, followlinks=True):
        real = os.path.realpath(place)
        relative = Path(place).relative_to(directory)
        yield Path(place), "" if relative == Path() else relative.as_posix()
        for name in directories:
            entered = os.path.realpath(Path(place, name))
            if real == entered or real.startswith(entered.rstrip("/") + "/"):
                raise OSError(f"{Path(place, name)} is a link to a directory that it lies in")
        for name in sorted(names):
            yield Path(place, name), (relative / name).as_posix()


def _raise(error: OSError) -> None:
    raise error
