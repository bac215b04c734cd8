"""Ownership of a checkpoint chain: one application may touch it, and of its application masters the newest.

Lost is not dead: a master whose cluster has given it up, or an application that was replaced, may still run. The
chain's owner file names the one application that may commit checkpoints; the signed address file in the application's
directory names its newest master. Both are looked at before each piece of work on the chain.
"""

from __future__ import annotations

import attrs

from tony_provider.runtime import contract, master_address
from tony_provider.runtime.address import Address
from tony_provider.runtime.application import ApplicationDescription
from tony_provider.runtime.checkpoint_chain import Owner
from tony_provider.runtime.codec import CodecError, dump_json, load_json
from tony_provider.runtime.storage import Storage, StorageExists, StorageNotFound, read_bytes, uris

_MOST_BYTES = 4096


class FencedError(Exception):
    """Another application owns the chain; the message says which."""


class SupersededError(Exception):
    """A newer master of the same application has taken over: this one ends, and leaves everything to it."""


@attrs.frozen
class Ownership:
    """What one application master looks up before it touches the chain. All methods block."""

    storage: Storage
    description: ApplicationDescription
    am_attempt: int
    address_key: bytes = attrs.field(repr=False)

    def check(self) -> None:
        """Check that the chain is ours.

        Raises FencedError, SupersededError, StorageError. One that nobody owns becomes ours.
        """
        self.check_newest()
        if self.description.chain_dir:
            self._check_chain(self.description.chain_dir)

    def check_newest(self) -> None:
        """Check only that this is still the application's newest master. Raises SupersededError, StorageError."""
        newest = master_address.load(self.storage, self.description.application_dir, self.address_key)
        if newest and newest.attempt > self.am_attempt:
            raise SupersededError(f"application master {newest.attempt} has taken over, at {newest.address}")

    def announce(self, address: Address) -> None:
        """Write down where this master listens. Raises SupersededError, StorageError."""
        self.check_newest()
        directory = self.description.application_dir
        master_address.write(self.storage, directory, address, self.am_attempt, self.address_key)

    def _check_chain(self, chain: str) -> None:
        mine = self.description.application_id
        uri = uris.join(chain, contract.OWNER_FILE)
        try:
            owner = self._read(uri)
        except StorageNotFound:
            owner = self._claim(uri)
        if owner != mine:
            raise FencedError(f"application {owner} owns the checkpoint chain {uris.name(chain)} now, not {mine}")

    def _claim(self, uri: str) -> str:
        """Who owns it then. Never overwritten from here: that could take it back from a newer application."""
        mine = self.description.application_id
        try:
            self.storage.write(uri, dump_json(Owner(mine)))
        except StorageExists:
            return self._read(uri)
        return mine

    def _read(self, uri: str) -> str:
        data = read_bytes(self.storage, uri, length=_MOST_BYTES)
        try:
            return load_json(data, Owner, ignore_unknown=True).application_id
        except CodecError as error:
            raise FencedError(f"who owns the checkpoint chain cannot be told from {uri}: {error}") from error
