"""The checkpoint chains of a training on the store: the newest, its owner, what it has saved, and how one is opened.

Safe with several tries of one training at once: a chain is opened by an exclusive creation, and the training's owner
takes an epoch by one. Only the owner may commit checkpoints; the masters of other applications refuse.
"""

from __future__ import annotations

import contextlib

import attrs

from tony_provider.cluster.identity import Identity
from tony_provider.cluster.layout import Layout, chain_number
from tony_provider.cluster.record_files import read_record
from tony_provider.cluster.training_owners import TrainingOwners
from tony_provider.runtime import contract
from tony_provider.runtime.checkpoint.catalog import ChosenCheckpoint, foreign_catalog
from tony_provider.runtime.checkpoint_chain import CheckpointChain
from tony_provider.runtime.clock import epoch_ms
from tony_provider.runtime.codec import dump_json
from tony_provider.runtime.quantities import count, size
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import Before, Storage, right_away
from tony_provider.runtime.storage.errors import StorageNotEmpty, StorageNotFound
from tony_provider.runtime.storage.helpers import write_atomically
from tony_provider.runtime.training_owner import Owner


@attrs.frozen
class ChainState:
    """A checkpoint chain as it was found on the store: its owner and what it says of itself."""

    uri: str
    about: CheckpointChain | None  # None: its creation was cut short, nothing is in it
    owner: Owner | None  # the last one; None: no application was submitted for it

    @property
    def name(self) -> str:
        return uris.name(self.uri)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is written in it: somebody is about to open it, or died then."""
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

    def used_by(self, application_id: str) -> ChainState | None:
        """Return the chain that this application owns, otherwise the newest chain, which a retry may own by now."""
        return self.owned_by(application_id) or self.newest()

    def all(self) -> list[ChainState]:
        """Every one, the oldest first."""
        return [self.read(self.layout.chain_dir(self.identity, number)) for number in self._numbers()]

    def read(self, uri: str) -> ChainState:
        return ChainState(uri, read_chain(self.storage, uri), self.owners.of_chain(uris.name(uri)))

    def uri_after(self, newest: ChainState | None) -> str:
        """Of the chain that is to be opened next."""
        number = 0 if newest is None else chain_number(newest.name) or 0
        if newest is None or not newest.is_empty:
            number += 1
        return self.layout.chain_dir(self.identity, number)

    def open_after(self, newest: ChainState | None, about: CheckpointChain) -> str:
        """Open the chain after ``newest``; returns its URI.

        Raises StorageExists when another try has just opened it.
        """
        uri = self.uri_after(newest)
        self.open(uri, about)
        return uri

    def open(self, uri: str, about: CheckpointChain, before_it_appears: Before = right_away) -> None:
        """Open the chain that ``uri_after`` has named. ``before_it_appears``: see ``Storage.write``.

        Raises StorageExists when another try has just opened it.
        """
        file = uris.join(uri, contract.CHAIN_FILE)
        self.storage.write(file, dump_json(about), before_it_appears=before_it_appears)

    def rewrite(self, uri: str, about: CheckpointChain, before_it_appears: Before = right_away) -> None:
        file = uris.join(uri, contract.CHAIN_FILE)
        write_atomically(self.storage, file, dump_json(about), before_it_appears=before_it_appears)

    def abandon(self, uri: str) -> None:
        """Take back a chain that was opened in vain, unless another try has come to own it."""
        if self.owners.newest().owner.chain == uris.name(uri):
            return
        self.storage.remove(uris.join(uri, contract.CHAIN_FILE))
        with contextlib.suppress(StorageNotEmpty):  # somebody uses it all the same
            self.storage.remove(uri)

    def _numbers(self) -> list[int]:
        try:
            found = self.storage.list(self.layout.job_dir(self.identity))
        except StorageNotFound:
            return []
        numbers = [chain_number(file.name) for file in found if file.is_directory]
        return sorted(number for number in numbers if number is not None)


def new_chain() -> CheckpointChain:
    """The content of ``chain.json`` for a chain that is made now, of nothing yet."""
    return CheckpointChain(fingerprint={}, created_ms=epoch_ms())


def read_chain(storage: Storage, uri: str) -> CheckpointChain | None:
    """What a chain's file says of it; None where there is no such file. Raises StorageError, RecordUnreadable."""
    without = "the training begins anew, in another checkpoint chain"
    return read_record(storage, uris.join(uri, contract.CHAIN_FILE), CheckpointChain, without=without)


@attrs.frozen
class KeptCheckpoint:
    """A checkpoint of a chain, for people."""

    number: int
    label: str
    uri: str
    size: int  # bytes
    files: int
    suspicion: str  # why no process resumes from it unless a user names it; empty if it is not suspect

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

    This is the newest one that is intact and not suspect. ``uri`` may also name a checkpoint.
    """
    return foreign_catalog(storage, uri).choose()
