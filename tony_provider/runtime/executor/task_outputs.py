"""The local directory of one output, as one start of the user process fills it, and its part on the store."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Callable, Optional

import attrs

from tony_provider.runtime.common import contract
from tony_provider.runtime.common.concurrency import Cancelled, retry_blocking
from tony_provider.runtime.executor.result_upload import (
    TreeUpload,
    UploadCancelledError,
    UploadRetries,
    stored_path,
    walk_local,
)
from tony_provider.runtime.executor.start_context import ExecutorContext, StopRequest
from tony_provider.runtime.jobspec.problems import child
from tony_provider.runtime.outputs.output_place import DATA_DIRECTORY, DATA_FILE, OutputPlace, part_name
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.storage import Storage, StorageError, StorageInvalidPath, StorageUnsupported, uris
from tony_provider.runtime.storage.stores import JobStores


@attrs.define(eq=False)
class OutputDirectory:
    """Copies files of a local directory to a part of an output. All methods block, and raise StorageError, OSError.

    Files are known by their paths in the directory. A file that a committed shard names stays as it was copied then.
    """

    name: str  # of the output
    path: Path
    storage: Storage
    part: str  # URI
    cancelled: threading.Event
    warn: Callable[[str], None]
    committed: dict[str, int] = attrs.field(factory=dict)  # sizes in bytes
    _copied: dict[str, int] = attrs.field(factory=dict)  # for commits that were not made (yet)
    _refused: set[str] = attrs.field(factory=set)  # of those, what is not to count

    @property
    def _upload(self) -> TreeUpload:
        return TreeUpload(self.storage, self.cancelled, self.warn, DATA_FILE, DATA_DIRECTORY, overwrite=True)

    def name_of(self, path: Path) -> Optional[str]:
        """What a path is called in the directory, also one that is a link; None: it does not lie there."""
        tops = (self.path, Path(os.path.realpath(self.path)))
        for each in (os.path.normpath(path), os.path.realpath(path)):
            for top in tops:
                if top in Path(each).parents:
                    return Path(each).relative_to(top).as_posix()
        return None

    def files_at(self, name: str) -> list[str]:
        """The files that a name in the directory stands for: itself, or all below it."""
        path = self.path / name
        if not path.is_dir():
            return [name]
        return [f"{name}/{below}" for each, below in walk_local(path, self.warn) if not each.is_dir()]

    def copy(self, file: str) -> str:
        """Copy a file for a commit that is about to be asked for; returns its URI."""
        uri, path = self._uri(file), self.path / file
        if path.exists() and not path.is_file():  # a FIFO would be read for ever
            raise OSError(f"{path} is neither a file nor a directory, nor a link to one")
        self._copied[file] = 0  # from now on something may be there
        self.storage.make_directories(uris.parent(uri), permission=DATA_DIRECTORY)
        self._copied[file] = self._upload.send(path, uri)
        self._refused.discard(file)
        return uri

    def settle(self, file: str, *, committed: bool) -> None:
        """Take note whether the commit was made that the file was copied for."""
        if committed:
            self.committed[file] = self._copied.pop(file, self.committed.get(file, 0))
        else:
            self._refused.add(file)

    def copy_rest(self) -> tuple[int, int]:
        """Have the part be what the directory holds now, but for what was refused; returns its files, and bytes."""
        for file in list(self._copied):
            if file in self._refused or not (self.path / file).exists():
                self.storage.remove(self._uri(file))
        files, size = self._upload.run(self.path, self.part, self._is_wanted)
        return files + len(self.committed), size + sum(self.committed.values())

    def _uri(self, file: str) -> str:
        return uris.join(self.part, stored_path(self.part, file))

    def _is_wanted(self, file: str) -> bool:
        return file not in self.committed and file not in self._refused


log = logging.getLogger(__name__)

_COPIES_AT_ONCE = 4  # for shards


class NoSuchStoreError(LookupError):
    """The store of an output cannot be written from this node: a driver is missing."""


class NotCopiedError(Exception):
    """What was made of a shard is not on the store."""


class TaskOutputs:
    """What one start leaves for outputs of the job. ``open`` and ``keep`` it at most once, and ``close`` it."""

    def __init__(
        self,
        context: ExecutorContext,
        start: int,
        stopping: StopRequest,
        retries: UploadRetries,
        warn: Callable[[str], None],
    ) -> None:
        """``warn``: see TreeUpload."""
        self._context = context
        self._warn = warn
        self._start = start
        self._stopping = stopping
        self._retries = retries
        self._stores = JobStores(context.storage, context.container.description.application_dir)
        self._directories: list[OutputDirectory] = []
        # Own threads: a store that hangs is not to take those that heartbeats need.
        self._copying = ThreadPoolExecutor(_COPIES_AT_ONCE, "copy")

    async def open(self) -> dict[str, str]:
        """Make the directories; returns the variables that say where they are. Raises NoSuchStoreError, OSError."""
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
        where = child(child("outputs", name), "path")
        try:
            storage = self._stores.of(place.target)
            there = uris.scheme(place.target) != "file" or storage.exists(place.staging)
        except StorageError as error:
            raise NoSuchStoreError(f"{where}: {place.target} cannot be written from this node: {error}") from error
        if not there:
            message = "all nodes must have the file system mounted that it is on"
            raise NoSuchStoreError(f"{where}: {place.target} is not there on this node; {message}")
        return OutputDirectory(name, path, storage, part, self._stopping.cancelled, self._warn)

    # ---- for shards --------------------------------------------------------------------------------------------

    async def copy(self, said: Sequence[str]) -> ShardCopies:
        """Have on the store what was made of a shard, as far as it lies in the directory of an output.

        ``said`` is what the program said. Raises NotCopiedError.
        """
        if not said or not self._directories:
            return ShardCopies(list(said), [])
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._copying, self._copy, said)

    def _copy(self, said: Sequence[str]) -> ShardCopies:
        names: list[str] = []
        copied: list[tuple[OutputDirectory, str]] = []
        try:
            for each in said:
                found = self._find(each)
                if found is None:
                    names.append(each)
                    continue
                directory, name = found
                for file in directory.files_at(name):
                    _check_new(directory, file)
                    copied.append((directory, file))
                    names.append(self._copy_file(directory, file))
        except (StorageError, OSError, Cancelled, UploadCancelledError) as error:
            ShardCopies([], copied).settle(committed=False)
            raise NotCopiedError(f"what was made of the shard is not on the store: {error}") from error
        except NotCopiedError:
            ShardCopies([], copied).settle(committed=False)
            raise
        return ShardCopies(names, copied)

    def _copy_file(self, directory: OutputDirectory, file: str) -> str:
        seconds = self._context.container.job.timeouts.upload
        work = partial(_copy_or_give_up, directory, file)
        return retry_blocking(work, seconds, StorageError, partial(log.warning, "%s"), self._stopping.cancelled)

    def _find(self, said: str) -> Optional[tuple[OutputDirectory, str]]:
        """The directory that something lies in, and what it is called there."""
        if not said.startswith("/") or "\0" in said:
            return None
        for each in self._directories:
            name = each.name_of(Path(said))
            if name is not None:
                return each, name
        return None

    # ---- at the end --------------------------------------------------------------------------------------------

    async def keep(self) -> list[tony_pb2.KeptOutput]:
        """Copy what the process has left; what there is now on the store. Raises NotKeptError, UploadCancelledError."""
        kept = [await self._retries.run(partial(_keep, each)) for each in self._directories]
        return [each for each in kept if each.files]

    async def close(self) -> None:
        """Free what is held."""
        self._copying.shutdown(wait=False)
        self._stores.close()


class ShardCopies:
    """What is on the store for a commit that is about to be asked for."""

    def __init__(self, names: list[str], files: Iterable[tuple[OutputDirectory, str]]) -> None:
        self.names = names  # of what was made, for the log of commits: URIs where it was copied
        self._files = list(dict.fromkeys(files))

    def settle(self, *, committed: bool) -> None:
        """Say whether the commit was made."""
        for directory, file in self._files:
            directory.settle(file, committed=committed)


def _copy_or_give_up(directory: OutputDirectory, file: str) -> str:
    """Raises NotCopiedError where another try would be the same."""
    try:
        return directory.copy(file)
    except (StorageInvalidPath, StorageUnsupported) as error:
        raise NotCopiedError(f"what was made of the shard cannot be on the store: {error}") from error


def _check_new(directory: OutputDirectory, file: str) -> None:
    if file in directory.committed:
        raise NotCopiedError(f"{file} was made of an earlier shard; write a file for each shard")


def _keep(directory: OutputDirectory) -> tony_pb2.KeptOutput:
    files, size = directory.copy_rest()
    return tony_pb2.KeptOutput(name=directory.name, part=directory.part.rpartition("/")[2], files=files, bytes=size)
