"""The directory in which the user processes of a container keep their checkpoints, one process after the other."""

from __future__ import annotations

import logging
import math
import os
import shutil
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Optional

import attrs

from tony_provider.runtime.checkpoint.checkpoint_model import LocalCheckpoint, Stamp
from tony_provider.runtime.checkpoint.errors import DamagedCheckpoint
from tony_provider.runtime.checkpoint.formats import Broken, CheckpointFinder, FoundCheckpoints, set_aside
from tony_provider.runtime.checkpoint.restore import empty, restore
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.checkpoint.snapshot import Snapshot, take
from tony_provider.runtime.executor import disk
from tony_provider.runtime.executor.checkpoint_reader import CheckpointReader
from tony_provider.runtime.executor.executor_container import ExecutorContainer
from tony_provider.runtime.executor.workspace import Workspace
from tony_provider.runtime.spec.model import MirrorScope
from tony_provider.runtime.storage import Storage
from tony_provider.runtime.text import one_line

_MOST_SAID = 100  # files of which it is told why they are no checkpoints
_MOST_NAMED = 5  # files in a line
# What a program has written this very moment it may write again, and it looks the same: the file system's clock ticks
# some hundred times a second.
_TICK_NS = 50_000_000

log = logging.getLogger(__name__)


@attrs.frozen
class Resumed:
    """What a user process goes on from: a resume point that lies on this disk."""

    point: ResumePoint
    path: str  # that the process loads


@attrs.frozen
class _OnStore:
    """The newest save that is committed, as it was on this disk."""

    point: ResumePoint = attrs.field(factory=lambda: ResumePoint(None, ""))  # without a URI: there is none
    saved_ns: int = 0  # 0: it was restored, so that all that the process writes is newer
    stamps: Mapping[str, Stamp] = attrs.field(factory=dict)


class CheckpointDirectory:
    """The directory for checkpoints of one container, and what of it is on the store.

    All methods block. ``look`` and the others may be called from different threads.
    """

    def __init__(self, container: ExecutorContainer, workspace: Workspace, storage: Storage) -> None:
        checkpoint = container.job.checkpoint
        self.path = workspace.checkpoints
        self._on_store = _OnStore()
        self._reported_step: Optional[int] = None  # by the user process, last
        self._workspace = workspace
        self._storage = storage
        self._reader = CheckpointReader()
        self._finder = CheckpointFinder(
            self.path, checkpoint.format, part=checkpoint.mirror is MirrorScope.ALL, reading=self._reader.read
        )
        self._finding = threading.Lock()
        self._restored: dict[str, Stamp] = {}  # files that the last start began with
        self._snapshots = 0
        self._said: set[str] = set()  # of files that are no checkpoints
        self._rewrites = False
        self._keeping = threading.Lock()
        self._kept: Optional[Snapshot] = None

    # ---- before a process ----------------------------------------------------------------------------------------

    def empty(self) -> None:
        """Empty the directory, for a fresh start. Raises OSError."""
        empty(self.path, aside=self._workspace.set_aside)
        self._begin(None)

    def restore(self, resume: ResumePoint, rank: int, cancelled: threading.Event) -> Resumed:
        """Make the directory hold exactly that checkpoint; what is here already is not copied.

        Raises DamagedCheckpoint, StorageError, OSError, Cancelled; then it is as it was.
        """
        kept = [self._kept.directory] if self._kept is not None else []
        restored = restore(
            self._storage,
            resume,
            self.path,
            rank,
            cancelled=cancelled,
            aside=self._workspace.set_aside,
            reuse=kept,
        )
        point, copied, reused = restored.stored.point, restored.copied, restored.reused
        log.info("checkpoint of %s: %d bytes copied from the store, %d were here", point.label, copied, reused)
        self._begin(point)
        return Resumed(point, str(restored.entry))

    def keep(self, rank: int, cancelled: threading.Event) -> Optional[Resumed]:
        """Leave the directory as the last process did, but for what is broken; else restore what is on the store.

        That is done where nothing that is as new is whole. Raises OSError, StorageError, Cancelled.
        """
        found = self._left()
        newest = found.complete[-1] if found.complete else None
        if self._on_store.point.uri and not (newest and self._is_as_new(newest, found)):
            try:
                return self.restore(self._on_store.point, rank, cancelled)
            except DamagedCheckpoint as error:
                log.warning("%s; going on with what is here", error)
        for broken in found.broken:
            log.warning("set aside: %s", _told(broken))
        set_aside(self.path, found.broken, self._workspace.set_aside)
        # The next process goes back to there, however far the last one had come.
        self._reported_step = newest.step if newest else None
        if newest is None:
            return None
        return Resumed(newest.point(self._on_store.point.save), str(self.path / newest.entry))

    def _left(self) -> FoundCheckpoints:
        """By the last process. Raises OSError."""
        try:
            with self._finding:
                return self._finder.look(math.inf, self._reported_step)
        except OSError:
            raise
        except Exception:  # whatever a program left there: no fault of ours in reading it ends its training
            log.exception("a fault of the look at %s itself", self.path)
            return FoundCheckpoints([], [])

    def _is_as_new(self, checkpoint: LocalCheckpoint, found: FoundCheckpoints) -> bool:
        """As what is on the store, or newer."""
        same = checkpoint.stamps == self._on_store.stamps or self._is_restored(checkpoint)
        return same or (self._is_newer(checkpoint) and not self._lacks_any(checkpoint, found))

    def _begin(self, resume: Optional[ResumePoint]) -> None:
        self._restored = _stamps(self.path)
        self._on_store = _OnStore(resume, stamps=self._restored) if resume else _OnStore()
        self._reported_step = resume.step if resume else None
        self.make_room()

    # ---- while it runs, and after it -----------------------------------------------------------------------------

    @property
    def next_save(self) -> int:
        """The number that the next save on the store gets."""
        return self._on_store.point.save + 1

    def newest(self, reported_step: Optional[int], final: bool) -> Optional[LocalCheckpoint]:
        """The newest complete checkpoint, if it is one that is not on the store yet. See ``newer``."""
        newer = self.newer(reported_step, final)
        return newer[-1] if newer else None

    def newer(self, reported_step: Optional[int], final: bool) -> list[LocalCheckpoint]:
        """The complete checkpoints that are newer than what is on the store, the newest last.

        ``reported_step``: by the user process, last; None: none. With ``final`` nobody writes any more. Raises OSError.
        """
        with self._finding:
            if reported_step is not None:
                self._reported_step = max(self._reported_step or 0, reported_step)
            found = self._finder.look(math.inf if final else None, self._reported_step)
            self._tell(found)
        return [
            one
            for one in found.complete
            if (final or not 0 <= time.time_ns() - one.saved_ns < _TICK_NS)
            and not self._is_restored(one)
            and self._is_newer(one)
            and not self._lacks_any(one, found)
        ]

    def _tell(self, found: FoundCheckpoints) -> None:
        """Say of each file that is no checkpoint why, once."""
        for said in map(_told, found.broken):
            if said not in self._said and len(self._said) < _MOST_SAID:
                self._said.add(said)
                log.warning("no checkpoint: %s", said)

    def _is_newer(self, checkpoint: LocalCheckpoint) -> bool:
        known = self._on_store
        if checkpoint.stamps == known.stamps:
            return False
        later = checkpoint.point(self.next_save).is_later_step(known.point)
        if later is not None:
            return later
        if checkpoint.stamps.keys() == known.stamps.keys():
            return True  # written anew, whatever the node's clock says
        return checkpoint.saved_ns > known.saved_ns

    def _lacks_any(self, checkpoint: LocalCheckpoint, found: FoundCheckpoints) -> bool:
        """One of the files that are written again and again is there, and not whole: it is being written, or the
        process was killed while it was. What is on the store is whole.
        """
        if not checkpoint.is_slots:
            return False
        complete = {name for one in found.complete for name in one.files}
        lacking = self._on_store.stamps.keys() - complete
        return any((self.path / name).exists() for name in lacking)

    def _is_restored(self, checkpoint: LocalCheckpoint) -> bool:
        return bool(checkpoint.stamps) and all(
            self._restored.get(path) == stamp for path, stamp in checkpoint.stamps.items()
        )

    def take(self, checkpoint: LocalCheckpoint) -> Snapshot:
        """Hold a checkpoint's files as they are now, whatever the process does with its own.

        Raises SnapshotChanged, OSError.
        """
        self._snapshots += 1
        into = self._workspace.snapshots / str(self._snapshots)
        return take(self.path, checkpoint, into, copy=self._rewrites)

    def rewritten(self) -> None:
        """Record that a file changed while it was sent to the store.

        So this program writes in place, and its checkpoints are copied here first.
        """
        self._rewrites = True

    def committed(self, snapshot: Snapshot, save: int, uri: str) -> None:
        """Record that a checkpoint is on the store now, as this save: the next start will likely go on from it."""
        one = snapshot.checkpoint
        self._on_store = _OnStore(one.point(save, uri), one.saved_ns, one.stamps)
        self._keep(snapshot)

    def refused(self) -> None:
        """Record that a commit was refused.

        Perhaps its number was taken, by a commit whose answer was lost: the next one gets another.
        """
        known = self._on_store
        self._on_store = attrs.evolve(known, point=attrs.evolve(known.point, save=known.point.save + 1))

    def _keep(self, snapshot: Optional[Snapshot]) -> None:
        """In place of the former one."""
        with self._keeping:
            former, self._kept = self._kept, snapshot
        if former is not None:
            former.remove()

    def make_room(self) -> None:
        """Remove what is kept for convenience only: the disk is full."""
        if disk.problem(self.path) is None:
            return
        shutil.rmtree(self._workspace.set_aside, ignore_errors=True)
        self._keep(None)


def _told(broken: Broken) -> str:
    names = ", ".join(broken.paths[:_MOST_NAMED]) + ("" if len(broken.paths) <= _MOST_NAMED else ", …")
    return one_line(f"{names}: {broken.reason}")


def _stamps(directory: Path) -> dict[str, Stamp]:
    return {
        path.relative_to(directory).as_posix(): Stamp.of(path.stat())
        for place, _, names in os.walk(directory)
        for path in (Path(place, name) for name in names)
        if path.is_file()
    }
