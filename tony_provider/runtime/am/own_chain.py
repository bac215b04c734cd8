"""Access of the application master to its application's checkpoint chain."""

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

_CHOICES = 3  # attempts to find a checkpoint of the former chain that its owner does not remove at the same moment


class OwnChain:
    """Runs operations on the chain in one separate thread, one at a time.

    Before each operation, it checks that the application still owns the chain.
    """

    def __init__(self, ownership: Ownership) -> None:
        self.swept = 0  # the newest generation before whose start leftovers were removed; its tasks may be uploading
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
        """Run ``work`` in the thread and return its result.

        Raises FencedError, SupersededError, StorageError, and the exceptions of ``work``. If the call is cancelled,
        the thread still completes ``work`` before the next operation.
        """
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._owned, work)

    def close(self) -> None:
        """Accept no more work. A running operation ends by the store's deadlines."""
        self._thread.shutdown(wait=False)

    async def conclude(self, after_success: Optional[AfterSuccess]) -> None:
        """Remove what is not needed from the chain after all tasks have ended.

        ``after_success``: None if the job has not succeeded. Raises SupersededError. Other errors are only logged.
        """
        catalog = self.catalog
        if catalog is None:
            return
        try:
            await self.do(lambda: self._conclude(catalog, after_success))
        except (StorageError, FencedError) as error:
            log.warning("the checkpoint chain stays as it is: %s", error)

    # ---- operations in the thread ------------------------------------------------------------------------------

    def choose(self, generation: int, trusted: str = "") -> Optional[ChosenCheckpoint]:
        """Return the checkpoint that a generation resumes from. The caller must reject commits of older generations.

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
        """Exclude a damaged checkpoint from further choices. In a former chain, which other jobs may use, it stays."""
        if catalog := self._catalog_of(uri):
            catalog.set_aside(uri, reason)

    def note_failed_resume(self, uri: str, failure: FailedResume) -> None:
        """Record that a process failed that had resumed from the checkpoint at ``uri``."""
        if catalog := self._catalog_of(uri):
            catalog.note_failed_resume(uri, failure)

    def note_sound_resume(self, uri: str) -> None:
        """Forget the failures of a checkpoint, because a process that had resumed from it reported a step."""
        if catalog := self._catalog_of(uri):
            catalog.note_sound_resume(uri)

    def _catalog_of(self, uri: str) -> Optional[Catalog]:
        return self._former if self._former and uri.startswith(f"{self._former.uri}/") else self.catalog

    def _choose_of(self, former: Catalog, trusted: str) -> ChosenCheckpoint:
        """Choose a checkpoint of the former chain, and keep its owner from removing it while the tasks restore it.

        Raises NoCheckpointLeft, because a job that must resume from a chain must not begin at step 0.
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
        """Remove objects and directories that were uploaded and never committed."""
        removed = self.catalog.remove_unfinished() if self.catalog else []
        if removed:
            log.info("removed %d directories and objects of checkpoints that were never committed", len(removed))

    def _conclude(self, catalog: Catalog, after_success: Optional[AfterSuccess]) -> None:
        self._unpin()
        if after_success:
            catalog.finish(after_success)
        else:
            self._sweep()
        self._sweep_event_files()

    def _sweep_event_files(self) -> None:
        """Remove temporary event files, whose writers have ended. The chain's other files may still have writers."""
        directory = uris.join(self._ownership.description.chain_dir or "", contract.TENSORBOARD_DIR)
        remove_leftovers(self._ownership.storage, directory)

    def _owned(self, work: Callable[[], T]) -> T:
        self._ownership.check()
        return work()
