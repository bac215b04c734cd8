"""Upload of model exports that the leading task's program makes while it trains."""

from __future__ import annotations

import asyncio
import logging
import shutil
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Callable

import attrs

from tony_provider.runtime.artifacts.directory_upload import is_empty_directory, publish_directory
from tony_provider.runtime.common import clock, contract
from tony_provider.runtime.common.concurrency import pauses
from tony_provider.runtime.common.text import replaced
from tony_provider.runtime.executor.master_link import Send
from tony_provider.runtime.executor.start_context import Deadline, ExecutorContext, StopRequest
from tony_provider.runtime.executor.start_part import BackgroundWork
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.storage import (
    Storage,
    StorageError,
    StorageInvalidPath,
    StorageNotFound,
    StorageUnsupported,
    uris,
)

log = logging.getLogger(__name__)

_LOOK = 1.5  # seconds between two scans of the directory
_FIRST_PAUSE = 2.0  # seconds after the first failed attempt; the pause doubles up to the next value
_LONGEST_PAUSE = 60.0
_FINAL = (OSError, StorageInvalidPath, StorageUnsupported)  # another attempt would fail in the same way


@attrs.frozen
class _Found:
    """A complete export that waits for its upload."""

    step: int
    local: Path
    found_ms: int  # epoch
    asked_ms: int  # time of the newest request before it


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
        self._asked_ms = 0  # time of the newest request that the process got
        self._waiting: dict[int, _Found] = {}  # by step, in the order of their appearance
        self._scanning = asyncio.Lock()
        self._cancelled = threading.Event()

    async def ask(self, wanted: tony_pb2.ExportNow) -> None:
        """Request an export from the user process, unless it already got this request."""
        if self._work is None or self._ended or wanted.asked_ms == self._asked_ms:
            return
        await self._scan()  # exports that exist by now are no answer
        self._asked_ms = wanted.asked_ms
        try:
            await asyncio.to_thread(self._context.workspace.request_export, wanted.reason)
        except OSError as error:
            log.warning("the user process cannot be asked for an export: %s", error)

    async def finish(self, stop_request: StopRequest, deadline: Deadline) -> None:
        """Upload the remaining exports after the user process has ended, until the deadline."""
        if self._work is None:
            return  # no process ever ran
        if await self._end(self._work, stop_request, deadline):
            return
        await self.close()
        for found in list(self._waiting.values()):
            await self._drop(found, "no time was left to upload it once the process had ended")

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
        """Drop exports beyond the number that the store keeps."""
        for found in list(self._waiting.values())[: -self._keep_last]:
            await self._drop(
                found, f"{self._keep_last} newer ones (export.keep_last) were there before it could be uploaded"
            )

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
            self._note(f"the export of step {found.step} does not get to the store, and is tried again: {error}")
            return False
        finally:
            self.activity = ""
        self.problem = ""
        await self._conclude(found, tony_pb2.Exported(uri=uri))
        return True

    async def _drop(self, found: _Found, problem: str) -> None:
        log.warning("the export of step %d is not kept: %s", found.step, problem)
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
    """Upload an export, unless it already exists and may be in use. Blocks.

    Raises OSError and the errors of ``publish_directory``.
    """
    if local.is_symlink() or not local.is_dir():
        raise OSError(f"{local.name} is no directory")
    if is_empty_directory(local):
        raise OSError(f"{local.name} is empty")
    if not storage.exists(uri):
        publish_directory(storage, local, uri, cancelled, warn)


def _prune(storage: Storage, directory: str, newest: str, keep_last: int) -> None:
    """Remove all but the newest exports from the store. If the store refuses, they stay for now. Blocks."""
    try:
        whole = [each for each in storage.list(directory) if contract.step_of_export(each.name) is not None]
        whole.sort(key=lambda each: (each.name == newest, each.modified_ms, contract.step_of_export(each.name)))
        for each in whole[:-keep_last]:
            storage.remove(each.path, recursive=True)
    except StorageNotFound:
        return
    except StorageError as error:
        log.warning("older exports are left for now: %s", error)


def _remove(path: Path) -> None:
    """Remove an export from the container. Entries that cannot be removed last as long as the container. Blocks."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
