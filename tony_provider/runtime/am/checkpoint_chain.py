"""The checkpoint chain of the training, and its ownership.

Only one application, and only its newest master, may change the chain. A master that the cluster considers lost, or an
application that was replaced, may still run. The training's newest owner file names the application that may commit
checkpoints. The signed address file in the application's directory names its newest master. The master checks both
before each operation on the chain.
"""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, Optional, TypeVar

import attrs

from tony_provider.runtime.application import ApplicationDescription
from tony_provider.runtime.checkpoint.catalog import Catalog, ChosenCheckpoint, foreign_catalog
from tony_provider.runtime.checkpoint.stored_checkpoint import (
    Epoch,
    FailedResume,
    Manifest,
    NoCheckpointLeft,
    Owner,
    Stop,
    owner_file,
)
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.codec import CodecError, load_json
from tony_provider.runtime.common.network import Address
from tony_provider.runtime.common.quantities import count, size
from tony_provider.runtime.jobspec.model import AfterSuccess
from tony_provider.runtime.protocol import master_files
from tony_provider.runtime.storage import Storage, StorageError, StorageNotFound, read_bytes, uris
from tony_provider.runtime.storage.base import QuotaRoom
from tony_provider.runtime.storage.stores import remove_leftovers

log = logging.getLogger(__name__)


_MOST_BYTES = 4096  # size limit of an owner file


class FencedError(Exception):
    """Another application owns the training. The message names that application."""


class SupersededError(Exception):
    """A newer master of the same application has taken over. This master exits and leaves the job to it."""


@attrs.define
class Ownership:
    """Ownership checks of one application master. All methods block, and may run concurrently."""

    storage: Storage
    description: ApplicationDescription
    am_attempt: int
    address_key: bytes = attrs.field(repr=False)
    _newest: Epoch = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._newest = Epoch(self.description.epoch, Owner(self.description.application_id))

    @property
    def stop(self) -> Optional[Stop]:
        """The stop order that the last check has found, or None."""
        owner = self._newest.owner
        return owner.stop if owner.application_id == self.description.application_id else None

    def check(self) -> None:
        """Check that the application owns its training.

        Raises FencedError, SupersededError, StorageError.
        """
        self.check_newest()
        if self.description.chain_dir:
            self._check_owner(uris.parent(self.description.chain_dir))

    def check_newest(self) -> None:
        """Check only that this is still the application's newest master. Raises SupersededError, StorageError."""
        newest = master_files.load_master_address(self.storage, self.description.application_dir, self.address_key)
        if newest and newest.attempt > self.am_attempt:
            raise SupersededError(f"application master {newest.attempt} has taken over, at {newest.address}")

    def announce(self, address: Address) -> None:
        """Write this master's address to the store. Raises SupersededError, StorageError."""
        self.check_newest()
        directory = self.description.application_dir
        master_files.write_master_address(self.storage, directory, address, self.am_attempt, self.address_key)

    def _check_owner(self, training: str) -> None:
        """Read the owner files of newer epochs, each only once. Raises FencedError, StorageError."""
        newest = self._newest
        while owner := self._read(owner_file(training, newest.number + 1)):
            newest = Epoch(newest.number + 1, owner)
        if newest.number > self._newest.number:
            self._newest = newest
        if newest.owner.application_id not in ("", self.description.application_id):
            raise FencedError(f"application {newest.owner.application_id} owns the training {uris.name(training)} now")

    def _read(self, uri: str) -> Optional[Owner]:
        try:
            return load_json(read_bytes(self.storage, uri, length=_MOST_BYTES), Owner, ignore_unknown=True)
        except StorageNotFound:
            return None
        except CodecError as error:
            raise FencedError(f"the owner of the training cannot be read from {uri}: {error}") from error


T = TypeVar("T")

_CHOICES = 3  # attempts to pin a checkpoint of the former chain, whose owner may concurrently remove checkpoints


class OwnChain:
    """Runs operations on the chain in one separate thread, one at a time.

    Each operation first checks that the application still owns the chain.
    """

    def __init__(self, ownership: Ownership) -> None:
        self.swept = 0  # newest generation for which leftovers were removed; its tasks may be uploading by now
        description = ownership.description
        storage, chain, former = ownership.storage, description.chain_dir, description.continues
        self.catalog = Catalog(storage, chain) if chain else None
        self._former = foreign_catalog(storage, former) if former else None
        self._reader = description.application_id
        self._quotas = QuotaWatch(storage, chain, description.job.checkpoint.keep) if chain else None
        self._pinned = ""  # URI of the checkpoint of the former chain that is in use
        self.ownership = ownership
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
        """Remove unnecessary files from the chain after all tasks have ended.

        ``after_success``: None if the job has not succeeded. Raises SupersededError. Other errors are only logged.
        """
        catalog = self.catalog
        if catalog is None:
            return
        try:
            await self.do(lambda: self._conclude(catalog, after_success))
        except (StorageError, FencedError) as error:
            log.warning("cannot remove unneeded files of the checkpoint chain: %s", error)

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
        """Exclude a damaged checkpoint from further choices. In a former chain, it stays available to other jobs."""
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
        """Choose and pin a checkpoint of the former chain, so that it is not removed while the tasks restore it.

        Raises NoCheckpointLeft if there is none, because a job that must resume from a chain must not begin at step 0.
        """
        for _ in range(_CHOICES):
            chosen = former.choose(trusted)
            uri = chosen.checkpoint.uri if chosen else ""
            if uri != self._pinned:
                self._unpin()
            self._pinned = uri
            if chosen and former.pin(uri, self._reader):
                return chosen
        raise NoCheckpointLeft(self.ownership.description.continues or "")

    def _unpin(self) -> None:
        if self._former and self._pinned:
            self._former.unpin(self._pinned, self._reader)
        self._pinned = ""

    def quota_warning(self, newest: Manifest) -> str:
        """Return a warning if quotas may soon stop checkpoints from being stored, otherwise an empty text."""
        return self._quotas.check(newest) if self._quotas else ""

    def _sweep(self) -> None:
        """Remove objects and directories that were uploaded and never committed."""
        if removed := self.catalog.remove_unfinished() if self.catalog else []:
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
        directory = uris.join(self.ownership.description.chain_dir or "", contract.TENSORBOARD_DIR)
        remove_leftovers(self.ownership.storage, directory)

    def _owned(self, work: Callable[[], T]) -> T:
        self.ownership.check()
        return work()


_PAUSE = 300.0  # seconds between two checks
# HDFS names that a checkpoint needs in addition to its objects: its directory, its manifest, and a temporary file.
_NAMES = 3
_ABOVE_CHAIN = 3  # number of levels from a chain up to the staging directory


class QuotaWatch:
    """Warns if HDFS quotas may soon stop checkpoints from being stored.

    It compares the space that quotas leave with the size of the newest checkpoint. It checks the staging directory and
    the directory above it, such as a user's home directory. A directory without a quota is checked only once, because
    the NameNode would count its whole content each time.
    """

    def __init__(self, storage: Storage, chain_uri: str, keep: int) -> None:
        """``keep``: the number of checkpoints that the chain keeps."""
        self._storage = storage
        self._wanted = keep + 1
        self._directories = _directories(chain_uri)
        self._next_check = float("-inf")
        self._warning = ""

    def check(self, newest: Manifest) -> str:
        """Return a warning, or an empty text. Blocks, at most once in five minutes. Raises no StorageError."""
        now = time.monotonic()
        if now < self._next_check:
            return self._warning
        self._next_check = now + _PAUSE
        rooms = {}
        for directory in list(self._directories):
            try:
                room = self._storage.quota_room(directory)
            except StorageError as error:
                log.warning("the quota of %s is unknown: %s", directory, error)
                continue
            if room is None:
                self._directories.remove(directory)
            else:
                rooms[directory] = room
        warnings = (self._warn(directory, room, newest) for directory, room in rooms.items())
        found = next(filter(None, warnings), "")
        self._warning = found and (self._warning or found)  # the text stays the same while the problem lasts
        return self._warning

    def _warn(self, directory: str, room: QuotaRoom, newest: Manifest) -> str:
        new = [name for name in newest.objects if newest.is_new(name)]
        if room.bytes is not None and room.bytes < self._wanted * newest.sent:
            left, took = size(room.bytes), size(newest.sent)
        elif room.names is not None and room.names < self._wanted * (len(new) + _NAMES):
            left, took = count(room.names, "name"), count(len(new) + _NAMES, "name")
        else:
            return ""
        return (
            f"the quota of {directory} leaves {left}; the newest checkpoint took {took}, and {self._wanted} more "
            f"(checkpoint.keep + 1) may not fit. Raise the quota, or remove old trainings (airflow tony gc)"
        )


def _directories(chain_uri: str) -> list[str]:
    staging = chain_uri
    for _ in range(_ABOVE_CHAIN):
        staging = uris.parent(staging)
    above = uris.parent(staging)
    # Directories at the top, such as /user, are shared by all users, and their content takes long to count.
    return [each for each in (above, staging) if uris.parse(each).path.count("/") >= 2]
