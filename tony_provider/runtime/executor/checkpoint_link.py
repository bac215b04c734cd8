"""The path by which a task's processes find their checkpoint directory: the same in each container of the task.

Libraries write absolute paths into their checkpoints, and each container has its own directory. So the path leads
through a private symbolic link, ``work`` in ``tony-USER/TASK-HASH``, to ``checkpoints`` below it. That is not a link,
because some programs do not follow links in their arguments. One container at a time has a link: it locks the link's
directory until all of its processes have ended.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import socket
import threading
import time
from pathlib import Path
from typing import Optional

from tony_provider.runtime import contract
from tony_provider.runtime.application import ApplicationDescription
from tony_provider.runtime.cancellation import Cancelled
from tony_provider.runtime.executor import guard
from tony_provider.runtime.local.trees import remove_tree
from tony_provider.runtime.own_directory import ForeignDirectoryError, make_own_directory
from tony_provider.runtime.storage import uris

log = logging.getLogger(__name__)

_TOP = "/tmp"  # noqa: S108 - the same on all nodes, independent of TMPDIR; the directories made there are checked
_LINK = "work"
_WAIT = 30.0  # seconds for the processes of a former container of the task to end
_POLL = 0.2  # seconds


class CheckpointLink:
    """The link of one container to its checkpoint directory. ``path`` creates it, ``close`` removes it.

    The next task of the user on the node removes the link of a killed container.
    """

    def __init__(
        self,
        description: ApplicationDescription,
        task: str,
        directory: Path,
        guarded: Optional[socket.socket] = None,
        *,
        top: Path = Path(_TOP),
        wait: float = _WAIT,
    ) -> None:
        """``directory``: the checkpoint directory. ``guarded``: see ``guard.post``. ``wait`` in seconds."""
        # An application's directory is below that of its training, which is the same in all tries.
        training = uris.parent(description.application_dir)
        digest = hashlib.sha256("\0".join((description.user, training, task)).encode()).hexdigest()
        self._all = top / f"tony-{description.user}"
        self._own = self._all / f"{contract.path_of_task(task)}-{digest[:16]}"
        self._directory = directory
        self._guarded = guarded
        self._wait = wait
        self.problem = ""  # the reason if ``path`` does not use a link
        self._held: Optional[int] = None  # descriptor of the locked directory

    def path(self, cancelled: threading.Event) -> Path:
        """Return the path for the task's processes. If no link is possible, it is the directory's own path.

        Blocks. Raises Cancelled.
        """
        try:
            if self._held is None:
                make_own_directory(self._all)
                self._remove_left()
                self._held = self._lock_own(cancelled)
                guard.keep_open(self._guarded, [self._held])
            link = self._own / _LINK
            if not link.is_symlink() or link.readlink() != self._directory.parent:
                link.unlink(missing_ok=True)
                link.symlink_to(self._directory.parent)
        except (OSError, ForeignDirectoryError) as error:
            self.problem = (
                f"TONY_CHECKPOINT_DIR will have another path in the next container, because no link to it is possible: "
                f"{error}. Absolute paths that libraries write into checkpoints will not exist there"
            )
            log.warning("%s", self.problem)
            return self._directory
        self.problem = ""
        return link / self._directory.name

    def close(self) -> None:
        """Remove the link."""
        if self._held is not None:
            remove_tree(self._own)
            os.close(self._held)
            self._held = None

    def _lock_own(self, cancelled: threading.Event) -> int:
        deadline = time.monotonic() + self._wait
        while True:
            self._own.mkdir(mode=0o700, exist_ok=True)
            held = _lock(self._own)
            if held is not None:
                return held
            if time.monotonic() >= deadline:
                raise OSError(f"a former container of the task has not ended, and holds {self._own}")
            if cancelled.wait(_POLL):
                raise Cancelled("stopped during the wait for a former container of the task")

    def _remove_left(self) -> None:
        """Remove the links of containers that were killed."""
        for directory in self._all.iterdir():
            held = _lock(directory)
            if held is not None:
                remove_tree(directory)
                os.close(held)


def _lock(directory: Path) -> Optional[int]:
    """Lock a link's directory. Return None if a container has it, or if it was removed meanwhile. Raises OSError."""
    try:
        held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(held), directory.lstat()):
            return held
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(held)
    return None
