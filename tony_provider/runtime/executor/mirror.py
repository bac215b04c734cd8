"""Copies the newest complete checkpoint to the store: again and again while a user process runs, and once after it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Callable, Optional

from tony_provider.runtime.deadline import within
from tony_provider.runtime.executor.carrier import Carrier, Trouble
from tony_provider.runtime.executor.checkpoint_directory import CheckpointDirectory
from tony_provider.runtime.executor.container import Container
from tony_provider.runtime.executor.stopping import Deadline, Stopping
from tony_provider.runtime.ranks import in_cluster
from tony_provider.runtime.spec.model import MirrorScope, Role

log = logging.getLogger(__name__)

_LOOK = 1.5  # seconds between two looks at the directory
_LONGEST_PAUSE = 60.0  # seconds after a copy that failed; the first pause is that between two looks, then it doubles
_LONGEST_LAST_PAUSE = 3.0  # once the process has ended, and somebody waits


def mirrors(container: Container) -> bool:
    """Whether this task's checkpoints go to the store."""
    scope = container.job.checkpoint.mirror
    if scope is MirrorScope.OFF or not container.description.lineage_dir:
        return False
    if scope is MirrorScope.LEADER:
        return container.leads
    return in_cluster(container.role) and container.role is not Role.PS


class Mirror:
    """``start``, ``finish`` and ``close`` it once. Trouble with the store or the disk is never more than a delay."""

    def __init__(self, directory: CheckpointDirectory, carrier: Carrier, step: Callable[[], Awaitable[int]]) -> None:
        """``step`` tells which one the user process reported last."""
        self.activity = ""  # for people; empty while there is nothing to copy
        self._directory = directory
        self._carrier = carrier
        self._step = step
        self._ended = False  # the user process
        self._nudge = asyncio.Event()
        self._trouble: Optional[Trouble] = None  # with the newest checkpoint
        self._work: Optional[asyncio.Future[None]] = None

    def start(self) -> None:
        self._work = asyncio.ensure_future(self._copy_until_done())

    def look_now(self) -> None:
        """There may be something new, or the store may be there again."""
        self._nudge.set()

    async def finish(self, stopping: Stopping, deadline: Deadline) -> str:
        """The user process has ended: copy what is there now. Why that did not succeed; empty when it did."""
        if self._work is None:
            return ""  # nothing ever ran
        self._ended = True
        self._nudge.set()
        if not await stopping.bound(self._work, deadline):
            given_up = self._given_up()
            await self.close()
            return given_up
        self._work.result()
        return self._trouble.text if self._trouble else ""

    async def close(self) -> None:
        """Whatever is under way is given up."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)
        self._carrier.close()

    def _given_up(self) -> str:
        if self._trouble is not None and not self.activity:
            return self._trouble.text
        return f"no time was left for {self.activity or 'a look at the checkpoint directory'}"

    async def _copy_until_done(self) -> None:
        pause = _LOOK
        while True:
            await self._wait(min(pause, _LONGEST_LAST_PAUSE) if self._ended else pause)
            last = self._ended
            self._trouble = await self._copy_newest(last=last)
            if self._trouble is None or self._trouble.refused:
                if last:
                    return
                pause = _LOOK if self._trouble is None else _LONGEST_PAUSE
            else:
                log.warning("the newest checkpoint is not on the store yet: %s", self._trouble.text)
                pause = min(2 * pause, _LONGEST_PAUSE)

    async def _wait(self, seconds: float) -> None:
        """Or until there is a reason to look at once."""
        try:
            await within(self._nudge.wait(), seconds)
        except asyncio.TimeoutError:
            return
        self._nudge.clear()

    async def _copy_newest(self, *, last: bool) -> Optional[Trouble]:
        try:
            newest = await self._carrier.in_thread(self._directory.newest, await self._step(), last)
            if newest is None:
                return None
            self.activity = f"uploading checkpoint {newest.step}"
            return await self._carrier.carry(newest)
        except OSError as error:
            return Trouble(f"{self._directory.path} cannot be read: {error}")
        except Exception as error:  # whatever a program left there: no fault of ours in reading it ends its training
            log.exception("a fault of the checkpoint mirror itself")
            return Trouble(f"a fault of the checkpoint mirror itself: {error!r}")
        finally:
            self.activity = ""
