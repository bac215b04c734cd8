"""The mirror: stores consistent states of the checkpoint directory while the processes run and after they end.

The application master decides when a state is stored, because a checkpoint may consist of the directories of several
tasks. The mirror reports the state of its directory, uploads it on the master's order, and requests the commit.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable
from typing import Callable, Optional, TypeVar

import attrs

from tony_provider.runtime.artifacts.upload import ArtifactUpload, TreeChanged
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.checkpoint.stored_checkpoint import MANIFEST_FILE, objects_directory, upload_name
from tony_provider.runtime.common import clock
from tony_provider.runtime.common.concurrency import Cancelled
from tony_provider.runtime.executor import workspace
from tony_provider.runtime.executor.checkpoint_directory import DirectoryState, Snapshot, new_throttle
from tony_provider.runtime.executor.checkpoint_limits import too_many_entries
from tony_provider.runtime.executor.executor_container import ExecutorContainer
from tony_provider.runtime.executor.master_link import MasterRequests, Send
from tony_provider.runtime.executor.start_context import (
    BackgroundWork,
    Deadline,
    ExecutorContext,
    StartOrder,
    StopRequest,
)
from tony_provider.runtime.jobspec.model import MirrorScope, saves_checkpoints
from tony_provider.runtime.protocol import limits, messages, tony_pb2
from tony_provider.runtime.storage import StorageError, uris

log = logging.getLogger(__name__)

T = TypeVar("T")
ReportedStep = Callable[[], Awaitable[Optional[int]]]  # the last step that the user process reported

_INTERVAL = 1.5  # seconds between two inspections of the directory
_BUSY_INTERVAL = 0.5  # seconds between two inspections while the program writes
_INSPECTION_SHARE = 10  # inspections of a large directory take at most a tenth of the time
_LONGEST_PAUSE = 60.0  # seconds after a failed upload; the first pause is _INTERVAL, then it doubles
_PATIENCE = 120.0  # seconds without a stored state until the task warns
_HANGS = 15.0  # seconds in which an upload sends nothing, or the master does not answer, until the task warns


def stores_checkpoints(container: ExecutorContainer, *, is_leader: bool) -> bool:
    """Return whether this task's checkpoints are stored. ``is_leader``: this task has rank 0."""
    scope = container.job.checkpoint.stored
    if scope is MirrorScope.OFF or not container.description.chain_dir:
        return False
    if scope is MirrorScope.LEADER:
        return is_leader
    return saves_checkpoints(container.role)


@attrs.frozen
class StoreProblem:
    """The reason why a checkpoint is not stored."""

    text: str
    refused: bool = False  # another attempt would be rejected for the same reason
    changed: bool = False  # the program was writing; the next inspection finds the new files
    remedy: str = ""  # what the user can do if the problem lasts


class CheckpointMirror(BackgroundWork):
    """Stores the checkpoints of one start of the user processes.

    Call ``start``, ``finish`` and ``close`` once. A problem with the storage or the disk only delays checkpoints.
    """

    def __init__(
        self,
        context: ExecutorContext,
        order: StartOrder,
        requests: MasterRequests,
        send: Send,
        reported: ReportedStep,
    ) -> None:
        super().__init__("mirror")
        self._unstored = ""  # warning: what cannot be stored at present, since when and why
        self._context = context
        self._directory = context.checkpoints
        self._order = order
        self._requests = requests
        self._send = send
        self._reported = reported
        container = context.container
        self._chain = container.description.chain_dir or ""
        self._rank = order.rank(container.task_type, container.index) or 0
        self._throttle = new_throttle(container)
        self._succeeded = False  # whether the user processes have ended with success
        self._closed = False
        self._inspection_seconds = 0.0  # duration of the last inspection
        self._largest_save = 0  # bytes of the largest save that was stored
        self._tight = ""  # a warning that the disk may not hold another save
        self._state: Optional[tony_pb2.CheckpointState] = None  # the last reported state
        self._wanted: Optional[tony_pb2.TakeSnapshot] = None  # order that is not carried out yet
        self._ordered = ""  # URI of the checkpoint in the newest order
        self._uploads = False  # an upload for an order is in progress
        self._unstored_since: Optional[float] = None  # monotonic
        self._newest: Optional[StoreProblem] = None  # found by the last inspection or upload
        self._failed: Optional[StoreProblem] = None  # problem of the last upload, until an upload succeeds

    @property
    def replay(self) -> list[tony_pb2.FromExecutor]:
        return [] if self._state is None else [self._state_message(self._state)]

    def _state_message(self, state: tony_pb2.CheckpointState) -> tony_pb2.FromExecutor:
        """Return the message about a state, with the newest order received: the master may have sent a further one."""
        message = tony_pb2.FromExecutor(checkpoint_state=state)
        message.checkpoint_state.ordered = self._ordered
        message.checkpoint_state.busy = self._uploads or (self._wanted is not None and self._wanted.wanted)
        return message

    def inspect_now(self) -> None:
        """Inspect the directory at once."""
        self._nudge.set()

    def take(self, wanted: tony_pb2.TakeSnapshot) -> None:
        """Take the snapshot that the application master orders. A repeated order has no effect."""
        is_new = not wanted.wanted or wanted.uri != self._ordered
        if wanted.start == self._order.start and is_new:
            self._wanted = wanted
            self._ordered = wanted.uri if wanted.wanted else self._ordered
            self._nudge.set()

    async def finish(self, stop_request: StopRequest, deadline: Deadline, *, succeeded: bool) -> str:
        """Store the directory after the processes have ended. Return the reason if that fails, or an empty text."""
        if self._work is None:
            return ""  # no process ever ran
        self._directory.ended()
        self._succeeded = succeeded
        if await self._end(self._work, stop_request, deadline):
            return self._newest.text if self._newest else ""
        given_up = self._describe_timeout()
        await self.close()
        return given_up

    async def close(self) -> None:
        self._closed = True
        await super().close()

    def _describe_timeout(self) -> str:
        if self._newest is not None and not self.activity:
            return self._newest.text
        return f"no time was left for {self.activity or 'an inspection of the checkpoint directory'}"

    # ---- the loop ------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        pause, version = _INTERVAL, 0
        while True:
            await self._pause(pause)
            last = self._ended
            is_done, problem = await self._store(last=last)
            is_known = problem is self._newest
            self._newest = problem
            self._warn(problem)
            if last and is_done:
                return
            is_new = self._state is not None and self._state.version != version
            version = self._state.version if self._state is not None else version
            if problem is None or is_new:
                pause = _INTERVAL
            elif problem.changed:
                pause = max(_BUSY_INTERVAL, _INSPECTION_SHARE * self._inspection_seconds)
            elif not is_known:  # otherwise the mirror only waits for the next order
                log.warning("the newest checkpoint is not stored yet: %s", problem.text)
                pause = min(2 * pause, _LONGEST_PAUSE)

    async def _store(self, *, last: bool) -> tuple[bool, Optional[StoreProblem]]:
        """Report the directory's state, and upload it if that is ordered.

        Return whether nothing is left to do, and the problem or None.
        """
        try:
            state = await self._in_thread(self._inspect, last)
        except OSError as error:
            return False, StoreProblem(f"the checkpoint directory cannot be read: {error}")
        except Exception as error:  # a bug in reading a program's files must not end its training
            log.exception("internal error in the checkpoint mirror")
            return last, StoreProblem(f"internal error in the checkpoint mirror: {error!r}")
        self._report(state, last)
        wanted, self._wanted = self._wanted, None
        if wanted is not None and wanted.wanted:
            return False, await self._obey(wanted)
        if not any(entry.news for entry in state.entries):
            problem = (
                StoreProblem(state.blocker, state.lasts, changed=True, remedy=state.remedy) if state.blocker else None
            )
            return last, problem
        if wanted is None:
            return False, self._failed
        return True, StoreProblem(wanted.reason or "the application master requests no checkpoint", refused=True)

    async def _obey(self, wanted: tony_pb2.TakeSnapshot) -> Optional[StoreProblem]:
        """Upload the snapshot that the master orders. Return None if it is committed, otherwise the problem."""
        self._uploads = True
        try:
            self._failed = await self._upload_and_commit(wanted)
        finally:
            self._uploads = False
        if self._failed is None:
            self._nudge.set()
        else:
            self._state = None  # report the state again, so that the master does not wait for this upload
        return self._failed

    def _inspect(self, last: bool) -> DirectoryState:
        began = time.monotonic()
        state = self._directory.inspect(ended=last, succeeded=self._succeeded)
        self._inspection_seconds = time.monotonic() - began
        tight = workspace.save_space_warning(self._directory.path, self._largest_save)
        self._tight = tight and (self._tight or tight)  # the text stays the same while the problem lasts
        self.problem = self._unstored or self._tight
        return state

    def _report(self, state: DirectoryState, last: bool) -> None:
        base = self._directory.base
        message = tony_pb2.CheckpointState(
            generation=self._order.generation,
            start=self._order.start,
            version=state.version,
            ready=state.ready,
            last=last,
            succeeded=last and self._succeeded,
            base=base.uri if base else "",
            save=base.save if base else 0,
            blocker=state.blocker,
            entries=state.entries,
        )
        is_empty = not (state.entries or state.blocker or last)
        if message == self._state or (self._state is None and is_empty):
            return
        self._state = message
        self._send(self._state_message(message))

    def _warn(self, problem: Optional[StoreProblem]) -> None:
        """Update the warning, whose text stays the same while the problem lasts.

        If the only problem is that the program is writing, warn after ``_PATIENCE`` seconds.
        """
        if problem is None:
            self._unstored, self._unstored_since, self.problem = "", None, self._tight
            return
        now = time.monotonic()
        self._unstored_since = now if self._unstored_since is None else self._unstored_since
        age = now - self._unstored_since
        is_short = problem.changed and not problem.refused and age < _PATIENCE
        if not self._unstored and not is_short:
            since = clock.time_of_day(clock.epoch_ms() - round(age * 1000))
            remedy = f". To store it, {problem.remedy}" if problem.remedy else ""
            self._unstored = f"its newest checkpoint has not been stored since {since}: {problem.text}{remedy}"
            log.warning("%s", self._unstored)
        self.problem = self._unstored or self._tight

    # ---- an upload -----------------------------------------------------------------------------------------------

    async def _upload_and_commit(self, wanted: tony_pb2.TakeSnapshot) -> Optional[StoreProblem]:
        """Upload a snapshot and request its commit. Return None after the commit, otherwise the problem."""
        name = upload_name(wanted.save, self._rank)
        upload = ArtifactUpload(self._context.storage, objects_directory(self._chain), name, self._throttle)
        reported = await self._reported()
        self.activity = f"uploading checkpoint {wanted.save}"
        began = time.monotonic()
        try:
            snapshot = await self._watched(
                self._in_thread(self._upload, wanted, upload, reported),
                lambda: upload.moved,
                f"the storage has accepted no bytes of checkpoint {wanted.save} for {_HANGS:g} s",
            )
            uploaded = self._uploaded(wanted, snapshot, time.monotonic() - began)
            if uploaded.ByteSize() > limits.size_limit("uploaded") - (64 << 10):
                await self._in_thread(self._remove, upload, wanted.uri)
                return StoreProblem(too_many_entries(len(uploaded.entries), uploaded.ByteSize()), refused=True)
            asked = time.monotonic()
            answer: tony_pb2.CheckpointAnswer = await self._watched(
                self._requests.ask(tony_pb2.FromExecutor(uploaded=uploaded)),
                lambda: asked,
                f"the application master has not committed checkpoint {wanted.save} for {_HANGS:g} s",
            )
        except TreeChanged as error:
            return StoreProblem(str(error), changed=True)
        except (StorageError, OSError, Cancelled) as error:
            return StoreProblem(str(error))
        finally:
            upload.cancel()
            self.activity = ""
        if answer.granted:
            point = ResumePoint(
                snapshot.step,
                wanted.uri,
                wanted.save,
                snapshot.saved_ms,
                reported=snapshot.reported,
                reported_step=snapshot.reported_step,
            )
            await self._in_thread(self._committed, snapshot, point)
            return None
        if answer.resend:
            self._directory.commit_rejected()
        await self._in_thread(self._remove, upload, wanted.uri)
        return StoreProblem(f"the application master rejected the checkpoint: {answer.reason}", refused=True)

    async def _watched(self, work: Awaitable[T], moved: Callable[[], Optional[float]], problem: str) -> T:
        """Return the result of ``work``. Warn of ``problem`` while ``moved()`` is over ``_HANGS`` seconds ago."""
        future = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait([future], timeout=_BUSY_INTERVAL))[0]:
                last = moved()
                if last is not None and time.monotonic() - last > _HANGS:
                    self._warn(StoreProblem(problem))
            return future.result()
        finally:
            future.cancel()

    def _upload(self, wanted: tony_pb2.TakeSnapshot, upload: ArtifactUpload, reported: Optional[int]) -> Snapshot:
        """Upload a snapshot, in a thread. Remove its objects if that fails, or if the mirror is closed meanwhile."""
        try:
            snapshot = self._directory.snapshot(wanted.version, list(wanted.leave_out), upload, reported)
        except BaseException:
            self._remove(upload, wanted.uri)
            raise
        if self._closed:
            self._remove(upload, wanted.uri)
            raise Cancelled("the upload was cancelled")
        return snapshot

    def _committed(self, snapshot: Snapshot, point: ResumePoint) -> None:
        self._directory.committed(snapshot, point)
        self._largest_save = max(self._largest_save, snapshot.uploaded.sent)
        if excluded := self._directory.describe_excluded():
            self._context.output.note(excluded)

    def _uploaded(
        self, wanted: tony_pb2.TakeSnapshot, snapshot: Snapshot, seconds: float
    ) -> tony_pb2.CheckpointUploaded:
        tree, loadable = snapshot.uploaded.tree, snapshot.loadable
        return tony_pb2.CheckpointUploaded(
            generation=self._order.generation,
            start=self._order.start,
            step=snapshot.step,
            uri=wanted.uri,
            format=loadable.format if loadable else "",
            entry=loadable.entry if loadable else "",
            entries=messages.tree_entries(tree),
            save=wanted.save,
            saved_ms=snapshot.saved_ms,
            reported=snapshot.reported,
            reported_step=snapshot.reported_step,
            content_step=loadable.content_step if loadable else None,
            process_seconds=snapshot.process_seconds,
            objects=tree.objects,
            copy_seconds=seconds,
        )

    def _remove(self, upload: ArtifactUpload, checkpoint: str) -> None:
        """Remove the objects of an upload, unless they were committed and the answer was lost.

        The application master removes remaining objects when the next generation begins.
        """
        storage = self._context.storage
        try:
            if not storage.exists(uris.join(checkpoint, MANIFEST_FILE)):
                for name in upload.objects:
                    storage.remove(uris.join(objects_directory(self._chain), name))
        except StorageError as error:
            log.warning("objects of a failed upload could not be removed from the storage: %s", error)
