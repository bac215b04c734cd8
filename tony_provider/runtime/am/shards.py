"""Checkpoints that executors have uploaded, on their way to becoming one that is committed."""

from __future__ import annotations

from collections.abc import Collection
from typing import Optional

import attrs

from tony_provider.runtime.checkpoint.model import CheckpointFile, Manifest, rank_directory, step_of
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.storage import StorageInvalidPath, uris


class ShardError(ValueError):
    """An executor announced something that cannot be a part of a checkpoint; the message says what is wrong."""


@attrs.frozen
class Shard:
    """What one rank has uploaded."""

    checkpoint: str  # URI of the checkpoint's directory
    step: int
    generation: int
    rank: int
    format: str
    entry: str
    files: tuple[CheckpointFile, ...]

    @classmethod
    def of(cls, message: tony_pb2.CheckpointUploaded, rank: int, checkpoints: str) -> Shard:
        """``checkpoints``: URI of the directory that checkpoints are to be in. Raises ShardError."""
        try:
            directory = uris.parse(message.uri)
            for file in message.files:
                uris.join(message.uri, file.path)
        except StorageInvalidPath as error:
            raise ShardError(str(error)) from error
        checkpoint = directory.parent
        if str(directory) != rank_directory(str(checkpoint), rank) or str(checkpoint.parent) != checkpoints:
            raise ShardError(f"{message.uri} is not where rank {rank} is to put its checkpoints")
        if step_of(checkpoint.name) != message.step:
            raise ShardError(f"{checkpoint.name} is not the name of a checkpoint of step {message.step}")
        files = tuple(CheckpointFile(file.path, file.size, file.checksum, rank) for file in message.files)
        if not files:
            raise ShardError("there is no file in it")
        return cls(str(checkpoint), message.step, message.generation, rank, message.format, message.entry, files)


class Shards:
    """Collects what the ranks of one generation upload, until a checkpoint is whole."""

    def __init__(self) -> None:
        self._generation = 0
        self._waiting: dict[str, dict[int, Shard]] = {}  # by checkpoint, by rank

    def add(self, shard: Shard, ranks: Collection[int]) -> Optional[list[Shard]]:
        """All of its checkpoint, by rank, when this was the last one of ``ranks``; None when others are to come.

        What was collected of older generations, and of older steps once a newer one is whole, is forgotten.
        """
        if shard.generation != self._generation:
            self._generation = shard.generation
            self._waiting.clear()
        parts = self._waiting.setdefault(shard.checkpoint, {})
        parts[shard.rank] = shard
        if not set(ranks) <= set(parts):
            return None
        self._waiting = {
            uri: others
            for uri, others in self._waiting.items()
            if any(other.step > shard.step for other in others.values())
        }
        return [parts[rank] for rank in sorted(parts)]


def manifest(shards: list[Shard], application_id: str, committed_ms: int) -> Manifest:
    """Of the checkpoint that these make, by rank; the lowest rank's entry is the one to load."""
    first = shards[0]
    return Manifest(
        step=first.step,
        format=first.format,
        entry=first.entry,
        files=[file for shard in shards for file in shard.files],
        application_id=application_id,
        generation=first.generation,
        committed_ms=committed_ms,
    )
