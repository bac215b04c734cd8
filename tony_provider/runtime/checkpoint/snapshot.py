"""Snapshots: a checkpoint's files held fast while they are copied, as the training may remove or rewrite them.

Hard links keep what a program removes or replaces by a rename, as TensorFlow does. What a program writes into the same
file, as Keras 3 and ``torch.save`` do, they do not keep from it, but it is noticed: by inode, size and time of change.
A program that does so more often than the store takes a checkpoint wants copies, which cost disk.
"""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Callable

import attrs

from tony_provider.runtime.checkpoint.checkpoint_model import LocalCheckpoint, Stamp
from tony_provider.runtime.checkpoint.errors import CheckpointError
from tony_provider.runtime.storage.base import CHUNK

_NO_LINKS = {errno.EPERM, errno.EXDEV, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS}


class SnapshotChanged(CheckpointError):  # noqa: N818 - says what happened
    """A file is not the one that was verified. The next look at the directory says what is there now."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path} {self.reason}"


@attrs.frozen
class SnapshotFile:
    """A file of a snapshot."""

    path: str  # below the checkpoint's directory
    local: Path  # where it is held
    size: int  # bytes


@attrs.frozen
class Snapshot:
    """A checkpoint's files, held as links or copies in a directory of their own."""

    checkpoint: LocalCheckpoint
    directory: Path  # of its own; remove it
    files: tuple[SnapshotFile, ...]  # all of the checkpoint's, generated ones too
    is_copy: bool = False  # the program cannot change it any more

    def check(self) -> None:
        """Check that the files are still those that were verified: what was copied is then a whole checkpoint.

        Raises SnapshotChanged, OSError.
        """
        for file in () if self.is_copy else self.files:
            stamp = self.checkpoint.stamps.get(file.path)
            if stamp is not None and Stamp.of(file.local.lstat()) != stamp:
                raise SnapshotChanged(file.path, "was rewritten while it was copied")

    def remove(self) -> None:
        """Remove the snapshot's directory. What cannot be removed stays."""
        shutil.rmtree(self.directory, ignore_errors=True)


def take(directory: Path, checkpoint: LocalCheckpoint, into: Path, *, copy: bool = False) -> Snapshot:
    """Hold a checkpoint that was found in ``directory``; ``into`` is made. Copies where there can be no links.

    Raises SnapshotChanged, and OSError; then nothing is left of ``into``.
    """
    try:
        return _take(directory, checkpoint, into, copy)
    except OSError as error:
        if copy or error.errno not in _NO_LINKS:
            raise
        return _take(directory, checkpoint, into, True)


def _take(directory: Path, checkpoint: LocalCheckpoint, into: Path, copy: bool) -> Snapshot:
    into.mkdir(mode=0o700)
    try:
        hold = _copy if copy else _link
        files = tuple(_hold(directory, checkpoint, path, into / path, hold) for path in checkpoint.files)
        snapshot = Snapshot(checkpoint, into, files, is_copy=copy)
        snapshot.check()
    except BaseException:
        shutil.rmtree(into, ignore_errors=True)
        raise
    return snapshot


def _hold(
    directory: Path, checkpoint: LocalCheckpoint, path: str, target: Path, hold: Callable[[Path, Path], Stamp]
) -> SnapshotFile:
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    generated = checkpoint.generated.get(path)
    if generated is not None:
        target.write_bytes(generated)
        return SnapshotFile(path, target, len(generated))
    try:
        held = hold(directory / path, target)
    except FileNotFoundError as error:
        raise SnapshotChanged(path, "has vanished") from error
    if held != checkpoint.stamps.get(path, held):
        raise SnapshotChanged(path, "was rewritten before it could be copied")
    return SnapshotFile(path, target, held.size)


def _link(source: Path, target: Path) -> Stamp:
    os.link(source, target, follow_symlinks=False)
    return Stamp.of(target.lstat())


def _copy(source: Path, target: Path) -> Stamp:
    """The stamp is taken afterwards: it is that of before exactly when nothing changed meanwhile."""
    with source.open("rb") as original, target.open("xb") as copy:
        target.chmod(0o600)
        shutil.copyfileobj(original, copy, CHUNK)
        return Stamp.of(os.fstat(original.fileno()))
