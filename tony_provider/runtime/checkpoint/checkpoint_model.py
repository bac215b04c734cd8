"""The classes of a checkpoint, on a container's disk and on the store."""

from __future__ import annotations

import os
import re
import secrets
from typing import Optional

import attrs

from tony_provider.runtime import contract
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.storage import uris

MANIFEST_FILE = "manifest.json"
"""In a checkpoint's directory on the store; there last and in one act: without it nothing was committed."""

_DIRECTORY = re.compile(r"save-([0-9]{6,})(?:-step-([0-9]+))?-[0-9a-f]{8}")


@attrs.frozen
class CheckpointFile:
    """A file of a committed checkpoint, as its manifest has it."""

    path: str  # below the checkpoint's directory, with slashes
    size: int  # bytes
    checksum: str  # of checksum.py
    rank: int = 0  # of the task that it comes from


@attrs.frozen
class Manifest:
    """The manifest of a committed checkpoint: which save it is, and of what files it is made."""

    save: int  # counts the saves of the training: the highest is the newest
    step: Optional[int]  # None: neither the program nor the files say one
    format: str  # a CheckpointFormat
    entry: str  # path of what user code loads, relative to the checkpoint directory: a prefix, a file or a directory
    files: list[CheckpointFile]
    saved_ms: int = 0  # epoch, when the program wrote the last of its files, by the clock of its node
    reported: bool = False  # the step is the one that the program reported last, and not one that its files say
    application_id: str = ""  # that committed it
    generation: int = 0
    committed_ms: int = 0  # epoch
    version: int = 1

    @property
    def size(self) -> int:
        """The size of all files together, in bytes."""
        return sum(file.size for file in self.files)


@attrs.frozen
class StoredCheckpoint:
    """A committed checkpoint. The files of rank R lie in ``<uri>/rank-R/``, named as ``stored_path`` says."""

    uri: str
    manifest: Manifest
    checksum: str  # of the manifest, as it is written

    @property
    def step(self) -> Optional[int]:
        return self.manifest.step

    @property
    def save(self) -> int:
        return self.manifest.save

    @property
    def point(self) -> ResumePoint:
        manifest = self.manifest
        return ResumePoint(self.step, self.uri, self.save, manifest.saved_ms, self.checksum, manifest.reported)


@attrs.frozen
class Stamp:
    """What tells whether a file is still the one that was looked at."""

    inode: int
    size: int  # bytes
    mtime_ns: int  # epoch

    @classmethod
    def of(cls, stat: os.stat_result) -> Stamp:
        return cls(stat.st_ino, stat.st_size, stat.st_mtime_ns)


@attrs.frozen
class LocalCheckpoint:
    """A complete checkpoint in a task's checkpoint directory: one save of the program, told by its files' stamps."""

    step: Optional[int]  # None: neither the program nor its files say one
    format: str
    entry: str
    files: tuple[str, ...]  # paths below the directory, with slashes, sorted; all that is needed to load it
    generated: dict[str, bytes] = attrs.field(factory=dict)  # files whose content names this checkpoint alone
    stamps: dict[str, Stamp] = attrs.field(factory=dict)  # of the others, as they were when they were verified
    reported: bool = (
        False  # the step is the one that the program reported last: it may count other things than files do
    )
    is_slots: bool = False  # of files that are written again and again

    @property
    def saved_ns(self) -> int:
        """When the last of its files was written, in nanoseconds since the epoch."""
        return max((stamp.mtime_ns for stamp in self.stamps.values()), default=0)

    def point(self, save: int, uri: str = "") -> ResumePoint:
        """Of it as this save of the training; ``uri``: where it is on the store."""
        return ResumePoint(self.step, uri, save, self.saved_ms, reported=self.reported)

    @property
    def saved_ms(self) -> int:
        return self.saved_ns // 1_000_000


@attrs.frozen
class CheckpointName:
    """What the name of a checkpoint's directory on the store says of it."""

    save: int
    step: Optional[int]


def directory_name(save: int, step: Optional[int] = None) -> str:
    """A new name for a checkpoint's directory on the store, that nobody else comes to. Names sort by age."""
    said = "" if step is None else f"step-{step}-"
    return f"save-{save:06d}-{said}{secrets.token_hex(4)}"


def place_of(name: str) -> Optional[CheckpointName]:
    """What the name of a directory on the store says; None for names that are no checkpoint's."""
    match = _DIRECTORY.fullmatch(name)
    return CheckpointName(int(match[1]), None if match[2] is None else int(match[2])) if match else None


def checkpoints_directory(chain_uri: str) -> str:
    """URI of the directory in which a chain's checkpoints lie."""
    return uris.join(chain_uri, contract.CHECKPOINTS_DIR)


def rank_directory(checkpoint_uri: str, rank: int) -> str:
    """URI of the directory in which a checkpoint's files of one rank lie."""
    return uris.join(checkpoint_uri, f"rank-{rank}")


def stored_path(path: str) -> str:
    """A file's path below its rank's directory on the store: HDFS has no names with a colon, which times have."""
    return path.replace("%", "%25").replace(":", "%3A")
