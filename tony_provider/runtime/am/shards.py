"""Parts of checkpoints that executors have uploaded, on their way to a commit."""

from __future__ import annotations

from typing import Optional

import attrs

from tony_provider.runtime.checkpoint.checkpoint_model import (
    CheckpointFile,
    CheckpointName,
    Manifest,
    place_of,
    rank_directory,
)
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.storage import StorageInvalidPath, uris


class ShardError(ValueError):
    """An executor announced something that cannot be a part of a checkpoint; the message says what is wrong."""


@attrs.frozen
class Shard:
    """What one rank has uploaded of a checkpoint."""

    checkpoint: str  # URI of the checkpoint's directory
    step: Optional[int]
    save: int
    saved_ms: int  # epoch
    reported: bool  # see Manifest
    generation: int
    rank: int
    format: str
    entry: str
    files: tuple[CheckpointFile, ...]

    @classmethod
    def of(cls, message: tony_pb2.CheckpointUploaded, rank: int, checkpoints: str) -> Shard:
        """The shard that an executor's message announces.

        ``checkpoints``: URI of the directory that checkpoints are to be in. Raises ShardError.
        """
        try:
            directory = uris.parse(message.uri)
            _check_paths(message)
        except StorageInvalidPath as error:
            raise ShardError(str(error)) from error
        checkpoint = directory.parent
        if str(directory) != rank_directory(str(checkpoint), rank) or str(checkpoint.parent) != checkpoints:
            raise ShardError(f"{message.uri} is not where rank {rank} is to put its checkpoints")
        step = message.step if message.HasField("step") else None
        if place_of(checkpoint.name) != CheckpointName(message.save, step):
            raise ShardError(f"{checkpoint.name} is not the name of a checkpoint of save {message.save}, step {step}")
        files = tuple(CheckpointFile(file.path, file.size, file.checksum, rank) for file in message.files)
        if not files:
            raise ShardError("there is no file in it")
        return cls(
            str(checkpoint),
            step,
            message.save,
            message.saved_ms,
            message.reported,
            message.generation,
            rank,
            message.format,
            message.entry,
            files,
        )


def _check_paths(message: tony_pb2.CheckpointUploaded) -> None:
    """Raises StorageInvalidPath. All at once, since there may be a million, and the master waits meanwhile."""
    try:
        uris.join(message.uri, *(file.path for file in message.files))
    except StorageInvalidPath:
        for file in message.files:
            uris.join(message.uri, file.path)  # says which
        raise


def manifest(shards: list[Shard], application_id: str, committed_ms: int) -> Manifest:
    """The manifest of the checkpoint that these shards make, by rank; the lowest rank's entry is the one to load."""
    first = shards[0]
    return Manifest(
        save=first.save,
        step=first.step,
        format=first.format,
        entry=first.entry,
        files=[file for shard in shards for file in shard.files],
        saved_ms=max(shard.saved_ms for shard in shards),
        reported=first.reported,
        application_id=application_id,
        generation=first.generation,
        committed_ms=committed_ms,
    )
