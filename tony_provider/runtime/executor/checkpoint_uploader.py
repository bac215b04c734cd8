"""Uploads of single checkpoints to the store, and through their commit."""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Optional, TypeVar

import attrs

from tony_provider.runtime.artifacts.throttle import Throttle
from tony_provider.runtime.checkpoint.checkpoint_model import (
    MANIFEST_FILE,
    LocalCheckpoint,
    checkpoints_directory,
    directory_name,
    rank_directory,
)
from tony_provider.runtime.checkpoint.snapshot import Snapshot, SnapshotChanged
from tony_provider.runtime.executor.commit_requests import CommitRequests
from tony_provider.runtime.executor.executor_context import ExecutorContext
from tony_provider.runtime.executor.order import Order
from tony_provider.runtime.executor.upload import Upload
from tony_provider.runtime.protocol import limits, tony_pb2
from tony_provider.runtime.quantities import count
from tony_provider.runtime.quantities import size as size_text
from tony_provider.runtime.spec.model import MirrorScope
from tony_provider.runtime.storage import StorageError, uris

log = logging.getLogger(__name__)

_MEBIBYTE = 1 << 20
_ROOM = 64 << 10  # bytes that all but the files takes in the message that tells of a checkpoint, at most
_FILE = 48  # bytes that a file takes there beside its path: its size, its checksum, and what is around them
T = TypeVar("T")


@attrs.frozen
class UploadTrouble:
    """Why a checkpoint did not get to the store."""

    text: str
    refused: bool = False  # by the application master: the same again would be refused again
    changed: bool = False  # the program was writing it: the next look finds what it has written


@attrs.frozen
class UploadTarget:
    """The directory on the store that a checkpoint is uploaded to, and its number."""

    save: int
    uri: str  # of the checkpoint's directory


@attrs.frozen
class _Copied:
    snapshot: Snapshot
    files: list[tony_pb2.CheckpointFile]
    seconds: float  # that it took


class _TooManyFiles(Exception):  # noqa: N818 - says what was found
    """Nobody could be told of a checkpoint; ``str()`` says why, and what to do."""


class CheckpointUploader:
    """Uploads checkpoints of one start of the user process, one at a time, and has them committed."""

    def __init__(self, context: ExecutorContext, order: Order, commit_requests: CommitRequests) -> None:
        self._context = context
        self._commit_requests = commit_requests
        self._order = order
        container = context.container
        bandwidth = container.job.checkpoint.bandwidth
        self._throttle = Throttle(bandwidth * _MEBIBYTE if bandwidth else None)
        self._shared = container.job.checkpoint.mirror is MirrorScope.ALL
        self._rank = order.rank(container.task_type, container.index) or 0
        # Threads of its own: a store that hangs must not hold up what the executor does in its common ones.
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="mirror")

    async def carry(
        self, checkpoint: LocalCheckpoint, target: Optional[UploadTarget] = None
    ) -> Optional[UploadTrouble]:
        """Upload a checkpoint and have it committed; None when it is, else why not.

        ``target``: the application master has named one, for every rank; else a new one. Cancel it to give the
        checkpoint up; threads that wait for a silent server end later by themselves.
        """
        target = target or self._new_target(checkpoint)
        uri = rank_directory(target.uri, self._rank)
        upload = Upload(self._context.storage, self._throttle)
        try:
            copied = await self.in_thread(self._copy, checkpoint, uri, upload)
        except SnapshotChanged as error:
            return UploadTrouble(str(error), changed=True)
        except _TooManyFiles as error:
            return UploadTrouble(str(error), refused=True)
        except (StorageError, OSError) as error:
            return UploadTrouble(str(error))
        finally:
            upload.cancel()
        answer = await self._ask(checkpoint, target, uri, copied)
        if answer.granted:
            await self.in_thread(self._context.checkpoints.committed, copied.snapshot, target.save, target.uri)
            return None
        log.warning("a checkpoint was refused: %s", answer.reason)
        self._context.checkpoints.refused()
        await self.in_thread(self._drop, copied, uri)
        return UploadTrouble(f"the application master refused it: {answer.reason}", refused=True)

    def close(self) -> None:
        """Take no other checkpoint. Does not wait for threads."""
        self._pool.shutdown(wait=False)

    def _new_target(self, checkpoint: LocalCheckpoint) -> UploadTarget:
        """A new one for each try: a former try may still be at work in its own, perhaps in a container that was given
        up and replaced.
        """
        save = self._context.checkpoints.next_save
        chain = checkpoints_directory(self._context.container.description.chain_dir)
        return UploadTarget(save, uris.join(chain, directory_name(save, checkpoint.step)))

    def _copy(self, checkpoint: LocalCheckpoint, uri: str, upload: Upload) -> _Copied:
        """In the thread. Whatever goes wrong, nothing is left of it here, and as a rule on the store."""
        began = time.monotonic()
        snapshot = self._context.checkpoints.take(checkpoint)
        try:
            _check_number(snapshot)
        except _TooManyFiles:
            snapshot.remove()  # none of it is on the store
            raise
        try:
            files = upload.run(snapshot, uri, overwrite=self._shared)
            return _Copied(snapshot, files, time.monotonic() - began)
        except BaseException as error:
            snapshot.remove()
            if isinstance(error, SnapshotChanged):
                self._context.checkpoints.rewritten()
            if not self._shared:  # else it will be written again
                self._remove(uri)
            raise

    async def _ask(
        self, checkpoint: LocalCheckpoint, target: UploadTarget, uri: str, copied: _Copied
    ) -> tony_pb2.CheckpointAnswer:
        uploaded = tony_pb2.CheckpointUploaded(
            generation=self._order.generation,
            start=self._order.start,
            step=checkpoint.step,
            uri=uri,
            format=checkpoint.format,
            entry=checkpoint.entry,
            files=copied.files,
            save=target.save,
            saved_ms=checkpoint.saved_ms,
            reported=checkpoint.reported,
            copy_seconds=copied.seconds,
        )
        try:
            return await self._commit_requests.ask(uploaded)
        except asyncio.CancelledError:
            self._pool.submit(copied.snapshot.remove)
            raise

    def _drop(self, copied: _Copied, uri: str) -> None:
        copied.snapshot.remove()
        self._remove(uri)

    def _remove(self, uri: str) -> None:
        """Unless it was committed: by an application master whose grant was lost on its way.

        What it leaves, the application master clears away with the next generation.
        """
        checkpoint = uris.parent(uri)
        try:
            if not self._context.storage.exists(uris.join(checkpoint, MANIFEST_FILE)):
                self._context.storage.remove(uri if self._shared else checkpoint, recursive=True)
        except StorageError as error:
            log.warning("%s is left on the store: %s", uri, error)

    async def in_thread(self, work: Callable[..., T], *given: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *given)


def _check_number(snapshot: Snapshot) -> None:
    """Before anything is copied. Raises _TooManyFiles where the message that tells of the files would be too large."""
    size = sum(len(file.path.encode("utf-8", "surrogateescape")) + _FILE for file in snapshot.files)
    most = limits.largest("uploaded") - _ROOM
    if size > most:
        raise _TooManyFiles(
            f"it has {count(len(snapshot.files), 'file')}, whose names and checksums take {size_text(size)}, more "
            f"than the {size_text(most)} in which a checkpoint can be told of: have the program write fewer and "
            "larger files, or keep what belongs to no checkpoint out of its directory"
        )
