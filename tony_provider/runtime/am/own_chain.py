"""The checkpoint chain that an application trains on, as its master works with it."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, Optional, TypeVar

from tony_provider.runtime import contract
from tony_provider.runtime.am.owner import FencedError, Ownership
from tony_provider.runtime.am.quota_watch import QuotaWatch
from tony_provider.runtime.checkpoint.catalog import Catalog, ChosenCheckpoint, foreign_catalog
from tony_provider.runtime.checkpoint.checkpoint_model import Manifest
from tony_provider.runtime.checkpoint.errors import NoCheckpointLeft
from tony_provider.runtime.checkpoint.failed_resumes import FailedResume
from tony_provider.runtime.spec.model import AfterSuccess
from tony_provider.runtime.storage import StorageError, uris
from tony_provider.runtime.storage.leftovers import remove_leftovers

log = logging.getLogger(__name__)

T = TypeVar("T")

_CHOICES = 3  # attempts to find a checkpoint that the owner of the former chain does not remove at the same moment


class OwnChain:
    """The chain and the work on it, done in a thread of its own: one piece after the other.

    Before each piece it is looked up who owns the chain.
    """

    def __init__(self, ownership: Ownership) -> None:
        self.swept = 0  # the generation up to which there are no leftovers to look for: its tasks may be uploading
        description = ownership.description
        storage, chain, former = ownership.storage, description.chain_dir, description.continues
        self.catalog = Catalog(storage, chain) if chain else None
        self._former = foreign_catalog(storage, former) if former else None
        self._reader = description.application_id
        self._quotas = QuotaWatch(storage, chain, description.job.checkpoint.keep) if chain else None
        self._pinned = ""  # URI of the checkpoint of the former chain that is in use
        self._ownership = ownership
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="chain")

    async def do(self, work: Callable[[], T]) -> T:
        """Do a piece of work in the thread; returns what it gives.

        Raises FencedError, SupersededError, StorageError, and what ``work`` raises. Cancelled, the work goes on to its
        end, before anything else is begun.
        """
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._owned, work)

    def close(self) -> None:
        """Take no more work. What is under way ends by the store's deadlines."""
        self._thread.shutdown(wait=False)

    async def conclude(self, after_success: Optional[AfterSuccess]) -> None:
        """Leave in the chain what is to stay, once every task has ended; None: the job has not succeeded.

        Raises SupersededError; everything else is only logged.
        """
        catalog = self.catalog
        if catalog is None:
            return
        try:
            await self.do(lambda: self._leave(catalog, after_success))
        except (StorageError, FencedError) as error:
            log.warning("the checkpoint chain stays as it is: %s", error)

    # ---- what is done in the thread ----------------------------------------------------------------------------

    def choose(self, generation: int, trusted: str = "") -> Optional[ChosenCheckpoint]:
        """Return the checkpoint that a generation resumes from. Older generations commit nothing any more.

        The checkpoint with the URI ``trusted`` never counts as suspect. Raises NoCheckpointLeft.
        """
        if generation > self.swept:
            self._sweep()
            self.swept = generation
        chosen = self.catalog.choose(trusted) if self.catalog else None
        if chosen is None and self._former:
            return self._choose_of(self._former, trusted)
        self._unpin()
        return chosen

    def set_aside(self, uri: str, reason: str) -> None:
        """Exclude a damaged checkpoint from further choices. In a former chain, which others may use, it stays."""
        if catalog := self._catalog_of(uri):
            catalog.set_aside(uri, reason)

    def note_failed_resume(self, uri: str, failure: FailedResume) -> None:
        """Record that a process failed that had resumed from the checkpoint at ``uri``."""
        if catalog := self._catalog_of(uri):
            catalog.note_failed_resume(uri, failure)

    def _catalog_of(self, uri: str) -> Optional[Catalog]:
        return self._former if self._former and uri.startswith(f"{self._former.uri}/") else self.catalog

    def _choose_of(self, former: Catalog, trusted: str) -> ChosenCheckpoint:
        """Choose a checkpoint of the former chain, and keep its owner from removing it while the tasks restore it.

        Raises NoCheckpointLeft: a job that is to resume from a chain must not begin at step 0.
        """
        for _ in range(_CHOICES):
            chosen = former.choose(trusted)
            uri = chosen.checkpoint.uri if chosen else ""
            if uri != self._pinned:
                self._unpin()
            self._pinned = uri
            if chosen and former.pin(uri, self._reader):
                return chosen
        raise NoCheckpointLeft(self._ownership.description.continues or "")

    def _unpin(self) -> None:
        if self._former and self._pinned:
            self._former.unpin(self._pinned, self._reader)
        self._pinned = ""

    def quota_warning(self, newest: Manifest) -> str:
        """Return a warning if quotas may soon stop checkpoints from being stored, otherwise an empty text."""
        return self._quotas.check(newest) if self._quotas else ""

    def _sweep(self) -> None:
        """Remove what was uploaded and never committed."""
        removed = self.catalog.remove_unfinished() if self.catalog else []
        if removed:
            log.info("removed %d checkpoints that were never committed", len(removed))

    def _leave(self, catalog: Catalog, after_success: Optional[AfterSuccess]) -> None:
        self._unpin()
        if after_success:
            catalog.finish(after_success)
        else:
            self._sweep()
        self._sweep_event_files()

    def _sweep_event_files(self) -> None:
        """Every writer of them has ended, or was killed. The chain's own few files, others may be writing."""
        directory = uris.join(self._ownership.description.chain_dir or "", contract.TENSORBOARD_DIR)
        remove_leftovers(self._ownership.storage, directory)

    def _owned(self, work: Callable[[], T]) -> T:
        self._ownership.check()
        return work()
