"""Committed checkpoints, as mirrors and an application master leave them on the storage."""

from __future__ import annotations

import sys
from pathlib import Path

from tests import checkpoints
from tests.runtime.executor import trainer
from tony_provider.runtime.checkpoint.catalog import Catalog
from tony_provider.runtime.checkpoint.stored_checkpoint import Manifest, RankTree, chain_of, objects_directory
from tony_provider.runtime.protocol import messages, tony_pb2
from tony_provider.runtime.storage import LocalStorage, Storage, local_path, uris


def weights(uri: str) -> Path:
    """The object of a checkpoint that ``commit`` made in a local store, which holds all files of rank 0."""
    tree = Catalog(LocalStorage(), chain_of(uri)).load(uri).manifest.trees[0].tree
    return local_path(uris.join(objects_directory(chain_of(uri)), tree.entries[-1].object))


def commit(chain: str, step: int, *, ranks: int = 1, size: int = 1000, storage: Storage | None = None) -> str:
    """Commit what a ``trainer`` would have saved. Each rank has a file of its own and one of a name that all have.

    Returns the checkpoint's URI.
    """
    files: dict[int, dict[str, bytes]] = {}
    for rank in range(ranks):
        parts = ("a", "b") if rank == 0 else ("a", f"of-{rank}")
        files[rank] = {f"weights-{step}/{part}": trainer.content(step, f"{part}{rank or ''}", size) for part in parts}
    entry = f"weights-{step}"
    return checkpoints.commit(storage or LocalStorage(), chain, step, ranks=files, entry=entry).uri


def commit_uploaded(uploaded: tony_pb2.CheckpointUploaded, storage: Storage | None = None) -> str:
    """Commit what rank 0 has uploaded, as the application master does. Returns the checkpoint's URI."""
    manifest = Manifest(
        save=uploaded.save,
        step=uploaded.step if uploaded.HasField("step") else None,
        trees=[RankTree(0, messages.uploaded_tree(uploaded))],
        format=uploaded.format,
        entry=uploaded.entry,
        saved_ms=uploaded.saved_ms,
        reported=uploaded.reported,
    )
    return Catalog(storage or LocalStorage(), chain_of(uploaded.uri)).commit(uploaded.uri, manifest).uri


def content(uploaded: tony_pb2.CheckpointUploaded) -> dict[str, bytes]:
    """The bytes of all files of an upload to a local store, by path."""
    objects = local_path(objects_directory(chain_of(uploaded.uri)))
    found = {}
    for entry in uploaded.entries:
        if entry.kind == "file":
            data = (objects / entry.object).read_bytes() if entry.object else b""
            found[entry.path] = data[entry.offset : entry.offset + entry.size]
    return found


HANGING_STORE = (
    sys.executable,
    str(Path(__file__).with_name("hanging_store.py")),
)  # launches an executor with a store that hangs


def hang(file: Path) -> Path:
    """Make such a store hang when it reads a file, until the returned file is removed."""
    over = Path(f"{file}.hangs")
    over.touch()
    return over
