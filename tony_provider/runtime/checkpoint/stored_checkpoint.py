"""Files of a training and its checkpoint chain: stored checkpoints, failed resumes, the chain file and owners.

The Airflow side writes the chain file and the owner's epochs.
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


class DamagedCheckpoint(CheckpointError):  # noqa: N818 - says what was found
    """A committed checkpoint does not match its manifest. A retry fails in the same way."""

    def __init__(self, uri: str, reason: str) -> None:
        super().__init__(uri, reason)
        self.uri = uri
        self.reason = reason

    def __str__(self) -> str:
        return f"the checkpoint {self.uri} is damaged: {self.reason}"


class CheckpointTooLarge(CheckpointError):  # noqa: N818 - says what was found
    """The manifest of a checkpoint is larger than readers accept. Another attempt fails in the same way."""

    def __init__(self, uri: str, extent: str) -> None:
        super().__init__(uri, extent)
        self.uri = uri
        self.extent = extent

    def __str__(self) -> str:
        return (
            f"the manifest of the checkpoint {self.uri} is too large ({self.extent}). Have the program write fewer and "
            "larger files"
        )


class NoCheckpointLeft(CheckpointError):  # noqa: N818 - says what was found
    """A chain that another training resumes from has no intact checkpoint any more."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.uri = uri

    def __str__(self) -> str:
        return (
            f"resume_from: no intact checkpoint is left at {self.uri}; its training may have removed it. Name another "
            "checkpoint, or raise checkpoint.keep of that training"
        )


_MOST_FAILURES = 20  # of one checkpoint that are kept


@attrs.frozen
class FailedResume:
    """A failure of a process that resumed from a checkpoint, before the process reported a step or saved."""

    kind: str  # the same text for the same failure
    message: str  # one line for people
    application_id: str
    time_ms: int  # epoch


@attrs.frozen
class FailedResumes:
    """The failed resumes of a chain, by the name of the checkpoint's directory.

    A checkpoint is suspect if processes that resumed from it failed twice in the same way, and none reported a step in
    between.
    """

    by_checkpoint: dict[str, list[FailedResume]] = attrs.field(factory=dict)

    def suspicion(self, uri: str) -> str:
        """Return the reason why a checkpoint is suspect, or an empty string if it is not."""
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
        """Return these failures and one more."""
        name = basename(uri)
        failures = [*self.by_checkpoint.get(name, []), failure][-_MOST_FAILURES:]
        return FailedResumes({**self.by_checkpoint, name: failures})

    def without(self, uri: str) -> FailedResumes:
        """Return these failures without those of one checkpoint."""
        name = basename(uri)
        return FailedResumes({each: failures for each, failures in self.by_checkpoint.items() if each != name})


MANIFEST_FILE = "manifest.json"
"""In a checkpoint's directory in the storage. It is written last and in one operation, which commits the checkpoint."""

_DIRECTORY = re.compile(r"save-([0-9]{6,})-[0-9a-f]{8}")


@attrs.frozen
class RankTree:
    """The checkpoint directory of one task, as its programs left it."""

    rank: int
    tree: StoredTree


@attrs.frozen
class Manifest:
    """The manifest of a committed checkpoint: the snapshots of the directories of all tasks that write checkpoints."""

    save: int  # number of the checkpoint in the training; the highest is the newest
    step: Optional[int]  # of the save that user code loads; None if neither the program nor the files have a step
    trees: list[RankTree]  # by rank
    format: str = ""  # a CheckpointFormat; empty if nothing is known to be loadable
    entry: str = ""  # path that user code loads: a prefix, a file, or a directory ("." for the whole one)
    saved_ms: int = 0  # epoch, when the program wrote the last of its files, by its node's clock
    reported: bool = False  # the program has reported the step; otherwise it is from its files
    reported_step: Optional[int] = None  # that the program reported last before the snapshot
    application_id: str = ""  # ID of the application that committed it
    generation: int = 0
    committed_ms: int = 0  # epoch
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
        """The bytes of all stored objects by name."""
        return {name: size for each in self.trees for name, size in each.tree.objects.items()}

    @property
    def sent(self) -> int:
        """The bytes of the objects that were uploaded for this checkpoint."""
        return sum(size for name, size in self.objects.items() if self.is_new(name))

    def is_new(self, name: str) -> bool:
        """Return whether an object was uploaded for this checkpoint, see ``upload_name``."""
        return name.startswith(f"{self.save:06d}-")

    def tree_of(self, rank: Optional[int]) -> StoredTree:
        """Return the tree that the task of this rank restores.

        The task's own entries come first, then those of the other ranks whose paths are free, the lowest rank first.
        A file of another rank gets at most the time of the oldest file that is already in the same top-level entry,
        because other nodes have other clocks.
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
        """Return the paths that the task of this rank has written itself."""
        return frozenset(entry.path for each in self.trees if each.rank == rank for entry in each.tree.entries)


def _oldest(entries: Iterable[Entry]) -> dict[str, int]:
    """Return the oldest modification time by top-level entry."""
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
    """Return a new, unique name for a checkpoint's directory in the storage. Names sort by age."""
    return f"save-{save:06d}-{secrets.token_hex(4)}"


def upload_name(save: int, rank: int) -> str:
    """Return a new, unique beginning of the names of the objects that a task uploads for a checkpoint."""
    return f"{save:06d}-{rank}-{secrets.token_hex(4)}"


def save_of(name: str) -> Optional[int]:
    """Return the number in the name of a checkpoint's directory, or None if it is the name of something else."""
    match = _DIRECTORY.fullmatch(name)
    return int(match[1]) if match else None


def is_checkpoint(uri: str) -> bool:
    """Return whether the URI is that of a checkpoint, and not of a chain."""
    return save_of(uris.name(uri)) is not None


def chain_named(uri: str) -> str:
    """Return the URI of the chain that ``uri`` names itself, or by one of its checkpoints."""
    return chain_of(uri) if is_checkpoint(uri) else uri


def checkpoints_directory(chain_uri: str) -> str:
    """Return the URI of the directory of a chain's checkpoints."""
    return uris.join(chain_uri, contract.CHECKPOINTS_DIR)


def objects_directory(chain_uri: str) -> str:
    """Return the URI of the directory of a chain's objects, which hold the bytes of all its checkpoints."""
    return uris.join(chain_uri, contract.OBJECTS_DIR)


def chain_of(checkpoint_uri: str) -> str:
    """Return the URI of the chain of a checkpoint, also if the checkpoint has been set aside."""
    return uris.parent(uris.parent(checkpoint_uri))


@attrs.frozen
class ChainRecord:
    """Content of ``chain.json``, which identifies the training. Created exclusively, before all other files."""

    fingerprint: dict[str, str]  # hashes, by the key of each part whose change makes it another training
    continues: Optional[str] = None  # URI of another chain, or of one of its checkpoints, with which this chain begins
    warm_start: Optional[str] = None  # URI of the model that provided the initial weights
    created_ms: int = 0  # epoch
    version: int = 1


OWNERS_DIR = "owners"  # in the training's directory
_OWNER_NAME = re.compile(r"(\d{8})\.json")


@attrs.frozen
class Stop:
    """A recorded order to end the application, which its master finds even if no server of YARN answers."""

    reason: str  # for the application's diagnostics
    grace: Optional[float] = None  # seconds for user processes to end; None: as the job specifies


@attrs.frozen
class WaitingTry:
    """Try of an Airflow task that waits for an application."""

    name: str = ""  # see TryInfo.name; empty: no try waits, such as after a submission from the command line
    number: int = 0
    run: str = ""  # names the run of the task within which the numbers of tries compare
    id: str = ""  # Airflow's UUID of the try; version 7 begins with the time of its creation

    def precedes(self, other: WaitingTry) -> bool:
        """Return whether the other try is a later one of the same run of the task.

        A run that was deleted and created again counts from 1 again, but its tries have later IDs.
        """
        is_earlier = self.id[14:15] == other.id[14:15] == "7" and self.id < other.id
        return self.run == other.run and self.number < other.number and is_earlier


NO_TRY = WaitingTry()


@attrs.frozen
class Owner:
    """The content of an owner's file."""

    application_id: str  # may commit checkpoints; empty: no application yet
    chain: str = ""  # name of its checkpoint chain's directory
    whose: WaitingTry = NO_TRY  # the newest try that has submitted or found the application
    stop: Optional[Stop] = None
    version: int = 1


@attrs.frozen
class Epoch:
    """An owner with its number; number 0 precedes the first owner."""

    number: int = 0
    owner: Owner = Owner("")


def owner_file(training_dir: str, number: int) -> str:
    """Return the URI of the file of an epoch."""
    return uris.join(training_dir, OWNERS_DIR, f"{number:08}.json")


def epoch_number(name: str) -> Optional[int]:
    """Return the number of the epoch whose file has this name, or None for other files."""
    match = _OWNER_NAME.fullmatch(name)
    return int(match[1]) if match else None
