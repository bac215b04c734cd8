"""Committed checkpoints, as a mirror and an application master leave them on the store."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.checkpoints import new_directory
from tests.runtime.executor import trainer
from tony_provider.runtime.artifacts.checksum import Checksum
from tony_provider.runtime.checkpoint.catalog import Catalog
from tony_provider.runtime.checkpoint.checkpoint_model import CheckpointFile, Manifest, rank_directory
from tony_provider.runtime.storage import LocalStorage, Storage, local_path, uris


def weights(uri: str, step: int) -> Path:
    """Rank 0's first file of a checkpoint that ``commit`` made in a local store."""
    return local_path(uri) / "rank-0" / f"weights-{step}" / "a"


def commit(chain: str, step: int, *, ranks: int = 1, size: int = 1000, storage: Storage | None = None) -> str:
    """What a ``trainer`` would have saved; returns its URI. Each rank has a file of its own and one that all have."""
    storage = storage or LocalStorage()
    catalog = Catalog(storage, chain)
    uri = new_directory(catalog, step)
    files = []
    for rank in range(ranks):
        for part in ("a", "b") if rank == 0 else ("a", f"of-{rank}"):
            path = f"weights-{step}/{part}"
            data = trainer.content(step, f"{part}{rank or ''}", size)
            storage.write(uris.join(rank_directory(uri, rank), path), data)
            summed = Checksum()
            summed.update(data)
            files.append(CheckpointFile(path, len(data), summed.text, rank))
    catalog.commit(uri, Manifest(step, step, "manifest", f"weights-{step}", files))
    return uri


HANGING_STORE = (sys.executable, str(Path(__file__).with_name("hanging_store.py")))  # launches an executor with one


def hang(file: Path) -> Path:
    """Have such a store not come to an end with reading a file until what is returned is removed."""
    over = Path(f"{file}.hangs")
    over.touch()
    return over
