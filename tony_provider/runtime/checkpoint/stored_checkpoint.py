"""Files of a training and its checkpoint chain: stored checkpoints, failed resumes, the chain file and owners.

The Airflow side writes the chain file and the files of owners. The application does not write them.
"""

from __future__ import annotations

import re
import secrets
from collections import Counter
from collections.abc import Iterable
from posixpath import basename, dirname
from typing import Optional

import attrs

from tony_provider.runtime.artifacts.manifest import Entry, Kind, StoredTree
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.common import contract
from tony_provider.runtime.storage import uris


class CheckpointError(Exception):
    """Base of the errors of checkpoints. ``str()`` is a complete sentence for the user."""


@attrs.define(eq=False)
class DamagedCheckpoint(CheckpointError):  # noqa: N818 - says what was found
    """A committed checkpoint does not match its manifest. A retry would fail in the same way."""

    uri: str
    reason: str

    def __str__(self) -> str:
        return f"the checkpoint {self.uri} is damaged: {self.reason}"


@attrs.define(eq=False)
class CheckpointTooLarge(CheckpointError):  # noqa: N818 - says what was found
    """The manifest of a checkpoint exceeds the size limit of readers. A retry would fail in the same way."""

    uri: str
    extent: str

    def __str__(self) -> str:
        return (
            f"the manifest of the checkpoint {self.uri} is too large ({self.extent}). Have the program write fewer and "
            "larger files"
        )


@attrs.define(eq=False)
class NoCheckpointLeft(CheckpointError):  # noqa: N818 - says what was found
    """The chain in ``resume_from`` has no intact checkpoint left."""

    uri: str

    def __str__(self) -> str:
        return (
            f"resume_from: no intact checkpoint is left at {self.uri}; its training may have removed all. Name another "
            "checkpoint, or raise checkpoint.keep of that training"
        )


_MOST_FAILURES = 20  # number of failures that are kept for each checkpoint


@attrs.frozen
class FailedResume:
    """Failure of a process that resumed from a checkpoint and failed before it reported a step or saved."""

    kind: str  # kind of failure; equal texts mean the same kind
    message: str  # one line for users
    application_id: str
    time_ms: int  # epoch milliseconds of the failure


@attrs.frozen
class FailedResumes:
    """The failed resumes of a chain, by the name of the checkpoint's directory.

    A checkpoint becomes suspect if two processes that resumed from it fail in the same way, unless a process that
    resumed from it reports a step in between.
    """

    by_checkpoint: dict[str, list[FailedResume]] = attrs.field(factory=dict)

    def suspicion(self, uri: str) -> str:
        """Return the reason why a checkpoint is suspect, or an empty string if the checkpoint is not suspect."""
        failures = self.by_checkpoint.get(basename(uri), [])
        times = Counter(each.kind for each in failures)
        for each in reversed(failures):
            if times[each.kind] > 1:
                return (
                    f"processes that resumed from it failed {times[each.kind]} times in the same way, before they "
                    f"reported a step or saved: {each.message}"
                )
        return ""

    def added(self, uri: str, failure: FailedResume) -> FailedResumes:
        """Return a copy with another failure of the checkpoint at ``uri``."""
        name = basename(uri)
        failures = [*self.by_checkpoint.get(name, []), failure][-_MOST_FAILURES:]
        return FailedResumes({**self.by_checkpoint, name: failures})

    def without(self, uri: str) -> FailedResumes:
        """Return a copy without the failures of the checkpoint at ``uri``."""
        name = basename(uri)
        return FailedResumes({each: failures for each, failures in self.by_checkpoint.items() if each != name})


MANIFEST_FILE = "manifest.json"
"""In a checkpoint's directory in the storage. It is written last and in one operation, which commits the checkpoint."""

_DIRECTORY = re.compile(r"save-([0-9]{6,})-[0-9a-f]{8}")


@attrs.frozen
class RankTree:
    """Snapshot of the checkpoint directory of one task."""

    rank: int
    tree: StoredTree


@attrs.frozen
class Manifest:
    """The manifest of a committed checkpoint. It has a snapshot for each task that writes checkpoints."""

    save: int  # number of the checkpoint in the training; the newest has the highest
    step: Optional[int]  # step of the save that programs load; None if neither the program nor the files have a step
    trees: list[RankTree]  # sorted by rank
    format: str = ""  # a CheckpointFormat; empty if no save in a known format was found
    entry: str = ""  # path that programs load: a prefix, a file, or a directory ("." for the checkpoint directory)
    saved_ms: int = 0  # epoch milliseconds of the save's last write, by the node's clock; 0 if unknown
    reported: bool = False  # whether ``step`` is from the program's report, not from the files
    reported_step: Optional[int] = None  # last step that the program reported before the snapshot; None if none
    application_id: str = ""  # ID of the application that committed the checkpoint
    generation: int = 0
    committed_ms: int = 0  # epoch milliseconds of the commit
    version: int = 2

    @property
    def size(self) -> int:
        """The total size of all files in bytes."""
        return sum(each.tree.size for each in self.trees)

    @property
    def file_count(self) -> int:
        """The number of files of all ranks."""
        return sum(entry.kind is Kind.FILE for each in self.trees for entry in each.tree.entries)

    @property
    def objects(self) -> dict[str, int]:
        """The size in bytes of all stored objects, by name."""
        return {name: size for each in self.trees for name, size in each.tree.objects.items()}

    @property
    def sent(self) -> int:
        """The total bytes of the objects that were uploaded for this checkpoint, not for an earlier one."""
        return sum(size for name, size in self.objects.items() if self.is_new(name))

    def is_new(self, name: str) -> bool:
        """Return whether an object was uploaded for this checkpoint, according to its name (see ``upload_name``)."""
        return name.startswith(f"{self.save:06d}-")

    def tree_of(self, rank: Optional[int]) -> StoredTree:
        """Return the tree that the task of this rank restores: the snapshots of all ranks, merged.

        If several ranks have the same path, the task's own entry takes precedence, then the entry of the lowest rank.

        Clocks of nodes differ, but a file from another rank must not look newer than the task's own files. Therefore,
        its modification time is at most that of the oldest file already merged into the same top-level entry.
        """
        trees = sorted(self.trees, key=lambda each: (each.rank != rank, each.rank))
        merged: dict[str, Entry] = {}
        objects: dict[str, int] = {}
        for each in trees:
            oldest = _oldest(merged.values())
            for entry in each.tree.entries:
                parent = dirname(entry.path)
                has_place = not parent or (parent in merged and merged[parent].kind is Kind.DIRECTORY)
                if entry.path not in merged and has_place:
                    top = entry.path.partition("/")[0]
                    merged[entry.path] = attrs.evolve(
                        entry, mtime_ns=min(entry.mtime_ns, oldest.get(top, entry.mtime_ns))
                    )
            objects.update(each.tree.objects)
        named = {entry.object for entry in merged.values()} - {""}
        return StoredTree([merged[path] for path in sorted(merged)], {name: objects[name] for name in sorted(named)})

    def own_paths(self, rank: int) -> frozenset[str]:
        """Return the paths in the snapshot of the task with this rank."""
        return frozenset(entry.path for each in self.trees if each.rank == rank for entry in each.tree.entries)


def _oldest(entries: Iterable[Entry]) -> dict[str, int]:
    """Return the oldest modification time of the files in each top-level entry."""
    found: dict[str, int] = {}
    for entry in entries:
        if entry.kind is Kind.FILE:
            top = entry.path.partition("/")[0]
            found[top] = min(found.get(top, entry.mtime_ns), entry.mtime_ns)
    return found


@attrs.frozen
class StoredCheckpoint:
    """A committed checkpoint."""

    uri: str
    manifest: Manifest
    checksum: str  # checksum of the manifest file

    @property
    def step(self) -> Optional[int]:
        return self.manifest.step

    @property
    def save(self) -> int:
        return self.manifest.save

    @property
    def point(self) -> ResumePoint:
        manifest = self.manifest
        return ResumePoint(
            step=self.step,
            uri=self.uri,
            save=self.save,
            saved_ms=manifest.saved_ms,
            checksum=self.checksum,
            reported=manifest.reported,
            reported_step=manifest.reported_step,
            files=manifest.file_count,
            size=manifest.size,
            sent=manifest.sent,
        )


def directory_name(save: int) -> str:
    """Return a new, unique name for the storage directory of a checkpoint. Sorted names are in order of ``save``."""
    return f"save-{save:06d}-{secrets.token_hex(4)}"


def upload_name(save: int, rank: int) -> str:
    """Return a new, unique prefix for the names of the objects that a task uploads for a checkpoint."""
    return f"{save:06d}-{rank}-{secrets.token_hex(4)}"


def save_of(name: str) -> Optional[int]:
    """Return the number in the name of a checkpoint's directory. Return None for other names."""
    match = _DIRECTORY.fullmatch(name)
    return int(match[1]) if match else None


def is_checkpoint(uri: str) -> bool:
    """Return whether a URI names a checkpoint. If not, the URI names a chain."""
    return save_of(uris.name(uri)) is not None


def chain_named(uri: str) -> str:
    """Return the URI of the chain, given the URI of the chain or of one of its checkpoints."""
    return chain_of(uri) if is_checkpoint(uri) else uri


def checkpoints_directory(chain_uri: str) -> str:
    """Return the URI of the directory of a chain's checkpoints."""
    return uris.join(chain_uri, contract.CHECKPOINTS_DIR)


def objects_directory(chain_uri: str) -> str:
    """Return the URI of the directory of a chain's objects. Objects contain the files of the checkpoints."""
    return uris.join(chain_uri, contract.OBJECTS_DIR)


def chain_of(checkpoint_uri: str) -> str:
    """Return the URI of the chain of a checkpoint, even if the checkpoint was set aside."""
    return uris.parent(uris.parent(checkpoint_uri))


@attrs.frozen
class ChainRecord:
    """Content of ``chain.json``, which identifies the training of a chain. Written first, never overwritten."""

    fingerprint: dict[str, str]  # hashes of the properties that identify the training, by property
    continues: Optional[str] = None  # URI of the chain or checkpoint that this chain continues; None for a new training
    warm_start: Optional[str] = None  # URI of the model with the initial weights; None if there is none
    created_ms: int = 0  # epoch milliseconds
    version: int = 1


OWNERS_DIR = "owners"  # subdirectory of the training's directory
_OWNER_NAME = re.compile(r"(\d{8})\.json")


@attrs.frozen
class Stop:
    """A request to end an application, in a file. The application master can read it even if YARN is unavailable."""

    reason: str  # reason shown in the application's diagnostics
    grace: Optional[float] = None  # seconds that user processes have to end; None: the job's own value


@attrs.frozen
class WaitingTry:
    """Try of an Airflow task that waits for an application."""

    name: str = ""  # see TryInfo.name; empty if no try waits, for example after a command-line submission
    number: int = 0
    run: str = ""  # name of the task's run; try numbers are comparable only within a run
    id: str = ""  # Airflow's UUID of the try; a UUID of version 7 begins with the time of its creation

    def precedes(self, other: WaitingTry) -> bool:
        """Return whether ``other`` is a later try of the same run of the task.

        Both the number and the ID must be later, because a run that is deleted and created again numbers its tries from
        1 again.
        """
        is_earlier = self.id[14:15] == other.id[14:15] == "7" and self.id < other.id
        return self.run == other.run and self.number < other.number and is_earlier


NO_TRY = WaitingTry()


@attrs.frozen
class Owner:
    """Content of an owner's file. The owner of a training is the application that may commit checkpoints of it."""

    application_id: str  # empty if no application has been submitted yet
    chain: str = ""  # name of the directory of the application's checkpoint chain
    whose: WaitingTry = NO_TRY  # newest try that has submitted or found the application
    stop: Optional[Stop] = None
    version: int = 1


@attrs.frozen
class Epoch:
    """An owner of a training, and its number. Owners are numbered from 1. Number 0 means that there is no owner yet."""

    number: int = 0
    owner: Owner = Owner("")


def owner_file(training_dir: str, number: int) -> str:
    """Return the URI of the file of the owner with this number."""
    return uris.join(training_dir, OWNERS_DIR, f"{number:08}.json")


def epoch_number(name: str) -> Optional[int]:
    """Return the number of the owner whose file has this name. Return None for other files."""
    match = _OWNER_NAME.fullmatch(name)
    return int(match[1]) if match else None
