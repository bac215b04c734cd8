"""Find files of the user processes that are not stored, and report them.

Programs may save into their working directory instead of the checkpoint directory. A working directory also holds the
program, its data, environments and caches, perhaps millions of files. So the effort of a scan is bounded.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import time
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Optional

from tony_provider.runtime.artifacts.manifest import FileVersion, scan
from tony_provider.runtime.checkpoint.consistency import is_named_log
from tony_provider.runtime.checkpoint.save_finder import Stray, StraySaves, may_be_save, save_remedy
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.concurrency import wait_with_timeout
from tony_provider.runtime.common.quantities import some
from tony_provider.runtime.common.text import one_line
from tony_provider.runtime.executor import processes
from tony_provider.runtime.executor.executor_container import ExecutorContainer
from tony_provider.runtime.executor.start_context import BackgroundWork, ExecutorContext
from tony_provider.runtime.jobspec.model import MirrorScope, Role

log = logging.getLogger(__name__)


_MOST_ENTRIES = 5000  # number of entries that one scan reads
_MOST_ROOTS = 4
_MOST_LEVELS = 8
_SKIPPED = ("__pycache__", "node_modules", "site-packages", "dist-packages", "huggingface")
# A directory that contains one of these is an environment, or a model that was downloaded from Hugging Face.
_MARKS = ("pyvenv.cfg", "conda-meta", ".cache/huggingface")

Identity = tuple[int, int]  # device and inode


class WorkingDirectories:
    """The working directories of a container's processes: the container's own, and those that a process changed to."""

    def __init__(self, container: Path, without: Iterable[Path], since_ns: int) -> None:
        """Prepare the scans. ``without``: directories to skip. ``since_ns``: epoch; older files do not count."""
        self._container = os.path.realpath(container)
        self._since_ns = since_ns
        self._without = {identity for path in without if (identity := _identity(os.path.realpath(path))) is not None}
        self._roots = [self._container]

    def scan(self, pids: Iterable[int]) -> dict[str, FileVersion]:
        """Return the files that may belong to a checkpoint, by path. Blocks.

        Paths are relative to the container's directory if they are below it. Links are not followed. Directories that
        have changed since the processes started come first, so that the limit omits unchanged directories.
        """
        self._find_roots(pids)
        seen = set(self._without)
        found: dict[str, FileVersion] = {}
        changed = [(root, 0) for root in self._roots]
        unchanged: list[tuple[str, int]] = []
        left = _MOST_ENTRIES
        while left > 0 and (changed or unchanged):
            place, level = (changed or unchanged).pop(0)
            identity = _identity(place)
            if identity is None or identity in seen:
                continue
            seen.add(identity)
            if any(os.path.lexists(f"{place}/{mark}") for mark in _MARKS):
                continue
            try:
                with os.scandir(place) as entries:
                    for entry in entries:
                        left -= 1
                        if left < 0:
                            break
                        self._enter(entry, level, found, changed, unchanged)
            except OSError:
                continue  # it was removed, or the user may not read it
        return found

    def _enter(
        self,
        entry: os.DirEntry[str],
        level: int,
        found: dict[str, FileVersion],
        changed: list[tuple[str, int]],
        unchanged: list[tuple[str, int]],
    ) -> None:
        is_directory = entry.is_dir(follow_symlinks=False)
        path = entry.path.removeprefix(f"{self._container}/")
        if not is_directory and not may_be_save(path):
            return
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            return  # it was removed
        is_changed = status.st_mtime_ns >= self._since_ns
        if is_directory:
            if level < _MOST_LEVELS and not _is_skipped(entry.name):
                (changed if is_changed else unchanged).append((entry.path, level + 1))
        elif is_changed and stat.S_ISREG(status.st_mode):
            found[path.encode(errors="replace").decode()] = FileVersion.of(status)

    def _find_roots(self, pids: Iterable[int]) -> None:
        """Add the current directories of processes. They are scanned even after the processes have ended."""
        for pid in pids:
            if len(self._roots) >= _MOST_ROOTS:
                return
            try:
                root = os.readlink(f"/proc/{pid}/cwd")  # noqa: PTH115 - many of them
            except OSError:
                continue  # it has ended
            if root not in self._roots and not self._is_foreign(root):
                self._roots.insert(0, root)

    def _is_foreign(self, root: str) -> bool:
        """Return whether a directory is stored anyway, or is above the container's directory."""
        if f"{self._container}/".startswith(f"{root.rstrip('/')}/"):
            return True
        above: Collection[str] = [root, *map(str, Path(root).parents)]
        return any(_identity(path) in self._without for path in above)


def _identity(path: str) -> Optional[Identity]:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _is_skipped(name: str) -> bool:
    return name.startswith((".", "models--", "datasets--")) or name in _SKIPPED


_INTERVAL = 5.0  # seconds between two checks
_CHECK_SHARE = 20  # checks take at most a twentieth of the time
_LAST_CHECK = 5.0  # seconds for the check after the processes have ended
_PATIENCE_NS = 20 * 10**9  # age of a reported save; before, the program may copy the save to the checkpoint directory
_CLOCK_TICK_NS = 20 * 10**6  # maximum lag of file times behind the clock
_NAMED = 3  # number of files that a notice names


class UnstoredFiles(BackgroundWork):
    """Watches one start of the user processes. Call ``start``, ``finish`` and ``close`` once.

    If the program also saves into its checkpoint directory, its saves in the working directory are not reported. This
    is assumed if the checkpoint directory contains a checkpoint of this start, or any file that is newer than the save
    in the working directory.
    """

    def __init__(self, context: ExecutorContext, *, stores: bool, is_leader: bool) -> None:
        """Prepare the watch.

        ``stores``: the mirror stores this task's checkpoints. ``is_leader``: this task has rank 0.
        """
        super().__init__("unstored")
        self.notices: Sequence[str] = ()
        self._context = context
        self._stores = stores or context.container.job.checkpoint.shared  # rank 0 stores a shared directory
        self._is_leader = is_leader
        self._strays = StraySaves()
        self._saves_in_place = False  # the program also saves into its checkpoint directory
        self._began_ns = 0  # epoch
        self._directories: Optional[WorkingDirectories] = None
        self._not_stored = ""  # notice about the checkpoint directory, if the mirror does not store it

    def start(self) -> None:
        """Start to watch, right before the processes start."""
        workspace = self._context.workspace
        without = (workspace.root, self._context.checkpoints.path)
        self._began_ns = time.time_ns() - _CLOCK_TICK_NS
        self._directories = WorkingDirectories(workspace.container, without, self._began_ns)
        super().start()

    async def finish(self, problem: str) -> Optional[int]:
        """Check a last time. Return the number of files of the processes that are not stored, or None if it is unknown.

        ``problem``: the reason if the newest checkpoint of this task is not stored, otherwise empty.
        """
        if self._work is None:
            return 0  # no process ever ran
        self._work.cancel()
        await asyncio.gather(self._work, return_exceptions=True)
        try:
            await wait_with_timeout(self._in_thread(self._check, True), _LAST_CHECK)
            return await wait_with_timeout(self._in_thread(self._count, problem), _LAST_CHECK)
        except (OSError, asyncio.TimeoutError) as error:
            log.warning("cannot count the files that are not stored: %s", str(error) or type(error).__name__)
        except Exception:  # a bug in this check must not change the result of the training
            log.exception("internal error in the search for files that are not stored")
        return None

    async def _run(self) -> None:
        pause = _INTERVAL
        while True:
            await asyncio.sleep(pause)
            began = time.monotonic()
            try:
                await self._in_thread(self._check, False)
            except OSError as error:
                log.warning("cannot search for files that are not stored: %s", error)
            except Exception:  # a bug in this check must not end the training
                log.exception("internal error in the search for files that are not stored")
                return
            pause = max(_INTERVAL, _CHECK_SHARE * (time.monotonic() - began))

    def _check(self, ended: bool) -> None:
        if not self._stores:
            self._check_checkpoints(ended)
        stray = self._stray(ended)
        in_place = [_stray_notice(stray)] if stray is not None else []
        notices = [*in_place, *filter(None, [self._not_stored, self._context.checkpoints.left_out])]
        for notice in notices:
            if notice not in self.notices:
                log.warning("%s", notice)
        self.notices = notices

    def _stray(self, ended: bool) -> Optional[Stray]:
        container = self._context.container
        keeps_itself = contract.NOTEBOOK_MODULE in container.command  # a notebook stores its working directory itself
        if self._directories is None or container.role is Role.SIDECAR or keeps_itself:
            return None
        pids = list(processes.descendants(os.getpid()))
        now_ns = time.time_ns()
        stray = self._strays.observe(self._directories.scan(pids), now_ns, ended=ended)
        if stray is None or (now_ns - stray.written_ns < _PATIENCE_NS and not ended):
            return None
        self._saves_in_place = self._saves_in_place or self._has_saved_since(stray)
        return None if self._saves_in_place else stray

    def _has_saved_since(self, stray: Stray) -> bool:
        """Return whether the program has also saved into its checkpoint directory."""
        for path, node in scan(self._context.checkpoints.path).files.items():
            since = self._began_ns if may_be_save(path) else stray.written_ns
            if node.version.mtime_ns > since and not is_named_log(path):
                return True
        return False

    def _check_checkpoints(self, ended: bool) -> None:
        """Set the notice only once and at the end, because users are notified of each new text."""
        files = self._context.checkpoints.unstored()
        if files and (ended or not self._not_stored):
            why = _why_not(self._context.container)
            what = "file that it wrote is" if len(files) == 1 else "files that it wrote are"
            names = f"{contract.ENV_CHECKPOINT_DIR}: {some(files, _NAMED)}"
            self._not_stored = one_line(f"{len(files)} {what} not stored ({names}), because {why}")

    def _count(self, problem: str) -> int:
        checkpoints = self._context.checkpoints
        files = len(checkpoints.unstored()) if problem or not self._stores else 0
        if not self._is_leader:  # only the model of rank 0 is stored
            files += sum(len(scan(each.model).files) for each in self._context.workspaces)
        return files + checkpoints.left_out_count


def _stray_notice(stray: Stray) -> str:
    return one_line(
        f"the program saves checkpoints in its working directory ({stray.path}), which is not stored: another "
        f"container or a retry does not have them. To keep them, {save_remedy(stray.path)}"
    )


def _why_not(container: ExecutorContainer) -> str:
    scope = container.job.checkpoint.mirror
    if not container.description.chain_dir:
        return "this job stores no checkpoints"
    if scope is MirrorScope.OFF:
        return f"checkpoint.mirror is off. Set it to auto, or write to {contract.ENV_CHECKPOINT_URI}"
    if container.role in (Role.CHIEF, Role.WORKER):
        return f"checkpoint.mirror is {scope.value}. If the files of all ranks are needed, set it to auto"
    return f"tasks with the role {container.role.value} do not contribute to checkpoints. Save in a chief or worker"
