"""Results that executors upload to the store: the leader's model, exports and return value, and each container's log.

The module also contains ``UploadRetries``, which other uploads use.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Callable, Optional, TypeVar

import attrs

from tony_provider.runtime.artifacts.upload import is_empty_directory, publish_directory
from tony_provider.runtime.common import clock, contract
from tony_provider.runtime.common.codec import to_plain
from tony_provider.runtime.common.concurrency import Cancelled, pauses, wait_with_timeout
from tony_provider.runtime.common.quantities import count
from tony_provider.runtime.common.text import replaced
from tony_provider.runtime.executor.master_link import Send
from tony_provider.runtime.executor.output import KEPT_LIMIT, TAIL_LIMIT
from tony_provider.runtime.executor.start_context import (
    BackgroundWork,
    Deadline,
    ExecutorContext,
    StartOrder,
    StartPart,
    StopRequest,
)
from tony_provider.runtime.protocol import limits, tony_pb2
from tony_provider.runtime.protocol.http_messages import LONGEST_NOTE
from tony_provider.runtime.protocol.limits import RESERVED_KEY_REASON, reserved_key
from tony_provider.runtime.storage import (
    Storage,
    StorageError,
    StorageInvalidPath,
    StorageNotFound,
    StorageUnsupported,
    uris,
)
from tony_provider.runtime.storage.base import upload, write_atomically

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
        raise ReturnedError(f"{contract.ENV_RESULT_FILE} is neither a file nor a link to a file")
    with file.open("rb") as opened:
        data = opened.read(contract.MAX_RESULT + 1)
    if len(data) > contract.MAX_RESULT:
        raise ReturnedError(
            f"{contract.ENV_RESULT_FILE} has more than {contract.MAX_RESULT >> 20} MiB; write large data to "
            f"{contract.ENV_MODEL_DIR}"
        )
    try:
        plain = to_plain(json.loads(data))
        if key := reserved_key(plain):
            raise ReturnedError(f"{contract.ENV_RESULT_FILE} contains {key!a}, which {RESERVED_KEY_REASON}")
        return json.dumps(plain, allow_nan=False, ensure_ascii=False).encode()
    except RecursionError as error:
        raise ReturnedError(f"{contract.ENV_RESULT_FILE} is nested too deeply") from error
    except UnicodeEncodeError as error:  # JSON may contain half of a surrogate pair
        raise ReturnedError(f"{contract.ENV_RESULT_FILE} contains text that UTF-8 cannot encode: {error}") from error
    except ValueError as error:
        raise ReturnedError(f"{contract.ENV_RESULT_FILE} does not contain valid JSON: {error}") from error


T = TypeVar("T")

_FIRST_PAUSE = 2.0  # seconds after the first failed attempt; the pause doubles up to the next value
_LONGEST_PAUSE = 60.0
_FINAL = (OSError, StorageInvalidPath, StorageUnsupported)  # another attempt would fail in the same way


class NotStoredError(Exception):
    """The results of a successful process could not be stored. Running the process again would not help."""


class UploadRetries(StartPart):
    """Retries uploads of one start of the user process, each for at most ``timeouts.upload`` seconds."""

    def __init__(self, context: ExecutorContext, stop_request: StopRequest) -> None:
        super().__init__()
        self._context = context
        self._stop_request = stop_request

    async def run(self, work: Callable[[], T]) -> T:
        """Call ``work`` until it succeeds, and return its result.

        ``work`` blocks, and must raise Cancelled soon after the start is stopped. Raises NotStoredError, Cancelled.
        """
        deadline = time.monotonic() + self._context.container.job.timeouts.upload
        for pause in pauses(_FIRST_PAUSE, _LONGEST_PAUSE):
            try:
                return await self._try(work)
            except (ReturnedError, *_FINAL) as error:
                raise NotStoredError(f"the results of the task cannot be stored: {error}") from error
            except StorageError as error:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise NotStoredError(self._given_up(error)) from error
                self._note_failure(error, left)
            finally:
                self.activity = ""
            self.activity = "waiting to upload its results to the store"
            await self._pause(min(pause, left))
        raise AssertionError

    async def _try(self, work: Callable[[], T]) -> T:
        result = await self._stop_request.result_of(asyncio.to_thread(work), "the upload")
        self.problem = ""
        return result

    async def _pause(self, seconds: float) -> None:
        """Wait between two attempts. Raises Cancelled."""
        with suppress(asyncio.TimeoutError):
            await wait_with_timeout(self._stop_request.wait(), seconds)
        if self._stop_request.asked:
            raise Cancelled("stopped during the wait for the store")

    def _note_failure(self, error: StorageError, left: float) -> None:
        log.warning("cannot upload the results to the store, retrying for %.0f s: %s", left, error)
        if not self.problem:
            until = clock.time_of_day(clock.epoch_ms() + round(left * 1000))
            self.problem = f"cannot upload the results to the store, retrying until {until}: {error}"

    def _given_up(self, error: StorageError) -> str:
        context = self._context
        return (
            f"its results could not be uploaded within {context.container.job.timeouts.upload:g} s (timeouts.upload): "
            f"{error}. They are in {context.workspace.root} on {context.container.node_host} until YARN removes the "
            "directory of the container"
        )


async def keep_results(
    context: ExecutorContext,
    order: StartOrder,
    stop_request: StopRequest,
    retries: UploadRetries,
    warn: Callable[[str], None],
) -> str:
    """Upload the model and the return value of the user process.

    Return the URI of the model, or an empty text if there is none. ``warn``: see DirectoryUpload.

    Raises NotStoredError, Cancelled.
    """
    return await retries.run(partial(_keep, context, order, stop_request.cancelled, warn))


def _keep(context: ExecutorContext, order: StartOrder, cancelled: threading.Event, warn: Callable[[str], None]) -> str:
    directory, model = context.container.description.application_dir, context.workspace.model
    returned = read_returned(context.workspace.result_file)  # first: an invalid value would make the upload useless
    uri = ""
    if not is_empty_directory(model):
        uri = publish_directory(context.storage, model, uris.join(directory, contract.MODEL_DIR), cancelled, warn)
    value = uris.join(directory, contract.RETURN_VALUE_FILE)
    if returned is not None:
        write_atomically(context.storage, value, returned)
    elif order.start > 1:  # an earlier start may have written a value
        context.storage.remove(value)
    return uri


async def read_log(context: ExecutorContext, limit: int = KEPT_LIMIT) -> bytes:
    """Return the last ``limit`` bytes of the log. If the log cannot be read, log the reason and return no bytes."""
    try:
        return await asyncio.to_thread(context.output.both.last, limit, context.container.user_secrets.values())
    except OSError as error:
        log.warning("the log cannot be read: %s", error)
        return b""


def largest_sent_log(context: ExecutorContext) -> int:
    """Return the limit in bytes for a log that the master stores together with the logs of other containers.

    The limit is lower for large jobs, because the master has the logs of all containers in memory.
    """
    return min(limits.LAST_WORDS, limits.SENT_LOGS // context.container.job.size)


async def send_last_words(context: ExecutorContext, send: Send) -> None:
    """Send the end of the output before the container is killed, unless the output is empty."""
    if data := await read_log(context, largest_sent_log(context) - LONGEST_NOTE):
        tail = data[-TAIL_LIMIT:].decode("utf-8", "replace")
        send(tony_pb2.FromExecutor(last_words=tony_pb2.LastWords(output=data, tail=tail)))


_LOG_TIMEOUT = 20.0  # seconds for the upload of the log; the application master waits longer, for KEEP_LOGS


async def upload_log(context: ExecutorContext, data: bytes) -> None:
    """Write the log to the store unless it is empty. Failures are only logged, because YARN also keeps the log."""
    container = context.container
    name = contract.log_name(container.identity.task, container.identity.attempt)
    target = uris.join(container.description.application_dir, contract.LOGS_DIR, name)
    try:
        if data:
            writing = asyncio.to_thread(partial(context.storage.write, target, data, overwrite=True))
            await wait_with_timeout(writing, _LOG_TIMEOUT)
    except asyncio.TimeoutError:
        log.warning("the log could not be uploaded within %g s", _LOG_TIMEOUT)
    except (StorageError, OSError) as error:
        log.warning("the log could not be uploaded: %s", error)


_DEBUG_LIMIT = 64 << 20  # bytes of all files of a start
_DEBUG_FILES = 200


async def keep_debug_files(context: ExecutorContext, start: int) -> str:
    """Copy the files in TONY_DEBUG_DIR of processes that failed or were stopped to the logs.

    Return the problem, or "".
    """
    files = [
        (f"process-{workspace.local_rank}-{file.name}" if workspace.local_rank else file.name, file)
        for workspace in context.workspaces
        for file in sorted(workspace.debug.glob("*"))
        if file.is_file() and not file.is_symlink()
    ]
    container, size = context.container, sum(file.stat().st_size for _, file in files)
    if size > _DEBUG_LIMIT or len(files) > _DEBUG_FILES:
        limit = f"the limit is {_DEBUG_FILES} files and {_DEBUG_LIMIT >> 20} MiB in total"
        return f"{contract.ENV_DEBUG_DIR}: none of its {len(files)} files ({size} bytes) was kept; {limit}"
    log_name = contract.log_name(container.identity.task, container.identity.attempt)
    directory = uris.join(container.description.application_dir, contract.LOGS_DIR, f"{log_name}.debug-{start}")

    def upload_all() -> None:
        for name, file in files:
            upload(context.storage, file, uris.join(directory, name), overwrite=True)

    try:
        if files:
            await wait_with_timeout(asyncio.to_thread(upload_all), _LOG_TIMEOUT)
            context.output.note(f"kept {count(len(files), 'file')} of {contract.ENV_DEBUG_DIR} in {directory}")
    except (asyncio.TimeoutError, StorageError, OSError) as error:
        return f"{contract.ENV_DEBUG_DIR}: its files could not be kept: {error or type(error).__name__}"
    return ""


_LOOK = 1.5  # seconds between two scans of the directory


@attrs.frozen
class _Found:
    """A complete export that waits for its upload."""

    step: int
    local: Path
    found_ms: int  # epoch
    asked_ms: int  # epoch; newest request before the export was found, or 0 without a request


class ModelExports(BackgroundWork):
    """The exports of one start of the leading task's user process: finds, uploads and reports them.

    Call ``start``, ``finish`` and ``close`` once. A problem with an export never ends the training.
    """

    def __init__(self, context: ExecutorContext, send: Send, warn: Callable[[str], None]) -> None:
        """Prepare the watch. ``warn``: see DirectoryUpload."""
        super().__init__("exports")
        self._warn = warn
        self._context = context
        self._send = send
        self._keep_last = context.container.job.export.keep_last
        self._target = uris.join(context.container.description.application_dir, contract.EXPORTS_DIR)
        self._asked_ms = 0  # epoch; newest request that the process got, or 0 without a request
        self._waiting: dict[int, _Found] = {}  # by step, in the order of their appearance
        self._scanning = asyncio.Lock()
        self._cancelled = threading.Event()

    async def ask(self, wanted: tony_pb2.ExportNow) -> None:
        """Request an export from the user process, unless it already got this request."""
        if self._work is None or self._ended:
            return
        await self._scan()  # exports that exist already are not the result of this request
        if wanted.asked_ms == self._asked_ms:  # after the scan, because the request may be repeated during the scan
            return
        self._asked_ms = wanted.asked_ms
        try:
            await asyncio.to_thread(self._context.workspace.request_export, wanted.reason)
        except OSError as error:
            log.warning("cannot request an export from the user process: %s", error)

    async def finish(self, stop_request: StopRequest, deadline: Deadline) -> None:
        """Upload the remaining exports after the user process has ended, until the deadline."""
        if self._work is None:
            return  # no process ever ran
        if await self._end(self._work, stop_request, deadline):
            return
        await self.close()
        for found in list(self._waiting.values()):
            await self._drop(found, "there was no time to upload it after the process had ended")

    async def close(self) -> None:
        self._cancelled.set()
        await super().close()
        self.activity = ""

    # ---- the work ----------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        tries = pauses(_FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            last = self._ended
            await self._scan()
            await self._drop_older()
            if not await self._upload_all():
                await self._pause(next(tries))
            elif last:
                return
            else:
                tries = pauses(_FIRST_PAUSE, _LONGEST_PAUSE)
                await self._pause(_LOOK)

    async def _upload_all(self) -> bool:
        """Upload the waiting exports. Return False if one must be retried."""
        for found in list(self._waiting.values()):
            if not await self._upload(found):
                return False
        return True

    async def _scan(self) -> None:
        """Find exports that have appeared."""
        async with self._scanning:
            try:
                for step, path in await asyncio.to_thread(_exports_in, self._context.workspace.exports):
                    if step not in self._waiting:
                        self._waiting[step] = _Found(step, path, clock.epoch_ms(), self._asked_ms)
            except OSError as error:
                self._note(f"the directory of exports cannot be read: {error}")

    async def _drop_older(self) -> None:
        """Drop the oldest waiting exports if more are waiting than the store keeps."""
        for found in list(self._waiting.values())[: -self._keep_last]:
            await self._drop(found, f"{self._keep_last} newer exports (export.keep_last) existed before its upload")

    async def _upload(self, found: _Found) -> bool:
        """Upload an export. Return False if it must be retried, and True if it is stored or dropped."""
        name, storage = contract.export_name(found.step), self._context.storage
        self.activity = f"uploading the export of step {found.step}"
        try:
            uri = uris.join(self._target, name)
            await self._in_thread(_commit, storage, found.local, uri, self._cancelled, self._warn)
            await self._in_thread(_prune, storage, self._target, name, self._keep_last)
        except _FINAL as error:
            await self._drop(found, str(error))
            return True
        except StorageError as error:
            self._note(f"cannot upload the export of step {found.step} to the store, retrying: {error}")
            return False
        finally:
            self.activity = ""
        self.problem = ""
        await self._conclude(found, tony_pb2.Exported(uri=uri))
        return True

    async def _drop(self, found: _Found, problem: str) -> None:
        log.warning("the export of step %d is not stored: %s", found.step, problem)
        await self._conclude(found, tony_pb2.Exported(problem=replaced(problem)))

    async def _conclude(self, found: _Found, message: tony_pb2.Exported) -> None:
        """Send the result of an export, and remove its files."""
        message.step, message.exported_ms, message.asked_ms = found.step, found.found_ms, found.asked_ms
        concluded = tony_pb2.FromExecutor(exported=message)
        self._replay = [concluded]
        self._send(concluded)
        async with self._scanning:  # otherwise a scan would find the export again
            await asyncio.to_thread(_remove, found.local)
            del self._waiting[found.step]

    def _note(self, problem: str) -> None:
        if problem != self.problem:
            log.warning("%s", problem)
        self.problem = self.problem or problem


def _exports_in(directory: Path) -> Iterable[tuple[int, Path]]:
    """Return the steps and paths of complete exports, oldest first. Blocks. Raises OSError."""
    if not directory.is_dir():
        return []  # the program has removed it
    named = [(contract.step_of_export(path.name), path) for path in directory.iterdir()]
    found = [(path.lstat().st_mtime_ns, step, path) for step, path in named if step is not None]
    return [(step, path) for _, step, path in sorted(found)]


def _commit(storage: Storage, local: Path, uri: str, cancelled: threading.Event, warn: Callable[[str], None]) -> None:
    """Upload an export, unless the store already has it, because readers may use that copy. Blocks.

    Raises OSError and the errors of ``publish_directory``.
    """
    if local.is_symlink() or not local.is_dir():
        raise OSError(f"{local.name} is not a directory")
    if is_empty_directory(local):
        raise OSError(f"{local.name} is empty")
    if not storage.exists(uri):
        publish_directory(storage, local, uri, cancelled, warn)


def _prune(storage: Storage, directory: str, newest: str, keep_last: int) -> None:
    """Remove all but the newest ``keep_last`` exports from the store, and log a failure. Blocks."""
    try:
        whole = [each for each in storage.list(directory) if contract.step_of_export(each.name) is not None]
        whole.sort(key=lambda each: (each.name == newest, each.modified_ms, contract.step_of_export(each.name)))
        for each in whole[:-keep_last]:
            storage.remove(each.path, recursive=True)
    except StorageNotFound:
        return
    except StorageError as error:
        log.warning("could not remove older exports from the store: %s", error)


def _remove(path: Path) -> None:
    """Remove an export from the container. Entries that cannot be removed stay until the container ends. Blocks."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
