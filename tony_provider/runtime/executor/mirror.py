"""The mirror: copies complete checkpoints to the store, again and again beside a user process, and once after it."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Optional

from tony_provider.runtime import clock
from tony_provider.runtime.deadline import within
from tony_provider.runtime.executor.checkpoint_uploader import CheckpointUploader, UploadTrouble
from tony_provider.runtime.executor.executor_container import ExecutorContainer
from tony_provider.runtime.executor.mirrored_checkpoints import Copies
from tony_provider.runtime.executor.process_stop import Deadline, ProcessStop
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.ranks import in_cluster
from tony_provider.runtime.spec.model import MirrorScope, Role

log = logging.getLogger(__name__)

_LOOK = 1.5  # seconds between two looks at the directory
_LOOK_AGAIN = 0.3  # seconds, when the program was just writing
_LONGEST_PAUSE = 60.0  # seconds after a copy that failed; the first pause is that between two looks, then it doubles
_LONGEST_WRITING = 120.0  # seconds after which it is told that no copy comes through between two writings
_LONGEST_LAST_PAUSE = 3.0  # once the process has ended, and somebody waits


def mirrors(container: ExecutorContainer, *, leads: bool) -> bool:
    """Whether this task's checkpoints go to the store. ``leads``: it has rank 0."""
    scope = container.job.checkpoint.mirror
    if scope is MirrorScope.OFF or not container.description.chain_dir:
        return False
    if scope is MirrorScope.LEADER:
        return leads
    return in_cluster(container.role) and container.role is not Role.PS


class Mirror:
    """Copies the checkpoints of one start of the user process to the store.

    ``start``, ``finish`` and ``close`` it once. Trouble with the store or the disk is never more than a delay.
    """

    def __init__(self, copies: Copies, uploader: CheckpointUploader) -> None:
        self.trouble = ""  # for people: what does not get to the store at present, since when and why
        self._copies = copies
        self._uploader = uploader
        self._ended = False  # the user process
        self._nudge = asyncio.Event()
        self._since: Optional[float] = None  # seconds since the epoch that there is trouble
        self._newest: Optional[UploadTrouble] = None  # with the newest checkpoint
        self._work: Optional[asyncio.Future[None]] = None

    @property
    def activity(self) -> str:
        """What is being copied, for people; empty while there is nothing to copy."""
        return self._copies.activity

    @property
    def said(self) -> list[tony_pb2.FromExecutor]:
        """The messages that an application master which missed them must hear."""
        return list(self._copies.said)

    def start(self) -> None:
        self._work = asyncio.ensure_future(self._copy_until_done())

    def look_now(self) -> None:
        """Look for something to copy at once: there may be something new, or the store may be there again."""
        self._nudge.set()

    def wanted(self, message: tony_pb2.CopyCheckpoint) -> None:
        """Copy the checkpoint that the application master names."""
        self._copies.wanted(message)
        self.look_now()

    async def finish(self, stopping: ProcessStop, deadline: Deadline) -> str:
        """Copy what is there now that the user process has ended. Why that did not succeed; empty when it did."""
        if self._work is None:
            return ""  # nothing ever ran
        self._ended = True
        self._nudge.set()
        if not await stopping.bound(self._work, deadline):
            given_up = self._given_up()
            await self.close()
            return given_up
        self._work.result()
        return self._newest.text if self._newest else ""

    async def close(self) -> None:
        """Give up whatever is under way."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)
        self._uploader.close()

    def _given_up(self) -> str:
        if self._newest is not None and not self.activity:
            return self._newest.text
        return f"no time was left for {self.activity or 'a look at the checkpoint directory'}"

    async def _copy_until_done(self) -> None:
        pause = _LOOK
        while True:
            await self._wait(min(pause, _LONGEST_LAST_PAUSE) if self._ended else pause)
            last = self._ended
            self._newest = trouble = await self._copy_newest(last=last)
            self._tell(trouble)
            if trouble is None or trouble.refused:
                if last:
                    return
                pause = _LOOK if trouble is None else _LONGEST_PAUSE
            elif trouble.changed:
                log.info("%s; looking again", trouble.text)
                pause = _LOOK_AGAIN
            else:
                log.warning("the newest checkpoint is not on the store yet: %s", trouble.text)
                pause = min(2 * pause, _LONGEST_PAUSE)

    def _tell(self, trouble: Optional[UploadTrouble]) -> None:
        """In the same words for as long as it lasts. That a program is just writing is none, unless it always is."""
        if trouble is None:
            self.trouble, self._since = "", None
            return
        self._since = self._since or time.time()
        if not self.trouble and not (trouble.changed and time.time() - self._since < _LONGEST_WRITING):
            since = clock.time_of_day(round(self._since * 1000))
            self.trouble = f"its newest checkpoint does not get to the store since {since}: {trouble.text}"

    async def _wait(self, seconds: float) -> None:
        """Or until there is a reason to look at once."""
        try:
            await within(self._nudge.wait(), seconds)
        except asyncio.TimeoutError:
            return
        self._nudge.clear()

    async def _copy_newest(self, *, last: bool) -> Optional[UploadTrouble]:
        try:
            return await self._copies.copy(last=last)
        except OSError as error:
            return UploadTrouble(f"the checkpoint directory cannot be read: {error}")
        except Exception as error:  # whatever a program left there: no fault of ours in reading it ends its training
            log.exception("a fault of the checkpoint mirror itself")
            return UploadTrouble(f"a fault of the checkpoint mirror itself: {error!r}")
