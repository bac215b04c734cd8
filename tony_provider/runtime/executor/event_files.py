"""Transfer of TensorBoard event files between a container and the store.

Each task uploads its event files. The container that shows TensorBoard downloads the event files of all tasks.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs

from tony_provider.runtime.common import contract
from tony_provider.runtime.common.concurrency import wait_with_timeout
from tony_provider.runtime.common.text import is_writable
from tony_provider.runtime.event_files.event_file_mirror import EventFileMirror
from tony_provider.runtime.executor.start_context import ExecutorContext
from tony_provider.runtime.storage import Storage, StorageError, StorageUnreachable, upload, uris

log = logging.getLogger(__name__)


UPLOAD_LIMIT = 2 << 30  # bytes of one task's files; larger totals are left out
UPLOADED_FILES_LIMIT = 1000


@attrs.frozen
class LocalEventFile:
    """A file in a local directory of event files."""

    path: Path
    name: str  # path below the directory, with slashes
    size: int  # bytes
    modified_ns: int


def event_files_below(directory: Path) -> Iterator[LocalEventFile]:
    """Return every regular file below a directory, the oldest first. Links are not followed.

    Blocks. Files that vanish during the search are left out.
    """
    return iter(sorted(_walk(directory), key=lambda found: (found.modified_ns, found.name)))


def _walk(directory: Path) -> Iterator[LocalEventFile]:
    for place, directories, names in os.walk(directory):
        directories.sort()
        for name in names:
            path = Path(place, name)
            try:
                status = path.lstat()
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode):
                yield LocalEventFile(path, path.relative_to(directory).as_posix(), status.st_size, status.st_mtime_ns)


_PAUSE = 5.0  # seconds between two rounds
_SHARE = 20.0  # ratio of pause to duration of a round, which keeps the load below 5 %
_LONGEST_PAUSE = 300.0


class PeriodicTransfer(ABC):
    """Work that is repeated in a separate thread.

    Create it within a running event loop. Problems with the store or the disk only delay the work.
    """

    def __init__(self, name: str) -> None:
        """Create the thread ``name``. It is separate, so that a hanging store does not delay other work."""
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._told = ""  # the last logged problem, which is not logged twice
        self.given_up = threading.Event()

    @abstractmethod
    def round(self) -> None:
        """Do the work once, in the thread. Return soon after ``given_up`` is set. Raises StorageError, OSError."""

    async def run(self) -> None:
        """Repeat the work until this coroutine is cancelled. The current round in the thread then continues."""
        while True:
            began = time.monotonic()
            await self._round()
            await asyncio.sleep(min(max(_PAUSE, _SHARE * (time.monotonic() - began)), _LONGEST_PAUSE))

    async def finish(self, seconds: float) -> None:
        """Finish the current round and do a last one, within ``seconds``."""
        try:
            await wait_with_timeout(self._round(), seconds)
        except asyncio.TimeoutError:
            log.warning("no time was left for the last event files")
        finally:
            self.given_up.set()
            self._pool.shutdown(wait=False)

    async def _round(self) -> None:
        if self.given_up.is_set():
            return
        try:
            await asyncio.get_running_loop().run_in_executor(self._pool, self.round)
        except (StorageError, OSError) as error:
            self._tell(str(error))
        except Exception:  # a bug in reading the files that a program left must not end its training
            log.exception("a fault in the copying of event files itself")
        else:
            self._told = ""

    def _tell(self, trouble: str) -> None:
        if trouble != self._told:
            log.warning("event files were not copied: %s", trouble)
            self._told = trouble


DOWNLOAD_LIMIT = 8 << 30  # bytes on this node's disk; later files are left out


class EventFileDownload(PeriodicTransfer):
    """Copies new event files of all tasks from the store."""

    def __init__(self, storage: Storage, source: str, directory: Path, most_bytes: int = DOWNLOAD_LIMIT) -> None:
        """Copy the URI ``source`` to ``directory``, both with their subdirectories."""
        super().__init__("event-files")
        self._mirror = EventFileMirror(storage, {source: directory}, most_bytes)

    def round(self) -> None:
        done = self._mirror.round(self.given_up)
        if done.trouble is not None:
            raise done.trouble


class EventFileUpload(PeriodicTransfer):
    """Copies a container's event files to the store: each file with a new size or time, as a whole.

    The upload never removes files from the store.
    """

    def __init__(self, storage: Storage, directory: Path, target: str, most_bytes: int = UPLOAD_LIMIT) -> None:
        """Copy ``directory`` to the URI ``target``, both with their subdirectories."""
        super().__init__("event-files")
        self._storage = storage
        self._directory = directory
        self._target = target
        self._most_bytes = most_bytes
        self._kept: dict[str, LocalEventFile] = {}
        self._left_out: set[str] = set()

    def round(self) -> None:
        trouble = None
        for found in event_files_below(self._directory):
            if self.given_up.is_set():
                return
            if self._kept.get(found.name) == found or not self._is_allowed(found):
                continue
            try:
                upload(self._storage, found.path, uris.join(self._target, found.name), overwrite=True)
            except FileNotFoundError:
                continue
            except StorageUnreachable:
                raise
            except (StorageError, OSError) as error:  # a problem of this file; the upload of others may succeed
                trouble = error
            else:
                self._kept[found.name] = found
        if trouble is not None:
            raise trouble

    def _is_allowed(self, found: LocalEventFile) -> bool:
        others = sum(kept.size for name, kept in self._kept.items() if name != found.name)
        fits = others + found.size <= self._most_bytes and len(self._kept.keys() | {found.name}) <= UPLOADED_FILES_LIMIT
        if fits and is_writable(found.name):
            return True
        if found.name not in self._left_out and len(self._left_out) < UPLOADED_FILES_LIMIT:
            self._left_out.add(found.name)
            why = (
                f"a task's may have {self._most_bytes} bytes in {UPLOADED_FILES_LIMIT} files"
                if not fits
                else "a name in UTF-8"
            )
            log.warning("%r in %s is not kept: %s", found.name, contract.ENV_TENSORBOARD_DIR, why)
        return False


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
