"""Owners of a training, written as a submission does."""

from __future__ import annotations

from tony_provider.cluster.training.checkpoint_chains import CheckpointChains
from tony_provider.runtime.checkpoint.stored_checkpoint import NO_TRY, Epoch, Owner, WaitingTry
from tony_provider.runtime.storage import uris


def own(chains: CheckpointChains, uri: str, application_id: str, whose: WaitingTry = NO_TRY) -> Epoch:
    """Make the application the owner of the training, in the chain with this URI."""
    return chains.owners.add(chains.owners.newest().number, Owner(application_id, uris.name(uri), whose))
