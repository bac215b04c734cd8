"""What a checkpoint is, on a container's disk and on the store."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from typing import Optional

import attrs

from tony_provider.runtime import contract
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
    """A committed checkpoint. The files of rank R lie in ``<uri>/rank-R/``, named as ``stored_path`` says."""

    uri: str
    manifest: Manifest

    @property
    def step(self) -> int:
        return self.manifest.step


@attrs.frozen
class Stamp:
    """Tells whether a file is still the one that was looked at."""

    inode: int
    size: int  # bytes
    mtime_ns: int  # epoch

    @classmethod
    def of(cls, stat: os.stat_result) -> Stamp:
        return cls(stat.st_ino, stat.st_size, stat.st_mtime_ns)


@attrs.frozen
class LocalCheckpoint:
    """A complete checkpoint in a task's checkpoint directory."""

    step: int
    format: str
    entry: str
    files: tuple[str, ...]  # paths below the directory, with slashes, sorted; all that is needed to load it
    generated: dict[str, bytes] = attrs.field(factory=dict)  # files whose content names this checkpoint alone
    stamps: dict[str, Stamp] = attrs.field(factory=dict)  # of the others, as they were when they were verified


def directory_name(step: int) -> str:
    """A new name for a checkpoint's directory on the store, that nobody else comes to."""
    return f"step-{step:012d}-{secrets.token_hex(4)}"


def agreed_name(application_id: str, generation: int, step: int) -> str:
    """The name that all ranks of a generation know without asking, so that their shards meet in one directory."""
    key = f"{application_id}\0{generation}\0{step}"
    return f"step-{step:012d}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"


def step_of(name: str) -> Optional[int]:
    """The step in such a name; None for other names."""
    match = _DIRECTORY.fullmatch(name)
    return int(match[1]) if match else None


def checkpoints_directory(lineage_uri: str) -> str:
    return uris.join(lineage_uri, contract.CHECKPOINTS_DIR)


def rank_directory(checkpoint_uri: str, rank: int) -> str:
    return uris.join(checkpoint_uri, f"rank-{rank}")


def stored_path(path: str) -> str:
    """A file's path below its rank's directory on the store: HDFS has no names with a colon, which times have."""
    return path.replace("%", "%25").replace(":", "%3A")


def is_inside(path: str) -> bool:
    """Whether it is a path below whatever directory it is put after; with slashes, in its shortest form."""
    return "\0" not in path and all(part not in ("", ".", "..") for part in path.split("/"))
