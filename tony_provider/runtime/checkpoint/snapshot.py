"""A checkpoint's files held fast while they are copied: the training may remove or rewrite them at any moment.

Hard links keep what a program removes or replaces by a rename, as TensorFlow does. What a program writes into the same
file cannot be kept from it, but is noticed: by inode, size and time of change.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import attrs

from tony_provider.runtime.checkpoint.errors import CheckpointError
from tony_provider.runtime.checkpoint.model import LocalCheckpoint, Stamp


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
    path: str  # below the checkpoint's directory
    local: Path  # where it is held
    size: int  # bytes


@attrs.frozen
class Snapshot:
    checkpoint: LocalCheckpoint
    directory: Path  # of its own; remove it
    files: tuple[SnapshotFile, ...]  # all of the checkpoint's, generated ones too

    def check(self) -> None:
        """Whether the files are still those that were verified: what was copied is then a whole checkpoint.

        Raises SnapshotChanged, OSError.
        """
        for file in self.files:
            stamp = self.checkpoint.stamps.get(file.path)
            if stamp is not None and Stamp.of(file.local.lstat()) != stamp:
                raise SnapshotChanged(file.path, "was rewritten while it was copied")

    def remove(self) -> None:
        """What cannot be removed stays."""
        shutil.rmtree(self.directory, ignore_errors=True)


def take(directory: Path, checkpoint: LocalCheckpoint, into: Path) -> Snapshot:
    """Hold a checkpoint that was found in ``directory``; ``into`` is made, on the same file system.

    Raises SnapshotChanged, and OSError; then nothing is left of ``into``.
    """
    into.mkdir(mode=0o700)
    try:
        files = tuple(_hold(directory, checkpoint, path, into / path) for path in checkpoint.files)
        snapshot = Snapshot(checkpoint, into, files)
        snapshot.check()
    except BaseException:
        shutil.rmtree(into, ignore_errors=True)
        raise
    return snapshot


def _hold(directory: Path, checkpoint: LocalCheckpoint, path: str, target: Path) -> SnapshotFile:
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    generated = checkpoint.generated.get(path)
    if generated is not None:
        target.write_bytes(generated)
        return SnapshotFile(path, target, len(generated))
    try:
        os.link(directory / path, target, follow_symlinks=False)
    except FileNotFoundError as error:
        raise SnapshotChanged(path, "has vanished") from error
    return SnapshotFile(path, target, target.lstat().st_size)
