"""Ownership of a training: only one application, and only its newest master, may change the checkpoint chain.

A master that the cluster considers lost, or an application that was replaced, may still run. The training's newest
owner file names the application that may commit checkpoints. The signed address file in the application's directory
names its newest master. The master checks both before each operation on the chain.
"""

from __future__ import annotations

from typing import Optional

import attrs

from tony_provider.runtime.application import ApplicationDescription
from tony_provider.runtime.checkpoint.training_owner import Epoch, Owner, Stop, owner_file
from tony_provider.runtime.common.codec import CodecError, load_json
from tony_provider.runtime.common.network import Address
from tony_provider.runtime.protocol import master_files
from tony_provider.runtime.storage import Storage, StorageNotFound, read_bytes, uris

_MOST_BYTES = 4096


class FencedError(Exception):
    """Another application owns the training. The message names it."""


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
        """Read the epochs after the known one, each only once."""
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
