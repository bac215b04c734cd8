"""Transfer of TensorBoard event files between a container and the store.

Each task uploads its event files. The container that shows TensorBoard downloads the event files of all tasks.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from abc import abstractmethod
from pathlib import Path

from tony_provider.runtime.artifacts.directory_upload import DirectoryUpload
from tony_provider.runtime.artifacts.tree import FileVersion, Tree, scan
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.concurrency import wait_with_timeout
from tony_provider.runtime.event_files.event_file_mirror import EventFileMirror
from tony_provider.runtime.executor.start_context import BackgroundWork, ExecutorContext
from tony_provider.runtime.storage import Storage, StorageError, StorageUnreachable, uris

log = logging.getLogger(__name__)

UPLOAD_LIMIT = 2 << 30  # bytes of one task's files; larger totals are left out
UPLOADED_FILES_LIMIT = 1000


def oldest_first(tree: Tree) -> list[tuple[str, FileVersion]]:
    """Return the files of a tree with their paths, the oldest first."""
    files = ((path, node.version) for path, node in tree.files.items())
    return sorted(files, key=lambda file: (file[1].mtime_ns, file[0]))


_PAUSE = 5.0  # seconds between two rounds
_SHARE = 20.0  # ratio of pause to duration of a round, which keeps the load below 5 %
_LONGEST_PAUSE = 300.0


class PeriodicTransfer(BackgroundWork):
    """Work that is repeated. Problems with the store or the disk only delay it. Create it within an event loop."""

    def __init__(self) -> None:
        super().__init__("event-files")
        self._logged = ""  # the last logged problem, which is not logged twice
        self.cancelled = threading.Event()

    @abstractmethod
    def round(self) -> None:
        """Do the work once, in the thread. Return soon after ``cancelled`` is set. Raises StorageError, OSError."""

    async def finish(self, seconds: float) -> None:
        """Finish the current round and do a last one, within ``seconds``."""
        try:
            await wait_with_timeout(self._round(), seconds)
        except asyncio.TimeoutError:
            log.warning("no time was left for the last event files")
        finally:
            self.cancelled.set()
            await self.close()

    async def _run(self) -> None:
        while True:
            began = time.monotonic()
            await self._round()
            await asyncio.sleep(min(max(_PAUSE, _SHARE * (time.monotonic() - began)), _LONGEST_PAUSE))

    async def _round(self) -> None:
        if self.cancelled.is_set():
            return
        problem = ""
        try:
            await self._in_thread(self.round)
        except (StorageError, OSError) as error:
            problem = str(error)
        except Exception:  # a bug in reading the files that a program left must not end its training
            log.exception("a fault in the copying of event files itself")
        if problem not in ("", self._logged):
            log.warning("event files were not copied: %s", problem)
        self._logged = problem


DOWNLOAD_LIMIT = 8 << 30  # bytes on this node's disk; later files are left out


class EventFileDownload(PeriodicTransfer):
    """Copies new event files of all tasks from the store."""

    def __init__(self, storage: Storage, source: str, directory: Path, size_limit: int = DOWNLOAD_LIMIT) -> None:
        """Copy the URI ``source`` to ``directory``, both with their subdirectories."""
        super().__init__()
        self._mirror = EventFileMirror(storage, {source: directory}, size_limit)

    def round(self) -> None:
        done = self._mirror.round(self.cancelled)
        if done.trouble is not None:
            raise done.trouble


class EventFileUpload(PeriodicTransfer):
    """Copies a container's event files to the store: each file with a new size or time, as a whole.

    The upload never removes files from the store.
    """

    def __init__(self, storage: Storage, directory: Path, target: str, size_limit: int = UPLOAD_LIMIT) -> None:
        """Copy ``directory`` to the URI ``target``, both with their subdirectories."""
        super().__init__()
        self._upload = DirectoryUpload(storage, self.cancelled, log.warning, overwrite=True)
        self._directory = directory
        self._target = target
        self._size_limit = size_limit
        self._kept: dict[str, FileVersion] = {}
        self._left_out: set[str] = set()

    def round(self) -> None:
        problem = None
        tree = scan(self._directory)
        for path, reason in tree.left_out.items():
            self._leave_out(path, reason)
        for path, found in oldest_first(tree):
            version = found.without_ctime
            if self.cancelled.is_set():
                return
            if self._kept.get(path) == version or not self._is_allowed(path, version.size):
                continue
            try:
                self._upload.send(self._directory / path, uris.join(self._target, path))
            except FileNotFoundError:
                continue
            except StorageUnreachable:
                raise
            except (StorageError, OSError) as error:  # a problem of this file; the upload of others may succeed
                problem = error
            else:
                self._kept[path] = version
        if problem is not None:
            raise problem

    def _is_allowed(self, path: str, size: int) -> bool:
        others = sum(kept.size for name, kept in self._kept.items() if name != path)
        if others + size <= self._size_limit and len(self._kept.keys() | {path}) <= UPLOADED_FILES_LIMIT:
            return True
        self._leave_out(path, f"a task's may have {self._size_limit} bytes in {UPLOADED_FILES_LIMIT} files")
        return False

    def _leave_out(self, path: str, reason: str) -> None:
        """Log a file that is not uploaded, once."""
        if path not in self._left_out and len(self._left_out) < UPLOADED_FILES_LIMIT:
            self._left_out.add(path)
            log.warning("%r in %s is not kept: %s", path, contract.ENV_TENSORBOARD_DIR, reason)


def event_file_transfer(context: ExecutorContext) -> PeriodicTransfer:
    """Return the transfer of event files that this container needs. Call it within a running event loop."""
    container, directory = context.container, context.workspace.tensorboard
    description = container.description
    everything = uris.join(description.chain_dir or description.application_dir, contract.TENSORBOARD_DIR)
    if container.shows_tensorboard:
        return EventFileDownload(context.storage, everything, directory)
    return EventFileUpload(
        context.storage, directory, uris.join(everything, contract.path_of_task(container.identity.task))
    )
