"""The upload of what a user process leaves: put aside on the store, then in place by one rename."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import threading
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path

from tony_provider.runtime import clock, contract
from tony_provider.runtime.deadline import within
from tony_provider.runtime.executor.executor_context import ExecutorContext
from tony_provider.runtime.executor.order import Order
from tony_provider.runtime.executor.process_stop import ProcessStop
from tony_provider.runtime.executor.return_value import ReturnedError, keep_returned, read_returned
from tony_provider.runtime.retrying import pauses
from tony_provider.runtime.storage import (
    Storage,
    StorageError,
    StorageExists,
    StorageInvalidPath,
    StorageUnsupported,
    upload,
    uris,
)

log = logging.getLogger(__name__)

_CANCEL_TIMEOUT = 5.0  # seconds for an upload that was told to stop to clear away what it has made
_AT_ONCE = 4  # files in transfer; each holds a buffer of storage.base.CHUNK or so


_FIRST_PAUSE = 2.0  # seconds between the first tries, doubled up to
_LONGEST_PAUSE = 60.0
_FINAL = (ReturnedError, OSError, StorageInvalidPath, StorageUnsupported)  # again it would be the same


class UploadCancelledError(Exception):
    """The upload was told to stop; nothing of it is left on the store."""


class NotKeptError(Exception):
    """What a process that has ended well left could not be kept. To run it again would not mend that."""


class Results:
    """The results of one start of the leading task, and their upload. ``keep`` it once."""

    def __init__(self, context: ExecutorContext, order: Order, stopping: ProcessStop) -> None:
        self.activity = ""  # for people; empty while nothing is tried again
        self.trouble = ""  # likewise, once for all tries
        self._context = context
        self._order = order
        self._stopping = stopping

    async def keep(self) -> str:
        """Commit what the user process left as its model to the store, and what it returned.

        Tried again and again, for ``timeouts.upload``: what it has cost to train is worth more than the wait. Returns
        the model's URI there, empty when it left none. Raises NotKeptError, and UploadCancelledError when it was told
        to stop.
        """
        deadline = time.monotonic() + self._context.container.job.timeouts.upload
        for pause in pauses(_FIRST_PAUSE, _LONGEST_PAUSE):
            try:
                return await self._try()
            except _FINAL as error:
                raise NotKeptError(f"what it left cannot be kept: {error}") from error
            except StorageError as error:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise NotKeptError(self._given_up(error)) from error
                self._tell(error, left)
            finally:
                self.activity = ""
            self.activity = "waiting for the store, to keep its results"
            await self._pause(min(pause, left))
        raise AssertionError

    async def _try(self) -> str:
        uploading = asyncio.ensure_future(
            asyncio.to_thread(_keep, self._context, self._order, self._stopping.cancelled)
        )
        if not await self._stopping.bound(uploading, lambda: self._stopping.asked_at + _CANCEL_TIMEOUT):
            raise UploadCancelledError("the upload did not end when it was told to")
        result = uploading.result()
        self.trouble = ""
        return result

    async def _pause(self, seconds: float) -> None:
        """Raises UploadCancelledError."""
        with suppress(asyncio.TimeoutError):
            await within(self._stopping.wait(), seconds)
        if self._stopping.asked:
            raise UploadCancelledError("told to stop while it waited for the store")

    def _tell(self, error: StorageError, left: float) -> None:
        log.warning("the results are not on the store yet, trying for %.0f s more: %s", left, error)
        if not self.trouble:
            until = clock.time_of_day(clock.epoch_ms() + round(left * 1000))
            self.trouble = f"its results do not get to the store, tried again until {until}: {error}"

    def _given_up(self, error: StorageError) -> str:
        context = self._context
        return (
            f"what it left could not be kept within {context.container.job.timeouts.upload:g} s (timeouts.upload): "
            f"{error}. It is in {context.workspace.root} on {context.container.host}, until YARN removes the directory "
            "of the container"
        )


def _keep(context: ExecutorContext, order: Order, cancelled: threading.Event) -> str:
    directory, model = context.container.description.application_dir, context.workspace.model
    returned = read_returned(context.workspace.result_file)  # before the model, which may take long and be for nothing
    uri = ""
    if not is_empty(model):
        uri = commit_directory(context.storage, model, uris.join(directory, contract.MODEL_DIR), cancelled)
    keep_returned(
        context.storage, uris.join(directory, contract.RETURN_VALUE_FILE), returned, may_exist=order.start > 1
    )
    return uri


def is_empty(directory: Path) -> bool:
    """Whether nothing is in the directory. Raises OSError when something else than a directory is there."""
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
        _check(cancelled)
        _put_in_place(storage, temporary, target, f"{target}.old-{mark}")
    except BaseException:
        _remove(storage, temporary)
        raise
    return target


def _check(cancelled: threading.Event) -> None:
    if cancelled.is_set():
        raise UploadCancelledError("the upload was cancelled")


def _remove(storage: Storage, uri: str) -> None:
    """What is in the way of an error that is to be told is only logged."""
    try:
        storage.remove(uri, recursive=True)
    except StorageError as error:
        log.warning("%s is left on the store: %s", uri, error)


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
        _check(cancelled)
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
