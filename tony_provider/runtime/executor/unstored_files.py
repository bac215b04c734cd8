"""Find files that a running program saves in places that are not stored.

These are saves in the working directory, and files in the checkpoint directory of a task that takes no part in
checkpoints.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Optional

from tony_provider.runtime import contract
from tony_provider.runtime.artifacts.tree import scan
from tony_provider.runtime.checkpoint.consistency import is_named_log
from tony_provider.runtime.checkpoint.save_remedies import remedy
from tony_provider.runtime.checkpoint.stray_saves import Stray, StraySaves, may_be_save
from tony_provider.runtime.deadline import within
from tony_provider.runtime.executor import processes
from tony_provider.runtime.executor.executor_container import ExecutorContainer
from tony_provider.runtime.executor.executor_context import ExecutorContext
from tony_provider.runtime.executor.working_directory import WorkingDirectories
from tony_provider.runtime.quantities import some
from tony_provider.runtime.spec.model import MirrorScope, Role
from tony_provider.runtime.text import one_line

log = logging.getLogger(__name__)

_INTERVAL = 5.0  # seconds between two checks
_CHECK_SHARE = 20  # checks take at most a twentieth of the time
_LAST_CHECK = 5.0  # seconds for the check after the processes have ended
_PATIENCE_NS = 20 * 10**9  # the program may be about to copy its save into the checkpoint directory
_CLOCK_TICK_NS = 20 * 10**6  # times of files may lag behind the clock by this
_NAMED = 3  # number of files that a notice names


class UnstoredFiles:
    """Watches one start of the user processes. Call ``start``, ``finish`` and ``close`` once.

    If the program also saves into its checkpoint directory, its saves in the working directory are not reported. A
    checkpoint there counts at any time, and any other file after the first save in the working directory.
    """

    def __init__(self, context: ExecutorContext, *, stores: bool, leads: bool) -> None:
        """``stores``: the mirror stores this task's checkpoints. ``leads``: this task has rank 0."""
        self.notices: Sequence[str] = ()
        self._context = context
        self._stores = stores or context.container.job.checkpoint.shared  # rank 0 stores a shared directory
        self._leads = leads
        self._strays = StraySaves()
        self._saves_in_place = False  # the program also saves into its checkpoint directory
        self._began_ns = 0  # epoch
        self._directories: Optional[WorkingDirectories] = None
        self._not_stored = ""  # notice about the checkpoint directory of a task that takes no part
        self._work: Optional[asyncio.Future[None]] = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="unstored")

    def start(self) -> None:
        """Start to watch, right before the processes start."""
        workspace = self._context.workspace
        without = (workspace.root, self._context.checkpoints.path)
        self._began_ns = time.time_ns() - _CLOCK_TICK_NS
        self._directories = WorkingDirectories(workspace.container, without, self._began_ns)
        self._work = asyncio.ensure_future(self._watch())

    async def finish(self, problem: str) -> Optional[int]:
        """Check a last time. Return the number of files of the processes that are not stored, or None if it is unknown.

        ``problem``: the reason if the newest checkpoint of this task is not stored, otherwise empty.
        """
        if self._work is None:
            return 0  # no process ever ran
        self._work.cancel()
        await asyncio.gather(self._work, return_exceptions=True)
        loop = asyncio.get_running_loop()
        try:
            await within(loop.run_in_executor(self._pool, self._check, True), _LAST_CHECK)
            return await within(loop.run_in_executor(self._pool, self._count, problem), _LAST_CHECK)
        except (OSError, asyncio.TimeoutError) as error:
            log.warning("the files that are not stored cannot be counted: %s", str(error) or type(error).__name__)
        except Exception:  # a bug in this check must not change the result of the training
            log.exception("internal error in the search for files that are not stored")
        return None

    async def close(self) -> None:
        """Cancel all operations in progress."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)
        self._pool.shutdown(wait=False)

    async def _watch(self) -> None:
        pause = _INTERVAL
        while True:
            await asyncio.sleep(pause)
            began = time.monotonic()
            try:
                await asyncio.get_running_loop().run_in_executor(self._pool, self._check, False)
            except OSError as error:
                log.warning("files that are not stored cannot be found: %s", error)
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
        stray = self._strays.observe(self._directories.look(pids), now_ns, ended=ended)
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
        """Make the notice once, and again after the processes have ended, because users see each text."""
        files = self._context.checkpoints.unstored()
        if files and (ended or not self._not_stored):
            why = _why_not(self._context.container)
            what = "file that it wrote is" if len(files) == 1 else "files that it wrote are"
            names = f"{contract.ENV_CHECKPOINT_DIR}: {some(files, _NAMED)}"
            self._not_stored = one_line(f"{len(files)} {what} not stored ({names}), because {why}")

    def _count(self, problem: str) -> int:
        checkpoints = self._context.checkpoints
        files = len(checkpoints.unstored()) if problem or not self._stores else 0
        if not self._leads:  # only the model of rank 0 is stored
            files += sum(len(scan(each.model).files) for each in self._context.workspaces)
        return files + checkpoints.left_out_count


def _stray_notice(stray: Stray) -> str:
    return one_line(
        f"it saves checkpoints in its working directory ({stray.path}), which is not stored: another "
        f"container or a retry does not have them. To keep them, {remedy(stray.path)}"
    )


def _why_not(container: ExecutorContainer) -> str:
    scope = container.job.checkpoint.mirror
    if not container.description.chain_dir:
        return "this job stores no checkpoints"
    if scope is MirrorScope.OFF:
        return f"checkpoint.mirror is off. Set it to auto, or write to {contract.ENV_CHECKPOINT_URI}"
    if container.role in (Role.CHIEF, Role.WORKER):
        return f"checkpoint.mirror is {scope.value}. If the files of all ranks are needed, set it to auto"
    return f"tasks with the role {container.role.value} take no part in checkpoints. Save in a chief or worker"
