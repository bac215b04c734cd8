"""Restore a committed checkpoint into a task's checkpoint directory."""

from __future__ import annotations

import logging
import secrets
import threading
from pathlib import Path
from typing import Optional

import attrs

from tony_provider.runtime.artifacts.manifest import InvalidManifest
from tony_provider.runtime.artifacts.tree_restore import DamagedObject, restore_tree
from tony_provider.runtime.artifacts.upload import StoredFiles
from tony_provider.runtime.checkpoint.catalog import foreign_catalog, read_stored
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.checkpoint.stored_checkpoint import (
    DamagedCheckpoint,
    StoredCheckpoint,
    chain_of,
    objects_directory,
)
from tony_provider.runtime.storage import Storage, StorageNotFound

log = logging.getLogger(__name__)

_TRIES = 3  # to copy a checkpoint
_ADVICE = (
    f"{_TRIES} attempts to copy a checkpoint have failed. If its training still removes old checkpoints, wait until "
    "it has ended, or raise its checkpoint.keep"
)


@attrs.frozen
class Restored:
    """Content of a checkpoint directory after a restore."""

    stored: StoredCheckpoint
    files: StoredFiles
    copied: int  # bytes from the storage
    reused: int  # bytes that the directory had


def restore_checkpoint(
    storage: Storage,
    resume: ResumePoint,
    directory: Path,
    rank: Optional[int],
    *,
    cancelled: threading.Event,
    aside: Path,
) -> Restored:
    """Make ``directory`` hold exactly a committed checkpoint, as ``Manifest.tree_of`` has it for the rank.

    Files of ``directory`` that have the wanted bytes are not copied. ``aside``, a path next to the directory,
    receives the former content. On any exception ``directory`` stays as it was.

    Blocks. Raises DamagedCheckpoint (also if the checkpoint is gone or is another one), Cancelled, StorageError,
    OSError.
    """
    try:
        stored = read_stored(storage, resume.uri)
    except StorageNotFound as error:
        raise DamagedCheckpoint(resume.uri, "it has no manifest, or is gone") from error
    if resume.checksum and stored.checksum != resume.checksum:
        raise DamagedCheckpoint(resume.uri, "its manifest is not the one that was committed")
    objects = objects_directory(chain_of(resume.uri))
    try:
        restored = restore_tree(
            storage,
            objects,
            stored.manifest.tree_of(rank),
            directory,
            aside=aside,
            cancelled=cancelled,
        )
    except (DamagedObject, InvalidManifest) as error:
        raise DamagedCheckpoint(resume.uri, str(error)) from error
    return Restored(stored, restored.stored, restored.copied, restored.reused)


def copy_checkpoint(storage: Storage, uri: str, directory: Path, rank: int, cancelled: threading.Event) -> ResumePoint:
    """Restore a checkpoint of another training into a new directory. Return the checkpoint.

    ``uri`` names a checkpoint, or a chain, whose newest checkpoint is restored. The training may remove checkpoints
    meanwhile. Blocks. Raises DamagedCheckpoint, Cancelled, StorageError, OSError.
    """
    reader = f"copy-{secrets.token_hex(4)}"
    for tries_left in reversed(range(_TRIES)):
        catalog = foreign_catalog(storage, uri)
        chosen = catalog.choose()
        if chosen is None and tries_left:
            continue  # perhaps its owner has just removed it, and a newer checkpoint exists
        if chosen is None:
            raise StorageNotFound(uri, "read", "it holds no complete checkpoint")
        point = chosen.checkpoint.point
        catalog.pin(point.uri, reader)
        try:
            aside = directory.with_name(f".{directory.name}-{secrets.token_hex(4)}")  # not created: there is no content
            restore_checkpoint(storage, point, directory, rank, cancelled=cancelled, aside=aside)
        except DamagedCheckpoint as error:
            log.warning("%s", error)
            if not tries_left:
                raise DamagedCheckpoint(error.uri, f"{error.reason}. {_ADVICE}") from error
        else:
            return point
        finally:
            catalog.unpin(point.uri, reader)
    raise AssertionError("the last attempt returns or raises")
