"""Owners of a training, written as a submission does."""

from __future__ import annotations

from tony_provider.cluster.training.checkpoint_chains import ChainState, CheckpointChains
from tony_provider.runtime.checkpoint.stored_checkpoint import NO_TRY, ChainRecord, Epoch, Owner, WaitingTry
from tony_provider.runtime.storage import uris


def own(chains: CheckpointChains, uri: str, application_id: str, whose: WaitingTry = NO_TRY) -> Epoch:
    """Make the application the owner of the training, in the chain with this URI."""
    return chains.owners.add(chains.owners.newest().number, Owner(application_id, uris.name(uri), whose))


def open_after(chains: CheckpointChains, newest: ChainState | None, about: ChainRecord) -> str:
    """Open the chain after ``newest``, and return its URI."""
    uri = chains.uri_after(newest)
    chains.open(uri, about)
    return uri
