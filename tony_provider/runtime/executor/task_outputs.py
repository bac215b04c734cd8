"""Outputs of a task: local directories that one start fills, and the upload of their files to the store.

The module also transfers TensorBoard event files between containers and the store. Each task uploads its event files,
and the container that shows TensorBoard downloads the event files of all tasks.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import threading
import time
from abc import abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Callable, Optional

import attrs

from tony_provider.runtime.artifacts.manifest import FileVersion, Tree, scan
from tony_provider.runtime.artifacts.upload import DirectoryUpload, stored_path, walk_local
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.concurrency import Cancelled, retry_blocking, wait_with_timeout
from tony_provider.runtime.event_files.event_file_mirror import EventFileMirror
from tony_provider.runtime.executor.kept_results import UploadRetries
from tony_provider.runtime.executor.start_context import BackgroundWork, ExecutorContext, StartPart, StopRequest
from tony_provider.runtime.jobspec.problems import child
from tony_provider.runtime.outputs.publication import DATA_DIRECTORY, DATA_FILE, OutputPlace, part_name
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.storage import (
    Storage,
    StorageError,
    StorageInvalidPath,
    StorageUnreachable,
    StorageUnsupported,
    uris,
)
from tony_provider.runtime.storage.stores import JobStores

log = logging.getLogger(__name__)

UPLOAD_LIMIT = 2 << 30  # bytes of one task's files together; files beyond this limit are left out
UPLOADED_FILES_LIMIT = 1000


def oldest_first(tree: Tree) -> list[tuple[str, FileVersion]]:
    """Return the files of a tree with their paths, the oldest first."""
    files = ((path, node.version) for path, node in tree.files.items())
    return sorted(files, key=lambda file: (file[1].mtime_ns, file[0]))


_PAUSE = 5.0  # seconds at least between two transfers
_SHARE = 20.0  # ratio of the pause to the duration of a transfer, which keeps the load below 5 %
_LONGEST_PAUSE = 300.0


class PeriodicTransfer(BackgroundWork):
    """A transfer that is repeated. Store or disk problems only delay it. Create it within an event loop."""

    def __init__(self) -> None:
        super().__init__("event-files")
        self._logged = ""  # the last logged problem, which is not logged twice
        self.cancelled = threading.Event()

    @abstractmethod
    def round(self) -> None:
        """Transfer all new files once. Blocks until done or ``cancelled`` is set. Raises StorageError, OSError."""

    async def finish(self, seconds: float) -> None:
        """Finish the transfer in progress and do a last one, within ``seconds``."""
        try:
            await wait_with_timeout(self._round(), seconds)
        except asyncio.TimeoutError:
            log.warning("no time was left to copy the last event files")
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
            log.exception("internal error while copying event files")
        if problem not in ("", self._logged):
            log.warning("event files were not copied: %s", problem)
        self._logged = problem


DOWNLOAD_LIMIT = 8 << 30  # bytes on this node's disk; later files are left out


class EventFileDownload(PeriodicTransfer):
    """Copies new event files of all tasks from the store."""

    def __init__(self, storage: Storage, source: str, directory: Path, size_limit: int = DOWNLOAD_LIMIT) -> None:
        """Copy the URI ``source`` to ``directory``, including subdirectories."""
        super().__init__()
        self._mirror = EventFileMirror(storage, {source: directory}, size_limit)

    def round(self) -> None:
        done = self._mirror.round(self.cancelled)
        if done.trouble is not None:
            raise done.trouble


class EventFileUpload(PeriodicTransfer):
    """Copies a container's event files to the store. A file is copied as a whole if its size or time has changed.

    The upload never removes files from the store.
    """

    def __init__(self, storage: Storage, directory: Path, target: str, size_limit: int = UPLOAD_LIMIT) -> None:
        """Copy ``directory`` to the URI ``target``, including subdirectories."""
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
            except (StorageError, OSError) as error:  # affects this file; other files may succeed
                problem = error
            else:
                self._kept[path] = version
        if problem is not None:
            raise problem

    def _is_allowed(self, path: str, size: int) -> bool:
        others = sum(kept.size for name, kept in self._kept.items() if name != path)
        if others + size <= self._size_limit and len(self._kept.keys() | {path}) <= UPLOADED_FILES_LIMIT:
            return True
        self._leave_out(path, f"a task may have {self._size_limit} bytes in {UPLOADED_FILES_LIMIT} event files")
        return False

    def _leave_out(self, path: str, reason: str) -> None:
        """Log a file that is not uploaded, once."""
        if path not in self._left_out and len(self._left_out) < UPLOADED_FILES_LIMIT:
            self._left_out.add(path)
            log.warning("%r in %s is not stored: %s", path, contract.ENV_TENSORBOARD_DIR, reason)


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


@attrs.define(eq=False)
class OutputDirectory:
    """Copies a local directory to this start's part of an output. All methods block, and raise StorageError, OSError.

    Files are identified by their paths in the directory. A file of a committed shard is not copied again.
    """

    name: str  # name of the output
    path: Path  # the local directory
    storage: Storage
    part: str  # URI of the directory on the store for the files of this start
    cancelled: threading.Event
    warn: Callable[[str], None]
    committed: dict[str, int] = attrs.field(factory=dict)  # sizes in bytes of files of committed shards
    _copied: dict[str, int] = attrs.field(factory=dict)  # sizes in bytes of files that are not committed yet
    _refused: set[str] = attrs.field(factory=set)  # copied files whose commit was rejected

    @property
    def _upload(self) -> DirectoryUpload:
        return DirectoryUpload(self.storage, self.cancelled, self.warn, DATA_FILE, DATA_DIRECTORY, overwrite=True)

    def name_of(self, path: Path) -> Optional[str]:
        """Return a path relative to the directory, or None if neither the path nor its link target is inside."""
        tops = (self.path, Path(os.path.realpath(self.path)))
        for each in (os.path.normpath(path), os.path.realpath(path)):
            for top in tops:
                if top in Path(each).parents:
                    return Path(each).relative_to(top).as_posix()
        return None

    def files_at(self, name: str) -> list[str]:
        """Return the files at a path in the directory: the file itself, or all files below a directory."""
        path = self.path / name
        if not path.is_dir():
            return [name]
        return [f"{name}/{below}" for each, below in walk_local(path, self.warn) if not each.is_dir()]

    def copy(self, file: str) -> str:
        """Copy a file of a shard, before the commit of the shard is requested. Return the URI of the copy.

        Raises NotCopiedError if another attempt would fail in the same way.
        """
        try:
            return self._copy(file)
        except (StorageInvalidPath, StorageUnsupported) as error:
            raise NotCopiedError(f"the output of the shard cannot be stored: {error}") from error

    def _copy(self, file: str) -> str:
        uri, path = self._uri(file), self.path / file
        if path.exists() and not path.is_file():  # reading a FIFO would block forever
            raise OSError(f"{path} is neither a file nor a directory, nor a link to one")
        self._copied[file] = 0  # from now on, the store may contain the beginning of the file
        self.storage.make_directories(uris.parent(uri), permission=DATA_DIRECTORY)
        self._copied[file] = self._upload.send(path, uri)
        self._refused.discard(file)
        return uri

    def settle(self, file: str, *, committed: bool) -> None:
        """Record whether a copied file was committed with its shard."""
        if committed:
            self.committed[file] = self._copied.pop(file, self.committed.get(file, 0))
        else:
            self._refused.add(file)

    def keep(self) -> tony_pb2.KeptOutput:
        """Make the part equal to the directory, without rejected files. Return the part's name and content."""
        for file in list(self._copied):
            if file in self._refused or not (self.path / file).exists():
                self.storage.remove(self._uri(file))
        files, size = self._upload.run(self.path, self.part, self._is_wanted)
        return tony_pb2.KeptOutput(
            name=self.name,
            part=self.part.rpartition("/")[2],
            files=files + len(self.committed),
            bytes=size + sum(self.committed.values()),
        )

    def _uri(self, file: str) -> str:
        return uris.join(self.part, stored_path(self.part, file))

    def _is_wanted(self, file: str) -> bool:
        return file not in self.committed and file not in self._refused


_COPIES_AT_ONCE = 4  # concurrent copies for shards


class NoSuchStoreError(LookupError):
    """This node cannot write to the store of an output, for example because a driver is missing."""


class NotCopiedError(Exception):
    """The output files that the program wrote for a shard could not be copied to the store."""


class TaskOutputs(StartPart):
    """The outputs of one start. Call ``open`` and ``keep`` at most once, and then ``close``."""

    def __init__(
        self,
        context: ExecutorContext,
        start: int,
        stop_request: StopRequest,
        retries: UploadRetries,
        warn: Callable[[str], None],
    ) -> None:
        """Prepare the outputs. ``warn``: see DirectoryUpload."""
        super().__init__()
        self._context = context
        self._warn = warn
        self._start = start
        self._stop_request = stop_request
        self._retries = retries
        self._stores = JobStores(context.storage, context.container.description.application_dir)
        self._directories: list[OutputDirectory] = []
        # Separate threads, so that a hanging store does not delay heartbeats.
        self._copying = ThreadPoolExecutor(_COPIES_AT_ONCE, "copy")

    async def open(self) -> dict[str, str]:
        """Create the directories. Return the variables with their paths. Raises NoSuchStoreError, OSError."""
        container, workspace = self._context.container, self._context.workspace
        names = [name for name in container.job.outputs if container.task_type in container.job.writers(name)]
        await asyncio.to_thread(shutil.rmtree, workspace.outputs, ignore_errors=True)
        for name in names:
            path = workspace.outputs / name
            await asyncio.to_thread(path.mkdir, mode=0o700, parents=True)
            self._directories.append(await asyncio.to_thread(self._directory, name, path))
        return {contract.ENV_OUTPUT_PREFIX + each.name.upper(): str(each.path) for each in self._directories}

    def _directory(self, name: str, path: Path) -> OutputDirectory:
        container = self._context.container
        place = OutputPlace(container.job.outputs[name].path, container.identity.application_id)
        part = place.part(part_name(container.identity.task, container.identity.attempt, self._start))
        where = child("outputs", name, "path")
        try:
            storage = self._stores.of(place.target)
            there = uris.scheme(place.target) != "file" or storage.exists(place.staging)
        except StorageError as error:
            raise NoSuchStoreError(f"{where}: {place.target} cannot be written from this node: {error}") from error
        if not there:
            message = "mount its file system on all nodes"
            raise NoSuchStoreError(f"{where}: {place.target} does not exist on this node; {message}")
        return OutputDirectory(name, path, storage, part, self._stop_request.cancelled, self._warn)

    # ---- for shards --------------------------------------------------------------------------------------------

    async def copy(self, said: Sequence[str]) -> ShardCopies:
        """Copy the output files of a shard to the store, if they are in the directory of an output.

        ``said``: the paths or names that the program reported. Raises NotCopiedError.
        """
        if not said or not self._directories:
            return ShardCopies(list(said))
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._copying, self._copy, said)

    def _copy(self, said: Sequence[str]) -> ShardCopies:
        copies = ShardCopies()
        try:
            for each in said:
                self._copy_one(each, copies)
        except (StorageError, OSError, Cancelled, NotCopiedError) as error:
            copies.settle(committed=False)
            if isinstance(error, NotCopiedError):
                raise
            raise NotCopiedError(f"the output of the shard could not be copied to the store: {error}") from error
        return copies

    def _copy_one(self, said: str, copies: ShardCopies) -> None:
        found = self._find(said)
        if found is None:
            copies.names.append(said)
            return
        directory, name = found
        seconds, cancelled = self._context.container.job.timeouts.upload, self._stop_request.cancelled
        for file in directory.files_at(name):
            if file in directory.committed:
                raise NotCopiedError(f"{file} is the output of an earlier shard; write a file for each shard")
            copies.files.append((directory, file))
            work = partial(directory.copy, file)
            copies.names.append(retry_blocking(work, seconds, StorageError, partial(log.warning, "%s"), cancelled))

    def _find(self, said: str) -> Optional[tuple[OutputDirectory, str]]:
        """Return the output directory that contains a path, and the path relative to that directory."""
        if not said.startswith("/") or "\0" in said:
            return None
        for each in self._directories:
            name = each.name_of(Path(said))
            if name is not None:
                return each, name
        return None

    # ---- at the end --------------------------------------------------------------------------------------------

    async def keep(self) -> list[tony_pb2.KeptOutput]:
        """Upload the outputs. Return the outputs that have files. Raises NotStoredError, Cancelled."""
        kept = [await self._retries.run(each.keep) for each in self._directories]
        return [each for each in kept if each.files]

    async def close(self) -> None:
        self._copying.shutdown(wait=False)
        self._stores.close()


@attrs.frozen
class ShardCopies:
    """Output files of one shard that were copied to the store, before the commit of the shard is requested."""

    names: list[str] = attrs.field(factory=list)  # for the commit log: URIs of copies, and names of other files
    files: list[tuple[OutputDirectory, str]] = attrs.field(factory=list)

    def settle(self, *, committed: bool) -> None:
        """Record whether the shard was committed."""
        for directory, file in dict.fromkeys(self.files):
            directory.settle(file, committed=committed)
