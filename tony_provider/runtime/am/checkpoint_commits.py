"""Order snapshots, commit checkpoints and choose resume points, one operation at a time.

The session never waits for these operations: their results reach it as events.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Collection, Mapping, Sequence
from functools import partial
from typing import Callable, Optional

import attrs

from tony_provider.runtime.am import executor_messages
from tony_provider.runtime.am.checkpoint_chain import FencedError, OwnChain
from tony_provider.runtime.am.session.actions import AddNote, Note, NoteFailedResume
from tony_provider.runtime.am.session.restart_policy import CommittedSave
from tony_provider.runtime.am.session.session import Session
from tony_provider.runtime.am.session.session_events import (
    CheckpointBlocked,
    CheckpointCommitted,
    Event,
    JobFailed,
    QuotaWarning,
    ResumeChosen,
    ResumeNotChosen,
)
from tony_provider.runtime.am.snapshot_rounds import Round, SnapshotRounds, TakeOrder, Waiting
from tony_provider.runtime.application import ApplicationDescription
from tony_provider.runtime.artifacts.manifest import StoredTree
from tony_provider.runtime.checkpoint.catalog import Catalog, ChosenCheckpoint
from tony_provider.runtime.checkpoint.consistency import is_named_log
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.checkpoint.stored_checkpoint import (
    CheckpointTooLarge,
    DamagedCheckpoint,
    FailedResume,
    Manifest,
    NoCheckpointLeft,
    RankTree,
    StoredCheckpoint,
    chain_of,
    directory_name,
)
from tony_provider.runtime.common.clock import epoch_ms
from tony_provider.runtime.common.concurrency import retry
from tony_provider.runtime.common.text import one_line
from tony_provider.runtime.protocol import messages, tony_pb2
from tony_provider.runtime.protocol.status import FailureKind
from tony_provider.runtime.storage import StorageError, StorageExists, uris

log = logging.getLogger(__name__)

CHOICE_TIMEOUT = 600.0  # seconds for the search for the newest checkpoint in the storage
_COMMIT_TIMEOUT = 120.0  # seconds for one commit, enough for a NameNode that restarts or fails over
_PATIENCE = 120.0  # seconds with unsaved changes and without a snapshot until the job warns

Send = Callable[[str, tony_pb2.ToExecutor], None]  # first argument: the task
Answer = Callable[[bool, str, bool], None]  # arguments: granted, the reason if not, whether to upload all files again


@attrs.frozen
class CommitRequest:
    """An executor's request to commit the part of a checkpoint that it has uploaded."""

    task: str
    attempt: int
    uploaded: tony_pb2.CheckpointUploaded
    answer: Answer


class CheckpointCommits:
    """Processes requests for the job's checkpoint chain: snapshots, commits, resume points, exclusions.

    The request methods do not block. ``run`` does the work, and passes its results to ``post``.
    """

    def __init__(
        self,
        description: ApplicationDescription,
        chain: OwnChain,
        session: Session,
        post: Callable[[Event], None],
        note: AddNote,
        send: Send,
    ) -> None:
        self._application_id = description.application_id
        self._spec = description.job.checkpoint
        self._chain = chain
        self._session = session
        self._post = post
        self._post_note = note
        self._send = send
        self._rounds: SnapshotRounds[CommitRequest] = SnapshotRounds()
        self._newest: Optional[StoredCheckpoint] = None  # the checkpoint that was last committed or chosen
        self._knows_newest = False
        # Checkpoint URI by rank: the newest checkpoint contains the part that the rank uploaded for that checkpoint.
        self._origins: dict[int, str] = {}
        self._in_use: Optional[StoredCheckpoint] = None  # the checkpoint that was last chosen to resume from
        self._next_save = 1
        self._chosen_for = 0  # newest generation for which a resume point was requested
        self._fenced = False
        self._waiting_since: Optional[float] = None
        self._quota_warning = ""  # the last reported warning
        self._noted = ""  # reason for waiting that was reported since the last commit, or empty
        self._sound = ""  # URI of the checkpoint from which a process last resumed and reported a step
        self._work: asyncio.Queue[Callable[[], Awaitable[None]]] = asyncio.Queue()

    async def run(self) -> None:
        """Process requests until cancelled. Raises SupersededError, and internal errors."""
        self._work.put_nowait(self._find_newest)
        while True:
            work = await self._work.get()
            try:
                await work()
            except FencedError as error:
                self._fenced = True
                self._post(JobFailed(FailureKind.FENCED, str(error)))

    # ---- requests ----------------------------------------------------------------------------------------------

    def choose(self, generation: int, trusted: str = "", tasks: Collection[str] = ()) -> None:
        """Find the checkpoint that a generation resumes from. From now on, commits of older generations are rejected.

        The checkpoint with the URI ``trusted`` never counts as suspect. ``tasks``: the tasks that resume from it.
        """
        self._chosen_for = max(self._chosen_for, generation)
        self._abandon(f"generation {generation} has begun")
        self._work.put_nowait(partial(self._choose, generation, trusted, tasks))

    def note_failed_resume(self, failed: NoteFailedResume) -> None:
        """Record a failure after a resume. Two equal failures make the checkpoint suspect."""
        failure = FailedResume(failed.kind, failed.message, self._application_id, epoch_ms())
        self._sound = ""
        note = partial(self._chain.note_failed_resume, failed.resume.uri, failure)
        self._work.put_nowait(partial(self._note_resume, failed.resume, note))

    def note_sound_resume(self, resume: ResumePoint) -> None:
        """Discard the failures of a checkpoint, because a process resumed from it and reported a step.

        Every task of a gang may cause this call. Repeated calls for the same checkpoint have no effect.
        """
        if resume.uri != self._sound:
            self._sound = resume.uri
            self._work.put_nowait(
                partial(self._note_resume, resume, partial(self._chain.note_sound_resume, resume.uri))
            )

    def set_aside(self, resume: ResumePoint, reason: str) -> None:
        self._work.put_nowait(partial(self._set_aside, resume, reason))

    def reported(self, task: str, attempt: int, message: tony_pb2.CheckpointState) -> None:
        """Record the state of a task's checkpoint directory. Repeat an order that the task has not received."""
        self._next_save = max(self._next_save, message.save + 1)
        repeated = self._rounds.report(task, executor_messages.task_directory(attempt, message), time.monotonic())
        if repeated is not None and self._rounds.round is not None:
            self._send_order(repeated, self._rounds.round)

    def uploaded(self, request: CommitRequest) -> None:
        """Commit the checkpoint once all its parts are uploaded, or reject the request. Every request is answered."""
        uploaded = request.uploaded
        if self._newest is not None and uploaded.uri == self._newest.uri:
            request.answer(True, "", False)  # a repeated request, because the answer was lost
            return
        if refusal := self._refusal(request):
            self._refuse(request, refusal)
            return
        try:
            whole = self._rounds.add(request.task, uploaded.uri, request)
        except LookupError as error:
            self._work.put_nowait(partial(self._find_committed, request, str(error)))
            return
        if whole is not None and self._chain.catalog is not None:
            self._work.put_nowait(partial(self._commit, self._chain.catalog, whole))

    def look(self) -> None:
        """Order the next snapshot if the tasks are ready. The caller repeats this periodically."""
        catalog = self._chain.catalog
        if catalog is None or self._fenced or not self._knows_newest:
            return
        ranks = dict(self._session.mirror_ranks())
        self._rounds.forget([task for task in ranks if self._may_write(task)])
        broken = self._rounds.broken()
        if broken is not None:
            self._abandon(broken)
        if self._rounds.round is not None:
            return
        running = [task for task in ranks if self._session.still_copies(task)]
        plan = self._rounds.plan(ranks, self._session.checkpoint_groups(), self._origins, time.monotonic(), running)
        if isinstance(plan, Waiting):
            self._wait(plan, ranks)
            return
        self._waiting_since = None
        if plan:
            self._order(catalog, plan)

    # ---- snapshots ---------------------------------------------------------------------------------------------

    def _order(self, catalog: Catalog, orders: Sequence[TakeOrder]) -> None:
        save = self._next_save
        self._next_save += 1
        ordered = self._rounds.order(uris.join(catalog.uri, directory_name(save)), save, orders)
        for order in orders:
            self._send_order(order, ordered)

    def _send_order(self, order: TakeOrder, ordered: Round[CommitRequest]) -> None:
        state = order.state
        take = executor_messages.take_snapshot(
            state.generation, state.start, state.version, ordered.save, ordered.uri, order.leave_out
        )
        self._send(order.task, take)

    def _wait(self, waiting: Waiting, ranks: Mapping[str, int]) -> None:
        """Warn if the wait is long. Release ended tasks if no snapshot is possible any more."""
        now = time.monotonic()
        self._waiting_since = self._waiting_since or now
        # Report only the first reason, because later ones may just name other saves. Always report one with a remedy.
        if waiting.reason != self._noted and (
            waiting.refused or (not self._noted and now - self._waiting_since >= _PATIENCE)
        ):
            self._warn(waiting.reason)
        states = {task: self._rounds.state(task) for task in ranks}
        may_change = any(
            not state.last if state else self._session.still_copies(task) for task, state in states.items()
        )
        if waiting.refused or not may_change:
            for task, state in states.items():
                if state is not None and state.last and state.news:
                    self._send(task, executor_messages.no_snapshot(state.generation, state.start, waiting.reason))

    def _warn(self, reason: str) -> None:
        """Report that no checkpoint can be stored. The warning stays until the next commit."""
        self._noted = reason
        problem = one_line(f"no checkpoint can be stored: {reason}")
        self._note("checkpoint_waiting", problem)
        self._post(CheckpointBlocked(problem))

    def _may_write(self, task: str) -> bool:
        state = self._rounds.state(task)
        return state is not None and not self._session.commit_refusal(
            task, state.attempt, state.generation, state.start
        )

    def _abandon(self, reason: str) -> None:
        """Cancel the current snapshot round and reject its requests."""
        ordered = self._rounds.round
        if ordered is not None and not ordered.is_complete:  # otherwise the commit answers its requests
            self._rounds.ended(ordered.uri, committed=False)
            for request in ordered.parts.values():
                self._refuse(request, reason)

    # ---- the work ----------------------------------------------------------------------------------------------

    async def _find_newest(self) -> None:
        """Find the newest checkpoint. A former application master may have committed it for the running processes."""
        if self._chain.catalog is not None and not self._knows_newest:
            find = partial(self._chain.do, partial(self._find, self._chain.catalog.choose))
            try:
                chosen, next_save = await retry(find, CHOICE_TIMEOUT, StorageError, partial(log.warning, "%s"))
            except StorageError as error:
                log.warning("cannot find the newest checkpoint: %s", error)
                chosen, next_save = None, 1
            self._set_newest(chosen, next_save)

    def _find(self, find: Callable[[], Optional[ChosenCheckpoint]]) -> tuple[Optional[ChosenCheckpoint], int]:
        """Return a checkpoint that ``find`` finds, and the number of the next save. Runs in the thread of the chain."""
        chosen = find()
        return chosen, self._chain.catalog.next_save() if self._chain.catalog else 1

    def _set_newest(self, chosen: Optional[ChosenCheckpoint], next_save: int) -> None:
        found = chosen.checkpoint if chosen else None
        self._newest, self._knows_newest, self._origins = found, True, {}
        self._next_save = max(self._next_save, next_save, found.save + 1 if found else 1)
        if found is not None and self._is_own(found):
            self._origins = {each.rank: found.uri for each in found.manifest.trees}

    async def _find_committed(self, request: CommitRequest, refusal: str) -> None:
        """Grant a request if a former application master has committed the checkpoint. Otherwise reject it."""
        catalog, uri = self._chain.catalog, request.uploaded.uri
        try:
            if catalog is not None and uri.startswith(f"{catalog.uri}/"):
                await self._chain.do(partial(catalog.load, uri))
                request.answer(True, "", False)
                return
        except (StorageError, DamagedCheckpoint) as error:
            log.info("%s: %s", uri, error)
        self._refuse(request, refusal)

    async def _choose(self, generation: int, trusted: str, tasks: Collection[str]) -> None:
        def note(error: StorageError) -> None:
            self._note("store_unavailable", f"retrying the search for a checkpoint to resume from: {error}")

        choose = partial(self._chain.do, partial(self._find, partial(self._chain.choose, generation, trusted)))
        try:
            chosen, next_save = await retry(choose, CHOICE_TIMEOUT, StorageError, note)
        except (StorageError, NoCheckpointLeft) as error:
            self._post(ResumeNotChosen(generation, str(error)))
            return
        self._set_newest(chosen, next_save)
        self._in_use = self._newest
        if chosen and chosen.suspect:
            self._keep_parts(chosen.suspect, tasks)
        point = chosen.checkpoint.point if chosen else None
        not_from = chosen.not_from if chosen else ""
        self._post(ResumeChosen(generation, point, not_from))

    def _keep_parts(self, suspect: StoredCheckpoint, resuming: Collection[str]) -> None:
        """Keep the suspect checkpoint's parts for tasks that do not resume.

        These tasks may have ended, and would then never upload their parts again.
        """
        ranks = {rank for task, rank in self._session.mirror_ranks() if task not in resuming}
        kept = [each for each in suspect.manifest.trees if each.rank in ranks]
        if self._newest is None or not self._is_own(suspect) or not self._is_own(self._newest):
            return
        trees = [each for each in self._newest.manifest.trees if each.rank not in ranks] + kept
        self._newest = attrs.evolve(self._newest, manifest=attrs.evolve(self._newest.manifest, trees=trees))
        self._origins |= {each.rank: suspect.uri for each in kept}

    async def _note_resume(self, resume: ResumePoint, note: Callable[[], None]) -> None:
        try:
            await self._chain.do(note)
        except StorageError as error:
            self._note(
                "store_unavailable", f"the result of the resume from {resume.label} could not be recorded: {error}"
            )

    def _is_own(self, checkpoint: StoredCheckpoint) -> bool:
        """Return whether a checkpoint's objects are in this chain, so that new checkpoints can refer to them."""
        return self._chain.catalog is not None and chain_of(checkpoint.uri) == self._chain.catalog.chain_uri

    async def _commit(self, catalog: Catalog, whole: Mapping[str, CommitRequest]) -> None:
        uri = next(iter(whole.values())).uploaded.uri
        for request in whole.values():
            if refusal := self._refusal(request):  # the task may have been replaced since the request
                self._refuse_all(uri, whole, refusal)
                return
        ranks = dict(self._session.mirror_ranks())
        made = self._manifest(whole, ranks)
        save = _progress_of(whole, made, self._newest)
        commit = partial(self._chain.do, partial(_commit, catalog, uri, made))
        try:
            stored = await retry(commit, _COMMIT_TIMEOUT, StorageError, lambda error: self._warn(str(error)))
        except DamagedCheckpoint as error:
            self._refuse_all(uri, whole, str(error), resend=True)
            return
        except (StorageError, CheckpointTooLarge) as error:
            self._refuse_all(uri, whole, str(error))
            return
        except FencedError as error:
            self._refuse_all(uri, whole, str(error))
            raise
        self._newest = stored
        self._origins = {
            each.rank: uri if each.rank in {ranks.get(task) for task in whole} else self._origins.get(each.rank, "")
            for each in stored.manifest.trees
        }
        seconds = max(request.uploaded.copy_seconds for request in whole.values())
        self._post(CheckpointCommitted(stored.point, save, seconds))
        for request in whole.values():
            request.answer(True, "", False)
        self._rounds.ended(uri, committed=True)
        if self._noted:
            self._noted = ""
            self._post(CheckpointBlocked(""))
        await self._prune(catalog)
        await self._check_quota(made)

    def _manifest(self, whole: Mapping[str, CommitRequest], ranks: Mapping[str, int]) -> Manifest:
        """Return the manifest of these parts and of the unchanged parts of the newest checkpoint."""
        parts = {
            ranks[task]: messages.uploaded_tree(request.uploaded) for task, request in whole.items() if task in ranks
        }
        tops = {entry.path.partition("/")[0] for tree in parts.values() for entry in tree.entries}
        if self._newest is not None and self._is_own(self._newest):
            for each in self._newest.manifest.trees:
                if each.rank not in parts:
                    is_there = each.rank in ranks.values()
                    parts[each.rank] = each.tree if is_there else _only(each.tree, tops)
        in_order = [whole[task].uploaded for task in sorted(whole, key=lambda task: ranks.get(task, len(ranks)))]
        first = in_order[0]
        loadable = next((uploaded for uploaded in in_order if uploaded.entry), first)
        return Manifest(
            save=first.save,
            step=loadable.step if loadable.HasField("step") else None,
            trees=[RankTree(rank, parts[rank]) for rank in sorted(parts)],
            format=loadable.format,
            entry=loadable.entry,
            saved_ms=max(request.uploaded.saved_ms for request in whole.values()),
            reported=loadable.reported,
            reported_step=loadable.reported_step if loadable.HasField("reported_step") else None,
            application_id=self._application_id,
            generation=first.generation,
            committed_ms=epoch_ms(),
        )

    async def _prune(self, catalog: Catalog) -> None:
        keep = [self._in_use.uri] if self._in_use else []
        try:
            await self._chain.do(partial(catalog.prune, self._spec.keep, self._spec.keep_every, keep=keep))
        except StorageError as error:
            log.warning("cannot remove older checkpoints now: %s", error)

    async def _check_quota(self, newest: Manifest) -> None:
        try:
            warning = await self._chain.do(partial(self._chain.quota_warning, newest))
        except StorageError as error:
            log.warning("the quotas are unknown: %s", error)
            return
        if warning != self._quota_warning:
            self._quota_warning = warning
            self._post(QuotaWarning(warning))

    async def _set_aside(self, resume: ResumePoint, reason: str) -> None:
        try:
            await self._chain.do(partial(self._chain.set_aside, resume.uri, reason))
        except StorageError as error:
            # The checkpoint may be chosen and found damaged again. The session limits the number of these attempts.
            self._note("store_unavailable", f"{resume.label} is damaged and could not be set aside: {error}")

    # ---- helpers -----------------------------------------------------------------------------------------------

    def _refusal(self, request: CommitRequest) -> Optional[str]:
        uploaded = request.uploaded
        if self._fenced:
            return "another application owns the checkpoint chain"
        if uploaded.generation < self._chosen_for:
            return f"generation {self._chosen_for} has begun"
        return self._session.commit_refusal(request.task, request.attempt, uploaded.generation, uploaded.start)

    def _refuse_all(self, uri: str, whole: Mapping[str, CommitRequest], reason: str, *, resend: bool = False) -> None:
        self._rounds.ended(uri, committed=False)
        for request in whole.values():
            self._refuse(request, reason, resend=resend)

    def _refuse(self, request: CommitRequest, reason: str, *, resend: bool = False) -> None:
        self._note("checkpoint_refused", one_line(f"save {request.uploaded.save}: {reason}"), request.task)
        request.answer(False, reason, resend)

    def _note(self, event: str, message: str, task: Optional[str] = None) -> None:
        self._post_note(Note(event, message, task))


def _progress_of(
    whole: Mapping[str, CommitRequest], made: Manifest, before: Optional[StoredCheckpoint]
) -> CommittedSave:
    """Return the progress in a checkpoint that consists of the uploaded parts ``whole``."""
    steps = [each.uploaded.content_step for each in whole.values() if each.uploaded.HasField("content_step")]
    known = _contents(before.manifest) if before is not None else set()
    return CommittedSave(
        tasks=tuple(whole),
        content_step=max(steps, default=None),
        is_new=not _contents(made) <= known,
        process_seconds=max(each.uploaded.process_seconds for each in whole.values()),
    )


def _contents(manifest: Manifest) -> set[tuple[int, str]]:
    """Return the sizes and checksums of all files except logs, because logs also grow without progress."""
    entries = (entry for tree in manifest.trees for entry in tree.tree.entries)
    return {(entry.size, entry.checksum) for entry in entries if entry.checksum and not is_named_log(entry.path)}


def _only(tree: StoredTree, tops: set[str]) -> StoredTree:
    """Return the entries of a removed task that belong to saves which other tasks still have."""
    entries = [entry for entry in tree.entries if entry.path.partition("/")[0] in tops]
    named = {entry.object for entry in entries}
    return StoredTree(entries, {name: size for name, size in tree.objects.items() if name in named})


def _commit(catalog: Catalog, uri: str, made: Manifest) -> StoredCheckpoint:
    try:
        return catalog.commit(uri, made)
    except StorageExists:
        return catalog.load(uri)  # a former application master has committed it, but its answer was lost
