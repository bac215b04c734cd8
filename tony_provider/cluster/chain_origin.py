"""The origin of a new checkpoint chain: a checkpoint of another chain, or a model's weights."""

from __future__ import annotations

import attrs

from tony_provider.cluster.checkpoint_chains import CheckpointChains, choose_checkpoint, read_chain
from tony_provider.cluster.errors import SourceMissing
from tony_provider.cluster.identity import Identity
from tony_provider.cluster.layout import Layout
from tony_provider.cluster.sources import in_store
from tony_provider.runtime.checkpoint.catalog import foreign_catalog
from tony_provider.runtime.checkpoint.checkpoint_model import chain_named
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import Storage
from tony_provider.runtime.storage.errors import StorageInvalidPath, StorageNotFound


@attrs.frozen
class ChainOrigin:
    """The operator's ``resume_from`` and ``warm_start``: what a checkpoint chain begins with.

    Ids are an identity here.
    """

    resume_from: Identity | str | None = None  # another training's newest chain, or the URI of a chain or checkpoint
    snapshot: int | None = None  # the number of a checkpoint in this chain; default: the newest one
    warm_start: str | None = None  # URI of a model's directory, or of a chain: its newest checkpoint then


@attrs.frozen
class OriginFinder:
    """Finds the origin of a chain in the storage.

    Raises SourceMissing, which names the missing source, and StorageError.
    """

    storage: Storage
    layout: Layout

    def chain(self, origin: ChainOrigin) -> str | None:
        """Return the URI of the chain or checkpoint to resume from, or None if the origin names none."""
        wanted = origin.resume_from
        if wanted is None:
            return None
        uri = self._of_training(wanted, origin.snapshot) if isinstance(wanted, Identity) else self._given(wanted)
        if choose_checkpoint(self.storage, uri) is None:
            raise SourceMissing(f"resume_from: {uri} holds no checkpoint to resume from{self._kept(uri)}")
        return uri

    def _of_training(self, identity: Identity, snapshot: int | None) -> str:
        """Return the URI of the newest chain of a training, or of its checkpoint with this number.

        A chain that began with a checkpoint of another one continues its numbers. So the newest chain that has the
        number is the right one.
        """
        chains = CheckpointChains(self.storage, self.layout, identity).all()
        if not chains:
            raise SourceMissing(
                f"resume_from: that training has never run, there is nothing in {self.layout.job_dir(identity)}; "
                "check dag_id, run_id, task_id and map_index or checkpoint_key"
            )
        if snapshot is None:
            return chains[-1].uri
        for chain in reversed(chains):
            for each in reversed(foreign_catalog(self.storage, chain.uri).list()):
                if each.save == snapshot:
                    return each.uri
        newest = chains[-1].uri
        raise SourceMissing(f"resume_from: there is no snapshot {snapshot} in {newest}{self._kept(newest)}")

    def _kept(self, uri: str) -> str:
        chain = chain_named(uri)
        labels = [each.point.label for each in foreign_catalog(self.storage, chain).list()]
        return f"; the chain holds {', '.join(labels)}" if labels else ""

    def warm_start(self, origin: ChainOrigin) -> str | None:
        if origin.warm_start is None:
            return None
        uri = self._own("warm_start", origin.warm_start)
        try:
            status = self.storage.status(uri)
        except StorageNotFound as error:
            raise SourceMissing(f"warm_start: there is no {uri}") from error
        if not status.is_directory:
            raise SourceMissing(f"warm_start: {uri} is a file; name the directory that the model is in")
        if read_chain(self.storage, uri) is not None and choose_checkpoint(self.storage, uri) is None:
            raise SourceMissing(f"warm_start: {uri} holds no checkpoint yet")
        return status.path

    def _given(self, wanted: str) -> str:
        uri = self._own("resume_from", wanted)
        chain = chain_named(uri)
        if read_chain(self.storage, chain) is None:
            raise SourceMissing(
                f"resume_from: {uri} is no directory of a checkpoint chain or checkpoint; write the `checkpoint_chain` "
                "(…/chain-0001) or the `checkpoint_dir` (…/chain-0001/checkpoints/save-…) of a result"
            )
        return uri

    def _own(self, key: str, uri: str) -> str:
        if not in_store(uri, self.layout.root):
            raise SourceMissing(f"{key}: {uri!r} is not in the store of the staging directory, {self.layout.root}")
        try:
            return str(uris.parse(uri))
        except StorageInvalidPath as error:
            raise SourceMissing(f"{key}: {error}") from error
