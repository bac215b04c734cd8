"""Commits of checkpoints and the choice of resume points, for the session and the executors, in the order asked for.

Nothing of it makes the session wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from functools import partial
from typing import Callable, Optional

import attrs

from tony_provider.runtime.am.common_checkpoints import CommonCheckpoints, Send
from tony_provider.runtime.am.own_chain import OwnChain
from tony_provider.runtime.am.owner import FencedError
from tony_provider.runtime.am.session.actions import Action, Note
from tony_provider.runtime.am.session.session import Session
from tony_provider.runtime.am.shards import Shard, ShardError, manifest
from tony_provider.runtime.application import ApplicationDescription
from tony_provider.runtime.checkpoint.catalog import Catalog
from tony_provider.runtime.checkpoint.checkpoint_model import Manifest, StoredCheckpoint
from tony_provider.runtime.checkpoint.errors import DamagedCheckpoint
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.clock import epoch_ms
from tony_provider.runtime.protocol import points, tony_pb2
from tony_provider.runtime.protocol.status import FailureKind
from tony_provider.runtime.retrying import retry
from tony_provider.runtime.spec.model import MirrorScope
from tony_provider.runtime.storage import StorageError, StorageExists
from tony_provider.runtime.text import one_line

log = logging.getLogger(__name__)

CHOICE_TIMEOUT = 600.0  # seconds for the store to say which checkpoint is the newest
_COMMIT_TIMEOUT = 120.0  # seconds for one commit: a NameNode that restarts or fails over takes its time

Step = Callable[[float], "list[Action]"]


@attrs.frozen
class CommitRequest:
    """An executor's request to commit what it has uploaded."""

    task: str
    attempt: int
    uploaded: tony_pb2.CheckpointUploaded
    answer: Callable[[bool, str], None]  # whether it is granted, and why not


class CheckpointCommits:
    """Works off requests for the chain: commits, resume points, checkpoints to set aside.

    The methods that ask do not block; ``run`` does the work, and what comes of it goes to ``post`` as steps of the
    session.
    """

    def __init__(
        self,
        description: ApplicationDescription,
        chain: OwnChain,
        session: Session,
        post: Callable[[Step], None],
        send: Send,
    ) -> None:
        self._application_id = description.application_id
        self._spec = description.job.checkpoint
        self._chain = chain
        self._session = session
        self._post = post
        self._common: Optional[CommonCheckpoints] = None
        if self._spec.mirror is MirrorScope.ALL:
            self._common = CommonCheckpoints(session, send, self._abandoned)
        self._asked: dict[str, list[CommitRequest]] = {}  # by the URI of the checkpoint that they want committed
        self._newest: Optional[StoredCheckpoint] = None  # that was committed or chosen
        self._in_use: Optional[StoredCheckpoint] = None  # that was chosen
        self._chosen_for = 0  # generation
        self._fenced = False
        self._work: asyncio.Queue[Callable[[], Awaitable[None]]] = asyncio.Queue()

    async def run(self) -> None:
        """Work until it is cancelled. Raises SupersededError, and what is a fault of ours."""
        while True:
            work = await self._work.get()
            try:
                await work()
            except FencedError as error:
                self._fenced = True
                self._post(partial(self._session.fail, FailureKind.FENCED, str(error)))

    # ---- what is wanted ----------------------------------------------------------------------------------------

    def choose(self, generation: int) -> None:
        """Find the newest checkpoint for a generation. From now on older generations commit nothing."""
        self._chosen_for = max(self._chosen_for, generation)
        if self._common:
            self._common.begin(f"generation {generation} has begun")
        self._work.put_nowait(partial(self._choose, generation))

    def set_aside(self, resume: ResumePoint, reason: str) -> None:
        self._work.put_nowait(partial(self._set_aside, resume, reason))

    def uploaded(self, request: CommitRequest) -> None:
        """Commit what was uploaded, or refuse it. Always answers, sooner or later."""
        refusal = self._refusal(request)
        if refusal:
            self._refuse(request, refusal)
            return
        catalog, ranks = self._chain.catalog, dict(self._session.mirror_ranks())
        if catalog is None or request.task not in ranks:
            self._refuse(request, f"checkpoints of {request.task} are not kept")
            return
        try:
            shard = Shard.of(request.uploaded, ranks[request.task], catalog.uri)
        except ShardError as error:
            self._refuse(request, str(error))
            return
        if self._newest is not None and shard.checkpoint == self._newest.uri:
            request.answer(True, "")  # asked again, since the answer was lost
            return
        self._ask(shard.checkpoint, request)
        try:
            whole = self._common.add(shard) if self._common else [shard]
        except ShardError as error:
            self._abandoned(shard.checkpoint, str(error))
            return
        if whole:
            self._work.put_nowait(partial(self._commit, catalog, request, whole))

    def _ask(self, checkpoint: str, request: CommitRequest) -> None:
        """Keep the request until there is an answer; of each attempt of a task the newest only."""
        asked = self._asked.setdefault(checkpoint, [])
        for former in [each for each in asked if (each.task, each.attempt) == (request.task, request.attempt)]:
            asked.remove(former)
            former.answer(False, "it was asked for again")
        asked.append(request)

    def held(self, task: str, attempt: int, message: tony_pb2.CheckpointsHeld) -> None:
        """Record which checkpoints a rank says it has; with ``mirror: all``."""
        if self._common:
            self._common.held(task, attempt, message)

    def look(self) -> None:
        """Act on what the ranks have said, and on ranks that are gone. To be called now and then."""
        if self._common and self._chain.catalog:
            self._common.look(self._chain.catalog.uri)

    # ---- the work ----------------------------------------------------------------------------------------------

    async def _choose(self, generation: int) -> None:
        def troubled(error: StorageError) -> None:
            self._note("store_unavailable", f"looking for a checkpoint to go on from, again and again: {error}")

        look = partial(self._chain.do, partial(self._chain.newest, generation))
        try:
            found = await retry(look, CHOICE_TIMEOUT, StorageError, troubled)
        except StorageError as error:
            self._post(partial(self._session.resume_failed, generation, str(error)))
            return
        self._newest = self._in_use = found
        self._post(partial(self._session.resume_chosen, generation, found.point if found else None))

    async def _commit(self, catalog: Catalog, request: CommitRequest, whole: list[Shard]) -> None:
        uri = whole[0].checkpoint
        refusal = self._refusal(request)  # much may have happened since it was asked
        if refusal:
            self._abandoned(uri, refusal)
            return
        made = manifest(whole, self._application_id, epoch_ms())
        commit = partial(self._chain.do, partial(_commit, catalog, uri, made))
        try:
            stored = await retry(commit, _COMMIT_TIMEOUT, StorageError, partial(log.warning, "%s"))
        except (StorageError, DamagedCheckpoint) as error:
            self._abandoned(uri, str(error))
            return
        except FencedError as error:
            self._abandoned(uri, str(error))
            raise
        self._newest = stored
        seconds = max(asked.uploaded.copy_seconds for asked in self._asked.get(uri, [request]))
        self._post(partial(self._session.checkpoint_committed, stored.point, copy_seconds=seconds))
        for asked in self._asked.pop(uri, []):
            asked.answer(True, "")
        if self._common:
            self._common.ended(uri, committed=True)
        await self._prune(catalog)

    async def _prune(self, catalog: Catalog) -> None:
        keep = [self._in_use.uri] if self._in_use else []
        try:
            await self._chain.do(partial(catalog.prune, self._spec.keep_last, self._spec.keep_every, keep=keep))
        except StorageError as error:
            log.warning("older checkpoints are left for now: %s", error)

    async def _set_aside(self, resume: ResumePoint, reason: str) -> None:
        try:
            await self._chain.do(partial(self._chain.set_aside, resume.uri, reason))
        except StorageError as error:
            # Chosen again, it is found to be damaged again; how often that may happen is for the session to say.
            self._note("store_unavailable", f"the damaged checkpoint of {resume.label} is still there: {error}")

    # ---- helpers -----------------------------------------------------------------------------------------------

    def _refusal(self, request: CommitRequest) -> Optional[str]:
        asked = request.uploaded
        if self._fenced:
            return "another application owns the checkpoint chain"
        if asked.generation < self._chosen_for:
            return f"generation {self._chosen_for} has begun"
        newest = self._newest
        if newest and not asked.uri.startswith(f"{newest.uri}/") and _is_older(points.of_uploaded(asked), newest.point):
            return f"{newest.point.label} is on the store already"
        return self._session.commit_refusal(request.task, request.attempt, asked.generation, asked.start)

    def _abandoned(self, uri: str, reason: str) -> None:
        """This checkpoint will not be committed."""
        for request in self._asked.pop(uri, []):
            self._refuse(request, reason)
        if self._common:
            self._common.ended(uri, committed=False)

    def _refuse(self, request: CommitRequest, reason: str) -> None:
        what = points.of_uploaded(request.uploaded)
        self._note("checkpoint_refused", one_line(f"{what.label}: {reason}"), request.task)
        request.answer(False, reason)

    def _note(self, event: str, message: str, task: Optional[str] = None) -> None:
        note = Note(event, message, task)
        self._post(lambda _: [note])


def _commit(catalog: Catalog, uri: str, made: Manifest) -> StoredCheckpoint:
    try:
        return catalog.commit(uri, made)
    except StorageExists:
        return catalog.load(uri)  # a former application master has committed it, and its answer did not get through


def _is_older(asked: ResumePoint, newest: ResumePoint) -> bool:
    later = asked.is_later_step(newest)
    return asked.save <= newest.save if later is None else not later
