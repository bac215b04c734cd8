"""The outputs of one start of the user process: empty directories before it, parts on the store after it."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Callable, Optional

from tony_provider.runtime import contract
from tony_provider.runtime.cancellation import Cancelled
from tony_provider.runtime.executor.executor_context import ExecutorContext
from tony_provider.runtime.executor.output_directory import OutputDirectory
from tony_provider.runtime.executor.process_stop import ProcessStop
from tony_provider.runtime.executor.tree_upload import UploadCancelledError
from tony_provider.runtime.executor.upload_retries import UploadRetries
from tony_provider.runtime.inputs.stores import InputStores
from tony_provider.runtime.outputs.output_part import part_name
from tony_provider.runtime.outputs.output_place import OutputPlace
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.retrying import retry_blocking
from tony_provider.runtime.spec.problems import child
from tony_provider.runtime.storage import StorageError, StorageInvalidPath, StorageUnsupported, uris

log = logging.getLogger(__name__)

_COPIES_AT_ONCE = 4  # for shards


class NoSuchStoreError(LookupError):
    """The store of an output cannot be written from this node: a driver is missing."""


class NotCopiedError(Exception):
    """What was made of a shard is not on the store."""


class RunOutputs:
    """What one start leaves for outputs of the job. ``open`` and ``keep`` it at most once, and ``close`` it."""

    def __init__(
        self,
        context: ExecutorContext,
        start: int,
        stopping: ProcessStop,
        retries: UploadRetries,
        warn: Callable[[str], None],
    ) -> None:
        """``warn``: see TreeUpload."""
        self._context = context
        self._warn = warn
        self._start = start
        self._stopping = stopping
        self._retries = retries
        self._stores = InputStores(context.storage, context.container.description.application_dir)
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
