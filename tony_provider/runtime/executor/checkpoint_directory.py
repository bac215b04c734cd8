"""The directory in which the user processes of a container keep their checkpoints, one process after the other."""

from __future__ import annotations

import logging
import math
import os
import shutil
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Optional

import attrs

from tony_provider.runtime.checkpoint.formats import Finder, set_aside
from tony_provider.runtime.checkpoint.model import LocalCheckpoint, Stamp
from tony_provider.runtime.checkpoint.restore import choose_files, empty, restore
from tony_provider.runtime.checkpoint.snapshot import Snapshot, take
from tony_provider.runtime.executor import disk
from tony_provider.runtime.executor.container import Container
from tony_provider.runtime.executor.order import Resume
from tony_provider.runtime.executor.workspace import Workspace
from tony_provider.runtime.spec.model import MirrorScope
from tony_provider.runtime.storage import Storage

log = logging.getLogger(__name__)


@attrs.frozen
class Resumed:
    """What a user process goes on from."""

    step: int
    path: str  # that it loads


class CheckpointDirectory:
    """All of it blocks. ``look`` and the others may be called from different threads."""

    def __init__(self, container: Container, workspace: Workspace, storage: Storage) -> None:
        checkpoint = container.job.checkpoint
        self.path = workspace.checkpoints
        self.committed_step = -1  # the newest that is on the store
        self._reported_step = 0  # that the user process reported last
        self._workspace = workspace
        self._storage = storage
        self._finder = Finder(self.path, checkpoint.format, part=checkpoint.mirror is MirrorScope.ALL)
        self._finding = threading.Lock()
        self._restored: dict[str, Stamp] = {}  # files that the last start began with
        self._checksums: dict[Stamp, str] = {}  # of files that the next one may begin with
        self._snapshots = 0
        self._rewrites = False
        self._keeping = threading.Lock()
        self._kept: Optional[Snapshot] = None

    # ---- before a process ----------------------------------------------------------------------------------------

    def empty(self) -> None:
        """A fresh start. Raises OSError."""
        empty(self.path, aside=self._workspace.set_aside)
        self._begin(-1)

    def restore(self, resume: Resume, rank: int, cancelled: threading.Event) -> Resumed:
        """Make it hold exactly that checkpoint; what is here already is not copied.

        Raises DamagedCheckpoint, StorageError, OSError, Cancelled; then it is as it was.
        """
        kept = [self._kept.directory] if self._kept is not None else []
        restored = restore(
            self._storage,
            resume.uri,
            self.path,
            rank,
            cancelled=cancelled,
            aside=self._workspace.set_aside,
            reuse=kept,
            known=self._checksums,
        )
        step, copied, reused = restored.step, restored.copied, restored.reused
        log.info("checkpoint %d: %d bytes copied from the store, %d were here", step, copied, reused)
        self._begin(restored.step)
        for file in choose_files(restored.manifest, rank):
            self._checksums[self._restored[file.path]] = file.checksum
        return Resumed(restored.step, str(restored.entry))

    def keep(self) -> Optional[Resumed]:
        """Leave it as the last process did, but for what is broken. Raises OSError."""
        with self._finding:
            found = self._finder.look(math.inf, self._reported_step)
            # The next process goes back to there, however far the last one had come.
            self._reported_step = found.complete[-1].step if found.complete else 0
        for broken in found.broken:
            log.warning("set aside: %s: %s", ", ".join(broken.paths), broken.reason)
        set_aside(self.path, found.broken, self._workspace.set_aside)
        if not found.complete:
            return None
        newest = found.complete[-1]
        return Resumed(newest.step, str(self.path / newest.entry))

    def _begin(self, step: int) -> None:
        self.committed_step = step
        self._checksums = {}
        self._reported_step = max(step, 0)
        self._restored = _stamps(self.path)
        self.make_room()

    # ---- while it runs, and after it -----------------------------------------------------------------------------

    def newest(self, reported_step: int, final: bool) -> Optional[LocalCheckpoint]:
        """The complete checkpoint with the highest step, if it is one that is not on the store yet.

        ``reported_step``: by the user process, last. With ``final`` nobody writes any more. Raises OSError.
        """
        with self._finding:
            self._reported_step = max(self._reported_step, reported_step)
            found = self._finder.look(math.inf if final else None, self._reported_step)
        made = [checkpoint for checkpoint in found.complete if not self._is_restored(checkpoint)]
        return made[-1] if made and made[-1].step > self.committed_step else None

    def _is_restored(self, checkpoint: LocalCheckpoint) -> bool:
        return bool(checkpoint.stamps) and all(
            self._restored.get(path) == stamp for path, stamp in checkpoint.stamps.items()
        )

    def take(self, checkpoint: LocalCheckpoint) -> Snapshot:
        """Its files as they are now, whatever the process does with its own. Raises SnapshotChanged, OSError."""
        self._snapshots += 1
        into = self._workspace.snapshots / str(self._snapshots)
        return take(self.path, checkpoint, into, copy=self._rewrites)

    def rewritten(self) -> None:
        """A file changed while it was sent to the store: this program writes in place, so it is copied here first."""
        self._rewrites = True

    def committed(self, snapshot: Snapshot, checksums: Mapping[str, str]) -> None:
        """It is on the store now, and so what the next start will likely go on from. ``checksums`` by path."""
        self.committed_step = snapshot.checkpoint.step
        self._checksums = {Stamp.of(file.local.lstat()): checksums[file.path] for file in snapshot.files}
        self._keep(snapshot)

    def _keep(self, snapshot: Optional[Snapshot]) -> None:
        """In place of the former one."""
        with self._keeping:
            former, self._kept = self._kept, snapshot
        if former is not None:
            former.remove()

    def make_room(self) -> None:
        """On a full disk, what is kept for convenience goes."""
        if disk.problem(self.path) is None:
            return
        shutil.rmtree(self._workspace.set_aside, ignore_errors=True)
        self._keep(None)


def _stamps(directory: Path) -> dict[str, Stamp]:
    return {
        path.relative_to(directory).as_posix(): Stamp.of(path.stat())
        for place, _, names in os.walk(directory)
        for path in (Path(place, name) for name in names)
        if path.is_file()
    }
