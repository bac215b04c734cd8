"""The checkpoint directory of one container: restore it before processes start, and find consistent states to store."""

from __future__ import annotations

import functools
import logging
import math
import os
import re
import shutil
import stat
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from os.path import lexists
from posixpath import dirname
from typing import Optional

import attrs

from tony_provider.runtime.artifacts.manifest import Kind, Tree, TreeNode, scan
from tony_provider.runtime.artifacts.tree_restore import empty_directory
from tony_provider.runtime.artifacts.upload import ArtifactUpload, StoredFiles, Throttle, TreeChanged, UploadedTree
from tony_provider.runtime.checkpoint import save_formats
from tony_provider.runtime.checkpoint.catalog import restore_checkpoint
from tony_provider.runtime.checkpoint.consistency import Blocker, DirectoryWatch, Moment
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.checkpoint.save_finder import Save, SaveFinder, Saves
from tony_provider.runtime.checkpoint.stored_checkpoint import DamagedCheckpoint, chain_of
from tony_provider.runtime.common.contract import ENV_CHECKPOINT_DIR
from tony_provider.runtime.common.text import one_line
from tony_provider.runtime.executor import checkpoint_limits, processes
from tony_provider.runtime.executor.checkpoint_limits import CheckpointReader
from tony_provider.runtime.executor.executor_container import ExecutorContainer
from tony_provider.runtime.executor.processes import Writers
from tony_provider.runtime.executor.workspace import Workspace, disk_problem
from tony_provider.runtime.jobspec.model import CheckpointFormat
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.storage import Storage

log = logging.getLogger(__name__)


_MOST_ENTRIES = 1000  # top-level entries in a report, the newest first
_NAMED = 3  # entries that a notice names
_LONGEST_PATH = 200  # characters of a path in a notice
_RANK = r"(?:(?:mp_)?rank|worker|proc(?:ess)?|shard|part|node|host|task|replica|gpu)[-_]?"

_Version = frozenset[tuple[object, ...]]  # for each entry of a tree: its path, and what identifies its content


@attrs.frozen
class Resumed:
    """The checkpoint that a user process resumes from."""

    point: ResumePoint
    path: str  # path that a framework loads; empty if unknown


@attrs.frozen
class DirectoryState:
    """State of the directory, for the application master."""

    version: int  # changes with the directory's content
    ready: bool
    # First the entries that changed since the last snapshot, then the others. In each group the newest come first.
    entries: tuple[tony_pb2.DirectoryEntry, ...] = ()
    blocker: str = ""  # reason why the directory is not ready
    lasts: bool = False  # waiting does not remove the blocker
    remedy: str = ""  # what the user can do if the directory does not become ready


@attrs.frozen
class _Ready:
    """A consistent state of the directory that can be stored."""

    tree: Tree  # entries that this task has written, without unfinished files
    moment: Moment
    loadable: Optional[Save]
    saved_ms: int  # epoch; time of the newest file
    process_seconds: float  # from the start of the processes until the last change


@attrs.frozen
class Snapshot:
    """An uploaded state of the directory, which is not committed yet."""

    uploaded: UploadedTree
    tree: Tree
    step: Optional[int]
    reported: bool  # whether the process reported ``step``, because the save contains no step
    reported_step: Optional[int]
    loadable: Optional[Save]
    saved_ms: int
    process_seconds: float


class CheckpointDirectory:
    """The checkpoint directory of one container.

    All methods block. They may be called from different threads. ``user_path`` is the path for the user
    processes.
    """

    def __init__(self, container: ExecutorContainer, workspace: Workspace, storage: Storage) -> None:
        self.path = self.user_path = workspace.checkpoints
        self._format = container.job.checkpoint.format
        self._exclude = container.job.checkpoint.exclude
        self._max_size = container.job.checkpoint.max_size
        self._chain = container.description.chain_dir
        self._workspace = workspace
        self._storage = storage
        self._reader = CheckpointReader()
        self._lock = threading.Lock()
        self._watch = DirectoryWatch()
        self._writers = Writers(self.path)
        self._whole = Tree({})  # the directory at the last inspection, with the entries of other tasks
        self._foreign: frozenset[str] = frozenset()  # paths in ``_whole`` that other tasks have written
        self._finder = SaveFinder(self.path, reading=self._reader.read)
        self._ranks: Sequence[int] = (0,)
        self._alone = True
        self._stored = StoredFiles()
        self.base: Optional[ResumePoint] = None  # the checkpoint that was restored or committed last
        self._others: Mapping[str, TreeNode] = {}  # restored entries that other tasks have written
        self._writes: dict[str, list[_Version]] = {}  # last two versions of each top-level entry since the start
        self._awaited: dict[str, frozenset[str]] = {}  # by top-level entry: paths that saves in its newest version need
        self._ready: Optional[_Ready] = None
        self._idle: Optional[DirectoryState] = None  # the reported state while nothing changes, otherwise None
        self._signature: object = None
        self._version = 0
        self._holds = 0
        self._rewrites = False  # the program writes into files during uploads, so copy the files first
        self._left_out: dict[str, str] = {}  # path and reason of entries that snapshots cannot contain
        self._has_described_excluded = False
        self._began_at = time.monotonic()  # when the processes started
        self._ended_at: Optional[float] = None  # when the processes ended, if the directory was watched until then

    # ---- before a process ----------------------------------------------------------------------------------------

    def begin(self, world_size: int, ranks: Sequence[int], *, alone: bool) -> None:
        """Record the processes that are about to start.

        ``alone``: no other task contributes files to the checkpoints of these processes.
        """
        with self._lock:
            self._finder = SaveFinder(self.path, world_size=world_size, reading=self._reader.read)
            self._ranks, self._alone, self._writes = tuple(ranks), alone, {}
            self._began_at, self._ended_at, self._idle = time.monotonic(), None, None
            self._left_out = {}
            self._writers = Writers(self.path)

    def empty(self) -> None:
        """Empty the directory, for training from step 0. Raises OSError."""
        empty_directory(self.path, aside=self._workspace.set_aside)
        with self._lock:
            self._restored(None, StoredFiles(), {})

    def restore(self, resume: ResumePoint, rank: Optional[int], cancelled: threading.Event) -> Resumed:
        """Replace the directory's content by a committed checkpoint. Files that are already there are not copied.

        Raises DamagedCheckpoint, StorageError, OSError, Cancelled. In these cases the directory is unchanged.
        """
        checkpoint, restored = restore_checkpoint(
            self._storage, resume, self.path, rank, cancelled=cancelled, aside=self._workspace.set_aside
        )
        manifest, point = checkpoint.manifest, checkpoint.point
        log.info("%s: copied %d bytes from the storage, reused %d", point.label, restored.copied, restored.reused)
        own = manifest.own_paths(rank) if rank is not None else frozenset()
        is_of_chain = self._chain is not None and chain_of(resume.uri) == self._chain
        with self._lock:
            others = {path: node for path, node in self._scan().nodes.items() if path not in own}
            self._restored(point, restored.stored if is_of_chain else StoredFiles(), others)
        if not manifest.entry:
            log.info("no known framework can load the checkpoint, so TONY_RESUME_FROM is not set")
        return Resumed(point, str(self.user_path / manifest.entry) if manifest.entry else "")

    def keep(self, rank: Optional[int], cancelled: threading.Event) -> Optional[Resumed]:
        """Keep the directory as the failed process left it, without unfinished files.

        If the process was overwriting files of the last checkpoint, restore that checkpoint. Return None if the
        directory is empty. Raises OSError, StorageError, Cancelled.
        """
        with self._lock:
            self._observe(writers=False)
            verify = lambda: self._saves().verified(alone=self._alone)  # noqa: E731
            # Without a watch until the end, times of changes are unknown, so only broken files count as unfinished.
            ended_at = math.inf if self._ended_at is None else self._ended_at
            moment = self._watch.after_failure(ended_at, verify)
        if moment is None and self.base is not None:
            try:
                return self.restore(self.base, rank, cancelled)
            except DamagedCheckpoint as error:
                log.warning("%s. The process resumes from the present content of its directory", error)
        with self._lock:
            for path in sorted(moment.unfinished if moment else ()):
                self._set_aside(path)
            tree = self._observe(writers=False)
            found = self._saves().loadable(alone=True)
            if not tree.nodes:
                return None
            step = found.step if found else (self.base.step if self.base else None)
            save = self.base.save if self.base else 0
            point = ResumePoint(step, "", save, self._saved_ms(tree))
            return Resumed(point, str(self.user_path / found.entry) if found else "")

    def _restored(self, base: Optional[ResumePoint], stored: StoredFiles, others: Mapping[str, TreeNode]) -> None:
        self.base, self._stored, self._others, self._ready, self._idle = base, stored, others, None, None
        self._bring_back_excluded()
        self._watch.restored(time.monotonic(), self._own(self._scan()))
        self.make_room()

    def _bring_back_excluded(self) -> None:
        """Move excluded entries from the former content into the restored directories that contained them.

        A directory that the restored state lacks is not created, because with only excluded files it would look like a
        save.
        """
        for path in scan(self._workspace.set_aside, exclude=self._exclude).excluded if self._exclude else ():
            source, target = self._workspace.set_aside / path, self.path / path
            place = target.parent
            try:
                if place.is_dir() and place.resolve() == self.path.resolve() / dirname(path) and not lexists(target):
                    times = place.stat()
                    source.rename(target)
                    os.utime(place, ns=(times.st_atime_ns, times.st_mtime_ns))
            except OSError as error:
                log.warning("the excluded %s was lost in the restore: %s", path, error)

    def _set_aside(self, path: str) -> None:
        target = self._workspace.set_aside / path
        source = self.path / path
        with suppress(OSError):  # otherwise the move below fails and is logged
            source.parent.chmod(source.parent.stat().st_mode | stat.S_IRWXU)  # programs may make a save read-only
        if source.is_dir() and not source.is_symlink():
            with suppress(OSError):  # not empty yet: the caller moves its files next
                source.rmdir()
            return
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            source.replace(target)
        except OSError as error:
            log.warning("cannot move the incomplete %s out of the checkpoint directory: %s", path, error)
        else:
            log.warning("moved %s out of the checkpoint directory: it was incomplete when its process ended", path)
        place = source.parent
        while place != self.path:
            try:
                place.rmdir()
            except OSError:
                break
            place = place.parent

    # ---- while the process runs, and after it ----------------------------------------------------------------------

    def ended(self) -> None:
        """Record that the processes have just ended. A save that is incomplete now stays incomplete."""
        self._ended_at = time.monotonic()

    def inspect(self, *, ended: bool = False, succeeded: bool = False) -> DirectoryState:
        """Return the present state of the directory.

        ``ended``: the processes have ended. ``succeeded``: they have ended successfully. Raises OSError if the
        directory cannot be read.
        """
        with self._lock:
            now = time.monotonic()
            tree = self._observe(writers=not ended)
            if ended and self._ended_at is None:
                self._ended_at = now
            if not self._watch.has_news and not ended:
                self._idle = self._idle or self._without_news(tree)
                return self._idle
            self._idle = None
            saves = functools.cache(self._saves)
            verify = lambda: saves().verified(alone=self._alone)  # noqa: E731
            if ended and succeeded:
                found: object = self._watch.at_exit()
            elif ended:
                ended_at = now if self._ended_at is None else self._ended_at
                found = self._watch.after_failure(ended_at, verify)
            else:
                found = self._watch.moment(now, verify, time.time_ns())
            if not isinstance(found, Moment):
                blocker = found if isinstance(found, Blocker) else Blocker("", "")
                return self._not_ready(str(blocker), blocker.remedy)
            nodes = {path: node for path, node in tree.nodes.items() if path not in found.unfinished}
            whole = Tree(nodes, tree.left_out)
            if problem := checkpoint_limits.snapshot_size_problem(whole, self._max_size):
                return self._not_ready(problem, lasts=True)
            loadable = self._loadable(saves(), found.unfinished)
            return self._is_ready(self._state(whole, found, loadable), saves())

    def snapshot(
        self, version: int, leave_out: Collection[str], upload: ArtifactUpload, reported_step: Optional[int]
    ) -> Snapshot:
        """Upload the state with this version, without the top-level entries in ``leave_out``.

        ``reported_step``: step that the process reported, for a save that contains no step.

        Raises TreeChanged if the directory has changed, StorageError, OSError, Cancelled.
        """
        with self._lock:
            ready = self._ready
            if ready is None or version != self._version:
                raise TreeChanged("the checkpoint directory")
            self._holds += 1
            hold, stored = self._workspace.snapshots / str(self._holds), self._stored
            copy = self._rewrites
        nodes = {path: node for path, node in ready.tree.nodes.items() if path.partition("/")[0] not in leave_out}
        try:
            uploaded = upload.run(
                self.path, Tree(nodes), stored, hold, copy=copy, growing=ready.moment.growing & set(nodes)
            )
        except TreeChanged:
            self._rewrites = True
            raise
        found = ready.loadable
        step = found.step if found is not None and found.step is not None else reported_step
        is_reported = step is not None and (found is None or found.step is None)
        return Snapshot(
            uploaded, ready.tree, step, is_reported, reported_step, found, ready.saved_ms, ready.process_seconds
        )

    def committed(self, snapshot: Snapshot, point: ResumePoint) -> None:
        """Record that a snapshot is part of a committed checkpoint."""
        with self._lock:
            self.base, self._stored, self._ready, self._idle = point, snapshot.uploaded.stored, None, None
            self._watch.taken(snapshot.tree)
            self._signature = None

    def commit_rejected(self) -> None:
        """Record a rejected commit. The next snapshot uploads all files, because stored objects may be gone."""
        with self._lock:
            self._stored = StoredFiles()
            self._signature = None

    def describe_excluded(self) -> str:
        """Describe the excluded entries when there are any for the first time. Otherwise return an empty text."""
        paths = self._whole.excluded
        if self._has_described_excluded or not paths:
            return ""
        try:
            described = checkpoint_limits.describe_excluded(self.path, paths)
        except OSError:
            return ""  # the program has just removed one of them; the next snapshot describes the others
        self._has_described_excluded = True
        return described

    def make_room(self) -> None:
        """If the disk is full, remove the entries that were set aside."""
        if disk_problem(self.path) is not None:
            shutil.rmtree(self._workspace.set_aside, ignore_errors=True)

    # ---- files outside of snapshots --------------------------------------------------------------------------------

    def unstored(self) -> list[str]:
        """Return the files that this task has written since the last snapshot. Raises OSError."""
        with self._lock:
            self._observe(writers=False)
            return sorted(self._watch.changed_files)

    @property
    def left_out_count(self) -> int:
        return len(self._left_out)

    @property
    def left_out(self) -> str:
        """Notice that names the first entries that snapshots leave out, with reasons; empty if there are none."""
        found = list(self._left_out.items())
        if not found:
            return ""
        named = "; ".join(f"{path[:_LONGEST_PATH]}: {reason[:_LONGEST_PATH]}" for path, reason in found[:_NAMED])
        more = "; and others" if len(found) > _NAMED else ""
        return one_line(f"checkpoints do not contain everything in {ENV_CHECKPOINT_DIR}: {named}{more}")

    # ---- helpers -------------------------------------------------------------------------------------------------

    def _observe(self, *, writers: bool = True) -> Tree:
        """Scan the directory and update the watch. Return the entries that this task has written."""
        whole = self._scan()
        for path, reason in sorted(whole.left_out.items()):
            if path not in self._left_out and len(self._left_out) < _MOST_ENTRIES:
                self._left_out[path] = reason
                log.warning("%s is not part of checkpoints: %s", path, reason)
        tree = self._own(whole)
        self._whole, self._foreign = whole, frozenset(whole.nodes.keys() - tree.nodes.keys())
        self._watch.observe(time.monotonic(), tree, () if writers else None)
        if writers and self._watch.has_news:
            self._watch.opened(self._writers.scan(processes.descendants(os.getpid()), time.monotonic()))
        return tree

    def _scan(self) -> Tree:
        return scan(self.path, also_called=[str(self.user_path), os.path.realpath(self.path)], exclude=self._exclude)

    def _own(self, tree: Tree) -> Tree:
        """Return the tree without the entries that other tasks wrote and that are unchanged since the restore."""
        nodes = {path: node for path, node in tree.nodes.items() if not self._is_others(path, node)}
        for path in list(nodes):
            while path := dirname(path):
                nodes.setdefault(path, tree.nodes[path])
        return attrs.evolve(tree, nodes=nodes)

    def _is_others(self, path: str, node: TreeNode) -> bool:
        known = self._others.get(path)
        if known is None or known.kind is not node.kind:
            return False
        return node.kind is Kind.DIRECTORY or (
            known.version.without_ctime == node.version.without_ctime and known.target == node.target
        )

    def _saves(self) -> Saves:
        """Return the saves in the whole directory, because a save may consist of files of several tasks."""
        return self._finder.find(self._whole, self._foreign)

    def _loadable(self, saves: Saves, unfinished: Collection[str]) -> Optional[Save]:
        """Return the newest save without unfinished files that a framework can load."""
        found = [save for save in saves.saves if not set(save.files) & set(unfinished)]
        if self._format is not CheckpointFormat.AUTO:
            found = [save for save in found if save.format == self._format.value]
        return attrs.evolve(saves, saves=found).loadable(alone=self._alone)

    def _without_news(self, tree: Tree) -> DirectoryState:
        """Return the state that is already stored. The application master compares it with the saves of other tasks."""
        saves = self._saves()
        return self._is_ready(self._state(tree, self._watch.at_exit(), self._loadable(saves, ())), saves)

    def _state(self, tree: Tree, moment: Moment, loadable: Optional[Save]) -> _Ready:
        seconds = max(0.0, self._watch.last_change - self._began_at)
        return _Ready(tree, moment, loadable, self._saved_ms(tree), seconds)

    def _not_ready(self, blocker: str, remedy: str = "", *, lasts: bool = False) -> DirectoryState:
        if self._ready is not None:
            self._version += 1
        self._ready = None
        return DirectoryState(self._version, False, (), blocker, lasts, remedy)

    def _is_ready(self, ready: _Ready, saves: Saves) -> DirectoryState:
        signature = _versions(ready.tree), ready.moment.unfinished
        if signature != self._signature or self._ready is None:
            self._version += 1
        self._signature, self._ready = signature, ready
        return DirectoryState(self._version, True, self._entries(ready, saves))

    def _entries(self, ready: _Ready, saves: Saves) -> tuple[tony_pb2.DirectoryEntry, ...]:
        news = self._watch.changed_entries(ready.tree)
        inside: dict[str, list[Save]] = {}
        steps: dict[str, int] = {}
        for save in sorted(saves.saves, key=lambda save: saves.view.newest_time(save.files)):
            parts = [path.partition("/")[0] for path in save.files or (save.entry,)]
            inside.setdefault(parts[0], []).append(save)
            if save.step is not None:
                steps.update(dict.fromkeys(parts, save.step))
        files: dict[str, dict[str, TreeNode]] = {}
        for path, node in ready.tree.nodes.items():
            files.setdefault(path.partition("/")[0], {})[path] = node
        ages = {top: -saves.view.newest_time(nodes) for top, nodes in files.items()}
        tops = sorted(files, key=lambda top: (top not in news, ages[top], top))[:_MOST_ENTRIES]
        needed = {path for save in saves.saves for path in save.needs}
        return tuple(
            self._entry(top, top in news, files[top], inside.get(top, []), steps.get(top), needed) for top in tops
        )

    def _entry(
        self,
        top: str,
        is_news: bool,
        nodes: Mapping[str, TreeNode],
        inside: Sequence[Save],
        step: Optional[int],
        needed: Collection[str],
    ) -> tony_pb2.DirectoryEntry:
        needs = {path: size for save in inside for path, size in save.needs.items()}
        versions = self._writes.setdefault(top, [])
        if is_news and (version := _versions(Tree(nodes))) not in versions:
            if versions and version > versions[-1] and _paths(version - versions[-1]) <= self._awaited[top]:
                versions.pop()  # only files were added that the same save needs
            versions.append(version)
            del versions[:-2]
        self._awaited[top] = frozenset(needs)
        sizes = {
            path: node.version.size
            for path, node in nodes.items()
            if node.kind is Kind.FILE and (needs or path in needed or save_formats.ORBAX_UNFINISHED in path)
        }
        return tony_pb2.DirectoryEntry(
            name=top,
            group=self._group(top),
            news=is_news,
            first=len(versions) <= 1,
            step=step,
            needs=needs,
            sizes=sizes,
        )

    def _group(self, name: str) -> str:
        numbers = "|".join(map(str, self._ranks))
        return re.sub(rf"({_RANK})0*(?:{numbers})(?![0-9])", r"\1*", name)

    def _saved_ms(self, tree: Tree) -> int:
        return max((node.version.mtime_ns for node in tree.files.values()), default=0) // 1_000_000


def _paths(version: _Version) -> set[str]:
    return {str(path) for path, *_ in version}


def _versions(tree: Tree) -> _Version:
    return frozenset(
        (path, node.kind, node.mode, node.target, node.version.without_ctime if node.kind is Kind.FILE else None)
        for path, node in tree.nodes.items()
    )


def new_throttle(container: ExecutorContainer) -> Throttle:
    """Return the rate limiter for the uploads of one task."""
    bandwidth = container.job.checkpoint.bandwidth
    return Throttle(bandwidth * (1 << 20) if bandwidth else None)
