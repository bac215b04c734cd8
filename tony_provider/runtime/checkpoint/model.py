"""What a checkpoint is, on a container's disk and on the store."""

from __future__ import annotations

import re
import secrets
from typing import Optional

import attrs

from tony_provider.runtime.storage import uris

MANIFEST_FILE = "manifest.json"
"""In a checkpoint's directory on the store; there last and in one act: without it nothing was committed."""

_DIRECTORY = re.compile(r"step-([0-9]{12,})-[0-9a-f]+")


@attrs.frozen
class CheckpointFile:
    path: str  # below the checkpoint's directory, with slashes
    size: int  # bytes
    checksum: str  # of checksum.py
    rank: int = 0  # of the task that it comes from


@attrs.frozen
class Manifest:
    """Says what a committed checkpoint is made of."""

    step: int
    format: str  # a CheckpointFormat
    entry: str  # path of what user code loads, relative to the checkpoint directory: a prefix, a file or a directory
    files: list[CheckpointFile]
    application_id: str = ""  # that committed it
    generation: int = 0
    committed_ms: int = 0  # epoch
    version: int = 1

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(file.size for file in self.files)


@attrs.frozen
class StoredCheckpoint:
    """A committed checkpoint. The files of rank R lie in ``<uri>/rank-R/``."""

    uri: str
    manifest: Manifest

    @property
    def step(self) -> int:
        return self.manifest.step


@attrs.frozen
class LocalCheckpoint:
    """A complete checkpoint in a task's checkpoint directory."""

    step: int
    format: str
    entry: str
    files: tuple[str, ...]  # paths below the directory, with slashes, sorted; all that is needed to load it
    generated: dict[str, bytes] = attrs.field(factory=dict)  # files whose content names this checkpoint alone


def directory_name(step: int) -> str:
    """A new name for a checkpoint's directory on the store."""
    return f"step-{step:012d}-{secrets.token_hex(4)}"


def step_of(name: str) -> Optional[int]:
    """The step in such a name; None for other names."""
    match = _DIRECTORY.fullmatch(name)
    return int(match[1]) if match else None


def rank_directory(checkpoint_uri: str, rank: int) -> str:
    return uris.join(checkpoint_uri, f"rank-{rank}")
