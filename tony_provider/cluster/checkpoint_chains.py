"""The checkpoint chains of a training on the store: the newest, its owner, what it has saved, and how one is opened.

Safe with several tries of one training at once: a chain is opened by an exclusive creation, and its owner's file is
replaced in one act. Whoever is named there last may commit checkpoints; all others are refused by their own masters.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial

import attrs

from tony_provider.cluster.identity import Identity
from tony_provider.cluster.layout import Layout, chain_number
from tony_provider.cluster.record_files import read_record
from tony_provider.runtime import contract
from tony_provider.runtime.checkpoint.catalog import ChosenCheckpoint, foreign_catalog
from tony_provider.runtime.checkpoint_chain import CheckpointChain, Owner
from tony_provider.runtime.clock import epoch_ms
from tony_provider.runtime.codec import dump_json
from tony_provider.runtime.quantities import count, size
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import Before, Storage, right_away
from tony_provider.runtime.storage.errors import StorageNotEmpty, StorageNotFound
from tony_provider.runtime.storage.helpers import write_atomically, write_in_order


@attrs.frozen
class ChainState:
    """A checkpoint chain as it was found on the store: its owner and what it says of itself."""

    uri: str
    about: CheckpointChain | None  # None: its creation was cut short, nothing is in it
    owner: Owner | None  # None: nobody has been submitted for it

    @property
    def name(self) -> str:
        return uris.name(self.uri)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is written in it: somebody is about to open it, or died then."""
        return self.about is None and self.owner is None


FormerOwners = dict[str, Owner | None]  # by the chain's URI, the newest first


@attrs.frozen
class CheckpointChains:
    """The checkpoint chains of one training. All methods raise StorageError, and RecordUnreadable."""

    storage: Storage
    layout: Layout
    identity: Identity

    def newest(self) -> ChainState | None:
        numbers = self._numbers()
        return self.read(self.layout.chain_dir(self.identity, numbers[-1])) if numbers else None

    def owned_by(self, application_id: str) -> ChainState | None:
        """The newest chain that this application owns; None when it owns none."""
        for number in reversed(self._numbers()):
            state = self.read(self.layout.chain_dir(self.identity, number))
            if state.owner is not None and state.owner.application_id == application_id:
                return state
        return None

    def used_by(self, application_id: str) -> ChainState | None:
        """Return the chain that this application owns, otherwise the newest chain, which a retry may own by now."""
        return self.owned_by(application_id) or self.newest()

    def all(self) -> list[ChainState]:
        """Every one, the oldest first."""
        return [self.read(self.layout.chain_dir(self.identity, number)) for number in self._numbers()]

    def read(self, uri: str) -> ChainState:
        return ChainState(uri, read_chain(self.storage, uri), read_owner(self.storage, uri))

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

    def own(self, uri: str, application_id: str) -> FormerOwners:
        """Make this application the owner of the chain: only it may commit there, and nobody in the older ones.

        Whoever is about to be submitted for one of those finds itself fenced. Returns the former owners, for
        ``disown``.
        """
        former = self.owners(uri)
        write_in_order(self.takings(former, application_id))
        return former

    def owners(self, uri: str) -> FormerOwners:
        """Those of a chain, which need not be there yet, and of the older ones.

        To be read before anything is changed, as one of them may not be readable.
        """
        newest = chain_number(uris.name(uri)) or 0
        older = [number for number in reversed(self._numbers()) if number < newest]
        every = [uri, *(self.layout.chain_dir(self.identity, number) for number in older)]
        return {each: read_owner(self.storage, each) for each in every}

    def takings(self, former: FormerOwners, application_id: str) -> list[Callable[[Before], None]]:
        """What ``write_in_order`` is to do so that the application owns all these chains."""
        return [partial(self._write_owner, each, Owner(application_id)) for each in former]

    def disown(self, former: FormerOwners, application_id: str) -> None:
        """Give back what ``own`` took, where nobody else owns it by now."""
        for uri, owner in reversed(former.items()):  # the newest last: until then it is the one that counts
            if self.is_owned(uri, application_id):
                if owner is not None:
                    self._write_owner(uri, owner)
                else:
                    self.storage.remove(uris.join(uri, contract.OWNER_FILE))

    def _write_owner(self, uri: str, owner: Owner, before_it_appears: Before = right_away) -> None:
        file = uris.join(uri, contract.OWNER_FILE)
        write_atomically(self.storage, file, dump_json(owner), before_it_appears=before_it_appears)

    def is_owned(self, uri: str, application_id: str) -> bool:
        owner = read_owner(self.storage, uri)
        return owner is not None and owner.application_id == application_id

    def abandon(self, uri: str) -> None:
        """Take back a chain that was opened in vain, unless another try has come to own it."""
        if read_owner(self.storage, uri) is not None:
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


def read_owner(storage: Storage, uri: str) -> Owner | None:
    """The chain's owner by its file; None where there is no such file. Raises StorageError, RecordUnreadable."""
    without = "the checkpoint chain is nobody's: the training's next application takes it over"
    return read_record(storage, uris.join(uri, contract.OWNER_FILE), Owner, without=without)


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
