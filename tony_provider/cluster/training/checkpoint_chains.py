"""Read and write the checkpoint chains of a training and their owners, for submissions and commands.

Every submitted application of a training becomes the training's owner. Only the owner may commit checkpoints.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import attrs

from tony_provider.cluster.errors import StagingFailed
from tony_provider.cluster.training.identity import Identity, Layout, chain_number, read_record
from tony_provider.runtime.checkpoint.catalog import ChosenCheckpoint, foreign_catalog
from tony_provider.runtime.checkpoint.stored_checkpoint import (
    OWNERS_DIR,
    ChainRecord,
    Epoch,
    Owner,
    Stop,
    WaitingTry,
    epoch_number,
    owner_file,
)
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.clock import epoch_ms
from tony_provider.runtime.common.codec import dump_json
from tony_provider.runtime.common.quantities import count, size
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import Storage, list_existing
from tony_provider.runtime.storage.errors import StorageExists, StorageNotEmpty

_ATTEMPTS = 5  # number of attempts to add an owner while other tries of the Airflow task also add owners
_WITHOUT = "the previous owner applies"


class TakenOverError(StagingFailed):
    """Another try of the Airflow task has become the owner of the training."""


@attrs.frozen
class TrainingOwners:
    """The present and former owners of one training. All methods raise StorageError and RecordUnreadable.

    Each owner has a file with the number of its epoch. The owner with the highest number is the present one.
    """

    storage: Storage
    training_dir: str  # URI

    def newest(self) -> Epoch:
        """Return the epoch of the present owner. Its number is 0 if the training never had an owner."""
        return next(self.every(), Epoch())

    def every(self) -> Iterator[Epoch]:
        """Yield all owners, the newest first."""
        for number in self._numbers():
            if epoch := self._read(number):
                yield epoch

    def of_chain(self, chain: str) -> Owner | None:
        """Return the last owner whose application was submitted for the chain with this name, or None."""
        return next((each.owner for each in self.every() if each.owner.chain == chain), None)

    def add(self, before: int, owner: Owner) -> Epoch:
        """Make ``owner`` the owner if epoch ``before`` is still the newest. Raises TakenOverError otherwise."""
        epoch = Epoch(before + 1, owner)
        try:
            uri = owner_file(self.training_dir, epoch.number)
            self.storage.write_record(uri, dump_json(owner))
        except StorageExists as error:
            if self._read(epoch.number) != epoch:  # the storage may have retried a write whose answer was lost
                raise TakenOverError(f"another try of this training has taken over {self.training_dir}") from error
        return epoch

    def begin(self, whose: WaitingTry) -> Epoch:
        """Record that this try of the Airflow task begins. Earlier tries can then not submit or end an application.

        The first try of a training without an owner writes no file here, because its submission writes one. Raises
        TakenOverError if a later try has begun.
        """
        for _ in range(_ATTEMPTS):
            newest = self.newest()
            if whose.precedes(newest.owner.whose):
                raise TakenOverError(f"{newest.owner.whose.name} of this task has already replaced {whose.name}")
            if newest.owner.whose == whose or (newest.number == 0 and whose.number == 1):
                return newest
            try:
                return self.add(newest.number, attrs.evolve(newest.owner, whose=whose))
            except TakenOverError:
                continue
        raise TakenOverError(f"other tries of this training keep taking over {self.training_dir}")

    def still(self, whose: WaitingTry) -> Epoch:
        """Return the present owner. Raises TakenOverError if a later try than this one has begun."""
        newest = self.newest()
        if newest.owner.whose.name not in ("", whose.name):
            raise TakenOverError(f"{newest.owner.whose.name} of this task has taken over {self.training_dir}")
        return newest

    def stop(self, application_id: str, stop: Stop, whose: str | None) -> None:
        """Record an order to end the application. Do nothing if the application does not own the training.

        ``whose`` is the name of the try that gives the order, or None if no try gives it. Raises TakenOverError if
        another try waits for the application, and StagingFailed if other tries keep adding owners.
        """
        for _ in range(_ATTEMPTS):
            newest = self.newest()
            owner = newest.owner
            if owner.application_id != application_id or owner.stop is not None:
                return
            if whose is not None and owner.whose.name not in ("", whose):
                raise TakenOverError(
                    f"{owner.whose.name} of its Airflow task waits for {application_id}, which therefore continues"
                )
            try:
                self.add(newest.number, attrs.evolve(owner, stop=stop))
            except TakenOverError:
                continue
            return
        raise StagingFailed(f"other tries of this training keep writing to {self.training_dir}")

    def remove(self) -> None:
        """Remove all owners of a training of which nothing else is left. An owner that is added meanwhile stays."""
        for number in self._numbers():
            self.storage.remove(owner_file(self.training_dir, number))
        with contextlib.suppress(StorageNotEmpty):
            self.storage.remove(uris.join(self.training_dir, OWNERS_DIR))

    def give_back(self, taken: Epoch, former: Epoch) -> None:
        """Make ``former`` the owner again after a failed submission, unless another try has added an owner."""
        every = list(self.every())
        if every[0].number != taken.number:
            return
        if any(each.owner.application_id for each in every[1:]):
            self.add(taken.number, attrs.evolve(former.owner, whose=taken.owner.whose))
            return
        self.remove()  # no application exists that depends on the numbers of epochs

    def _read(self, number: int) -> Epoch | None:
        owner = read_record(self.storage, owner_file(self.training_dir, number), Owner, without=_WITHOUT)
        return None if owner is None else Epoch(number, owner)

    def _numbers(self) -> list[int]:
        found = list_existing(self.storage, uris.join(self.training_dir, OWNERS_DIR))
        numbers = (epoch_number(file.name) for file in found)
        return sorted((number for number in numbers if number is not None), reverse=True)


@attrs.frozen
class ChainState:
    """A checkpoint chain as found on the store: its file and its owner."""

    uri: str
    about: ChainRecord | None  # content of ``chain.json``; None if the chain's creation was interrupted
    owner: Owner | None  # the last owner; None if no application was submitted for this chain

    @property
    def name(self) -> str:
        return uris.name(self.uri)

    @property
    def is_empty(self) -> bool:
        """Whether the directory has no chain yet: another process is opening it, or died while it did so."""
        return self.about is None and self.owner is None


@attrs.frozen
class CheckpointChains:
    """The checkpoint chains of one training. All methods raise StorageError, and RecordUnreadable."""

    storage: Storage
    layout: Layout
    identity: Identity

    def newest(self) -> ChainState | None:
        numbers = self._numbers()
        return self.read(self.layout.chain_dir(self.identity, numbers[-1])) if numbers else None

    @property
    def owners(self) -> TrainingOwners:
        return TrainingOwners(self.storage, self.layout.job_dir(self.identity))

    def owned_by(self, application_id: str) -> ChainState | None:
        """Return the chain in which this application may commit, or None."""
        owner = self.owners.newest().owner
        if owner.application_id != application_id or not owner.chain:
            return None
        return self.read(uris.join(self.layout.job_dir(self.identity), owner.chain))

    def all(self) -> list[ChainState]:
        """Return all chains, the oldest first."""
        return [self.read(self.layout.chain_dir(self.identity, number)) for number in self._numbers()]

    def read(self, uri: str) -> ChainState:
        return ChainState(uri, read_chain(self.storage, uri), self.owners.of_chain(uris.name(uri)))

    def uri_after(self, newest: ChainState | None) -> str:
        """Return the URI of the next chain to open, or of ``newest`` if that chain is still empty."""
        number = 0 if newest is None else chain_number(newest.name) or 0
        if newest is None or not newest.is_empty:
            number += 1
        return self.layout.chain_dir(self.identity, number)

    def open(self, uri: str, about: ChainRecord) -> None:
        """Open the chain with a URI from ``uri_after``. Raises StorageExists if another try has just opened it."""
        self.storage.write_record(uris.join(uri, contract.CHAIN_FILE), dump_json(about))

    def rewrite(self, uri: str, about: ChainRecord) -> None:
        self.storage.write_record(uris.join(uri, contract.CHAIN_FILE), dump_json(about), overwrite=True)

    def abandon(self, uri: str) -> None:
        """Remove a chain that was opened but is not used, unless another try owns it by now."""
        if self.owners.newest().owner.chain == uris.name(uri):
            return
        self.storage.remove(uris.join(uri, contract.CHAIN_FILE))
        self.storage.remove(uris.join(uri, contract.TABLES_DIR), recursive=True)
        with contextlib.suppress(StorageNotEmpty):  # another process uses the chain nevertheless
            self.storage.remove(uri)

    def _numbers(self) -> list[int]:
        found = list_existing(self.storage, self.layout.job_dir(self.identity))
        numbers = [chain_number(file.name) for file in found if file.is_directory]
        return sorted(number for number in numbers if number is not None)


def new_chain() -> ChainRecord:
    """Return the content of ``chain.json`` for a new, empty chain."""
    return ChainRecord(fingerprint={}, created_ms=epoch_ms())


def read_chain(storage: Storage, uri: str) -> ChainRecord | None:
    """Return the content of a chain's file, or None if there is no file. Raises StorageError, RecordUnreadable."""
    without = "the training restarts from the beginning in another checkpoint chain"
    return read_record(storage, uris.join(uri, contract.CHAIN_FILE), ChainRecord, without=without)


@attrs.frozen
class KeptCheckpoint:
    """A checkpoint of a chain, for display."""

    number: int
    label: str
    uri: str
    size: int  # bytes
    files: int
    suspicion: str  # reason to resume from it only if a user names it; empty if there is none

    @property
    def line(self) -> str:
        """Describe the checkpoint in one line."""
        why = f"; suspect: {self.suspicion}" if self.suspicion else ""
        return f"{self.label}: {size(self.size)} in {count(self.files, 'file')}, {self.uri}{why}"


def kept_checkpoints(storage: Storage, uri: str) -> list[KeptCheckpoint]:
    """Return all committed checkpoints of a chain, the newest first. Raises StorageError."""
    catalog = foreign_catalog(storage, uri)
    failures = catalog.failed_resumes()
    return [
        KeptCheckpoint(
            each.save,
            each.point.label,
            each.uri,
            each.manifest.size,
            each.manifest.file_count,
            failures.suspicion(each.uri),
        )
        for each in reversed(catalog.list())
    ]


def choose_checkpoint(storage: Storage, uri: str) -> ChosenCheckpoint | None:
    """Return the checkpoint of a chain from which a training resumes, or None if there is none.

    This is the newest checkpoint that is intact and not suspect. ``uri`` may also name a single checkpoint.
    """
    return foreign_catalog(storage, uri).choose()
