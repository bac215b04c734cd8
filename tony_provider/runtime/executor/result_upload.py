"""Upload of the leading task's results: the model directory, and the return value in ``TONY_RESULT_FILE``.

The module also contains the upload of directories and the retries that other uploads use.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Callable, Optional, TypeVar

import attrs

from tony_provider.runtime.common import clock, contract
from tony_provider.runtime.common.codec import to_plain
from tony_provider.runtime.common.concurrency import in_parallel, pauses, wait_with_timeout
from tony_provider.runtime.executor.start_context import ExecutorContext, StartOrder, StopRequest
from tony_provider.runtime.protocol.limits import RESERVED_KEY_REASON, reserved_key
from tony_provider.runtime.storage import (
    Storage,
    StorageError,
    StorageExists,
    StorageInvalidPath,
    StorageUnsupported,
    upload,
    uris,
)
from tony_provider.runtime.storage.base import PRIVATE_DIRECTORY, PRIVATE_FILE, write_atomically
from tony_provider.runtime.storage.webhdfs.store import SCHEMES

log = logging.getLogger(__name__)


class ReturnedError(Exception):
    """The content of TONY_RESULT_FILE is not a valid return value."""


def read_returned(file: Path) -> Optional[bytes]:
    """Return the content of the file as strict JSON, with infinity and NaN as text. Return None if there is no file.

    Raises ReturnedError, OSError.
    """
    if not os.path.lexists(file):
        return None
    if not file.is_file():  # reading a FIFO would block forever
        raise ReturnedError(f"{contract.ENV_RESULT_FILE} is no file, nor a link to one")
    with file.open("rb") as opened:
        data = opened.read(contract.MAX_RESULT + 1)
    if len(data) > contract.MAX_RESULT:
        raise ReturnedError(
            f"{contract.ENV_RESULT_FILE} holds more than {contract.MAX_RESULT >> 20} MiB; leave what is large in "
            f"{contract.ENV_MODEL_DIR}"
        )
    try:
        plain = to_plain(json.loads(data))
        if key := reserved_key(plain):
            raise ReturnedError(f"{contract.ENV_RESULT_FILE} holds {key!a}, which {RESERVED_KEY_REASON}")
        return json.dumps(plain, allow_nan=False, ensure_ascii=False).encode()
    except RecursionError as error:
        raise ReturnedError(f"{contract.ENV_RESULT_FILE} is nested too deeply") from error
    except UnicodeEncodeError as error:  # JSON may contain half of a surrogate pair
        raise ReturnedError(f"{contract.ENV_RESULT_FILE} holds text that UTF-8 cannot write: {error}") from error
    except ValueError as error:
        raise ReturnedError(f"{contract.ENV_RESULT_FILE} holds no JSON: {error}") from error


def keep_returned(storage: Storage, uri: str, returned: Optional[bytes], *, may_exist: bool) -> None:
    """Write the return value to ``uri``, or remove a former one if there is no value. Blocks. Raises StorageError.

    ``may_exist``: an earlier start may have written a value.
    """
    if returned is not None:
        write_atomically(storage, uri, returned)
    elif may_exist:
        storage.remove(uri)


_AT_ONCE = 4  # concurrent file transfers; each has a buffer of about storage.base.CHUNK


class UploadCancelledError(Exception):
    """The upload was cancelled."""


def is_empty_directory(directory: Path) -> bool:
    """Return whether the directory is empty or missing. Raises OSError if the path is not a directory."""
    return not directory.exists() or next(directory.iterdir(), None) is None


def check_cancelled(cancelled: threading.Event) -> None:
    """Raise UploadCancelledError if the upload is cancelled."""
    if cancelled.is_set():
        raise UploadCancelledError("the upload was cancelled")


@attrs.frozen
class TreeUpload:
    """Copies directories to the store. All methods block."""

    storage: Storage
    cancelled: threading.Event
    warn: Callable[[str], None]  # called for each entry that is left out or renamed
    file_permission: int = PRIVATE_FILE
    directory_permission: int = PRIVATE_DIRECTORY
    overwrite: bool = False  # replace existing files, which otherwise are an error

    def run(self, directory: Path, target: str, wanted: Callable[[str], bool] = lambda path: True) -> tuple[int, int]:
        """Copy the content of ``directory`` to the URI ``target``. Return the numbers of files and bytes.

        Broken links, links to a directory above them, and entries that are neither files nor directories are left out.
        HDFS does not permit colons in names, so they become ``%3A`` there. ``wanted`` gets the path of a file in the
        directory and returns whether to copy the file. Raises StorageError, OSError, UploadCancelledError.
        """
        sizes = in_parallel(
            lambda path: self.send(directory / path, uris.join(target, stored_path(target, path))),
            self._files(directory, target, wanted),
            _AT_ONCE,
            "upload",
        )
        files = size = 0
        for each in sizes:
            files, size = files + 1, size + each
        return files, size

    def send(self, path: Path, uri: str) -> int:
        """Copy one file. Return its size in bytes. Raises the errors of ``run``."""
        check_cancelled(self.cancelled)
        return upload(self.storage, path, uri, overwrite=self.overwrite, permission=self.file_permission)

    def _files(self, directory: Path, target: str, wanted: Callable[[str], bool]) -> Iterator[str]:
        for path, relative in walk_local(directory, self.warn):
            stored = stored_path(target, relative)
            if path.is_dir():
                self.storage.make_directories(uris.join(target, stored), permission=self.directory_permission)
            elif not path.is_file():  # reading a FIFO would block forever
                self.warn(f"{path} is neither a file nor a directory, nor a link to one, so it is not stored")
            elif stored != relative and os.path.lexists(directory / stored):
                self.warn(f"{path} is not stored, because {stored}, the name that HDFS permits, is another file")
            elif wanted(relative):
                if stored != relative:
                    self.warn(f"{path} is stored as {stored}, because HDFS does not permit colons in names")
                yield relative


def stored_path(target: str, path: str) -> str:
    """Return the path below the URI ``target`` under which a local path is stored."""
    return path.replace(":", "%3A") if uris.scheme(target) in SCHEMES else path


def walk_local(directory: Path, warn: Callable[[str], None]) -> Iterator[tuple[Path, str]]:
    """Yield every directory and file with its path below ``directory``, first the directory itself with an empty path.

    Follows symbolic links, like a copy. Links to a directory above them are left out. Raises OSError.
    """
    for place, directories, names in os.walk(directory, onerror=_raise, followlinks=True):
        real = os.path.realpath(place)
        relative = Path(place).relative_to(directory)
        yield Path(place), "" if relative == Path() else relative.as_posix()
        for name in list(directories):
            entered = os.path.realpath(Path(place, name))
            if real == entered or real.startswith(entered.rstrip("/") + "/"):
                warn(f"{Path(place, name)} is a link to a directory that contains it, so it is not stored")
                directories.remove(name)
        for name in sorted(names):
            yield Path(place, name), (relative / name).as_posix()


def _raise(error: OSError) -> None:
    raise error


T = TypeVar("T")

_CANCEL_TIMEOUT = 5.0  # seconds for a cancelled upload to remove its objects
_FIRST_PAUSE = 2.0  # seconds after the first failed attempt; the pause doubles up to the next value
_LONGEST_PAUSE = 60.0
_FINAL = (ReturnedError, OSError, StorageInvalidPath, StorageUnsupported)  # another attempt would fail in the same way


class NotStoredError(Exception):
    """The results of a successful process could not be stored. Another run would not help."""


class UploadRetries:
    """Retries uploads of one start of the user process, each for at most ``timeouts.upload`` seconds."""

    def __init__(self, context: ExecutorContext, stopping: StopRequest) -> None:
        self.activity = ""  # description of the present wait, for the status; otherwise empty
        self.trouble = ""  # the present problem, for the status; otherwise empty
        self._context = context
        self._stopping = stopping

    async def run(self, work: Callable[[], T]) -> T:
        """Return the result of ``work``, which blocks and raises UploadCancelledError soon after the start is stopped.

        Raises NotStoredError, UploadCancelledError.
        """
        deadline = time.monotonic() + self._context.container.job.timeouts.upload
        for pause in pauses(_FIRST_PAUSE, _LONGEST_PAUSE):
            try:
                return await self._try(work)
            except _FINAL as error:
                raise NotStoredError(f"what it left cannot be kept: {error}") from error
            except StorageError as error:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise NotStoredError(self._given_up(error)) from error
                self._tell(error, left)
            finally:
                self.activity = ""
            self.activity = "waiting for the store, to keep its results"
            await self._pause(min(pause, left))
        raise AssertionError

    async def _try(self, work: Callable[[], T]) -> T:
        uploading = asyncio.ensure_future(asyncio.to_thread(work))
        if not await self._stopping.bound(uploading, lambda: self._stopping.asked_at + _CANCEL_TIMEOUT):
            raise UploadCancelledError("the upload did not end when it was told to")
        result = uploading.result()
        self.trouble = ""
        return result

    async def _pause(self, seconds: float) -> None:
        """Wait between two attempts. Raises UploadCancelledError."""
        with suppress(asyncio.TimeoutError):
            await wait_with_timeout(self._stopping.wait(), seconds)
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
            f"{error}. It is in {context.workspace.root} on {context.container.node_host}, until YARN removes the "
            "directory of the container"
        )


async def keep_results(
    context: ExecutorContext,
    order: StartOrder,
    stopping: StopRequest,
    retries: UploadRetries,
    warn: Callable[[str], None],
) -> str:
    """Upload the model and the return value of the user process.

    Return the URI of the model, or an empty text if there is none. ``warn``: see TreeUpload. Raises NotStoredError,
    UploadCancelledError.
    """
    return await retries.run(partial(_keep, context, order, stopping.cancelled, warn))


def _keep(context: ExecutorContext, order: StartOrder, cancelled: threading.Event, warn: Callable[[str], None]) -> str:
    directory, model = context.container.description.application_dir, context.workspace.model
    returned = read_returned(context.workspace.result_file)  # first: an invalid value would waste the model's upload
    uri = ""
    if not is_empty_directory(model):
        uri = commit_directory(context.storage, model, uris.join(directory, contract.MODEL_DIR), cancelled, warn)
    keep_returned(
        context.storage, uris.join(directory, contract.RETURN_VALUE_FILE), returned, may_exist=order.start > 1
    )
    return uri


def commit_directory(
    storage: Storage, directory: Path, target: str, cancelled: threading.Event, warn: Callable[[str], None]
) -> str:
    """Make the content of ``directory`` the content of the URI ``target``, and return ``target``. Blocks.

    Existing content (of a former generation) is replaced. Between two renames ``target`` does not exist. Raises
    StorageError, OSError, UploadCancelledError.
    """
    mark = secrets.token_hex(4)
    temporary = f"{target}.tmp-{mark}"
    try:
        TreeUpload(storage, cancelled, warn).run(directory, temporary)
        check_cancelled(cancelled)
        _put_in_place(storage, temporary, target, f"{target}.old-{mark}")
    except BaseException:
        _remove(storage, temporary)
        raise
    return target


def _remove(storage: Storage, uri: str) -> None:
    """Remove a directory. Only log a failure, so that the original error is reported."""
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
