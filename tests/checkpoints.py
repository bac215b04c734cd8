"""Committed checkpoints put on a store by hand, as a job would have left them."""

from __future__ import annotations

from tony_provider.runtime.artifacts.checksum import Checksum
from tony_provider.runtime.checkpoint.catalog import Catalog
from tony_provider.runtime.checkpoint.checkpoint_model import (
    CheckpointFile,
    Manifest,
    StoredCheckpoint,
    directory_name,
    rank_directory,
)
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import Storage

FILE = "model.bin"


def new_directory(catalog: Catalog, step: int) -> str:
    """For a checkpoint of this step, as an executor names it; it is not there yet. Saves are counted like steps."""
    return uris.join(catalog.uri, directory_name(step, step))


def commit(storage: Storage, chain_uri: str, step: int, content: bytes = b"weights") -> StoredCheckpoint:
    """Of one rank and one file."""
    catalog = Catalog(storage, chain_uri)
    uri = new_directory(catalog, step)
    storage.write(uris.join(rank_directory(uri, 0), FILE), content)
    checksum = Checksum()
    checksum.update(content)
    files = [CheckpointFile(FILE, len(content), checksum.text)]
    return catalog.commit(uri, Manifest(step, step, "manifest", FILE, files))
