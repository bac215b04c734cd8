"""Checkpoint paths that are the same in each container of a task, and a checkpoint directory that all tasks share.

Libraries write absolute paths into their checkpoints, and each container has its own directory. So user processes get
the directory ``checkpoints`` of ``tony-USER/TASK-HASH/work`` below ``_TOP``, in which ``work`` is a symbolic link.
``checkpoints`` is not a link, because some programs do not follow links in their arguments. Only one container at a
time uses a link: it locks the link's directory until all processes of the container have ended.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Optional

import attrs

from tony_provider.runtime.application import ApplicationDescription
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.codec import CodecError, dump_json, load_json
from tony_provider.runtime.common.concurrency import Cancelled
from tony_provider.runtime.common.files import UnsafeDirectoryError, make_own_directory, remove_tree
from tony_provider.runtime.executor import processes
from tony_provider.runtime.executor.checkpoint_directory import Resumed
from tony_provider.runtime.storage import uris

log = logging.getLogger(__name__)

_TOP = "/tmp"  # noqa: S108 - the same on all nodes, independent of TMPDIR; the directories made there are checked
_LINK = "work"
_WAIT = 30.0  # seconds for the processes of a former container of the task to end


class CheckpointLink:
    """The link of one container to its checkpoint directory. ``path`` creates the link, ``close`` removes it.

    If the container is killed, the user's next task on the node removes the link.
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
        """Name the link for a task.

        ``directory``: the checkpoint directory. ``guarded``: the socket of ``processes.start_guard``. ``wait`` in
        seconds.
        """
        # The parent of an application's directory belongs to the training, so it is the same for all attempts.
        training = uris.parent(description.application_dir)
        digest = hashlib.sha256("\0".join((description.user, training, task)).encode()).hexdigest()
        self._all = top / f"tony-{description.user}"
        self._own = self._all / f"{contract.path_of_task(task)}-{digest[:16]}"
        self._directory = directory
        self._guarded = guarded
        self._wait = wait
        self.problem = ""  # reason why ``path`` does not use a link, or empty
        self._held: Optional[int] = None  # descriptor of the locked directory

    def path(self, cancelled: threading.Event) -> Path:
        """Return the path for the task's processes. Without a link, it is the directory's own path.

        Blocks. Raises Cancelled.
        """
        try:
            if self._held is None:
                make_own_directory(self._all)
                self._remove_left()
                self._held = self._lock_own(cancelled)
                processes.hold_with_guard(self._guarded, [self._held])
            link = self._own / _LINK
            if not link.is_symlink() or link.readlink() != self._directory.parent:
                link.unlink(missing_ok=True)
                link.symlink_to(self._directory.parent)
        except (OSError, UnsafeDirectoryError) as error:
            self.problem = (
                f"cannot create the link for TONY_CHECKPOINT_DIR: {error}. The path will differ in the next container, "
                "so absolute paths in checkpoints will not exist there"
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
        for _ in _polls(self._wait, cancelled):
            self._own.mkdir(mode=0o700, exist_ok=True)
            held = _lock(self._own)
            if held is not None:
                return held
        raise OSError(f"a former container of the task still runs and uses {self._own}")

    def _remove_left(self) -> None:
        """Remove the links of containers that were killed."""
        for directory in self._all.iterdir():
            held = _lock(directory)
            if held is not None:
                remove_tree(directory)
                os.close(held)


def _lock(directory: Path) -> Optional[int]:
    """Lock a link's directory. Return None if another container has locked or removed it. Raises OSError."""
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


_SNAPSHOTS = "snapshots"  # files that the leader is uploading
_USERS = "applications"  # lock files of applications whose tasks use the directory
_READY = "ready.json"  # describes the leader's last restore
_FINISHED = "finished"  # exists once the leader has succeeded and its last snapshot is stored
_POLL = 0.3  # seconds between two attempts
_FORMER_TIMEOUT = 180.0  # seconds for the tasks of a former attempt to end
_LEADER_TIMEOUT = 600.0  # seconds for the leader to restore the directory


@attrs.frozen
class _Ready:
    """The generation for which the directory was restored, and the checkpoint from which processes resume."""

    application_id: str
    generation: int
    resumed: Optional[Resumed]


class SharedCheckpoints:
    """A task's use of the checkpoint directory that all tasks share. All methods block."""

    def __init__(
        self,
        directory: Path,
        application_id: str,
        guarded: Optional[socket.socket] = None,
        *,
        former_timeout: float = _FORMER_TIMEOUT,
        leader_timeout: float = _LEADER_TIMEOUT,
    ) -> None:
        """Prepare the use of the training's ``directory`` by a task of one application.

        ``guarded``: the socket of ``processes.start_guard``. Timeouts are in seconds.
        """
        self._directory = directory
        self._application_id = application_id
        self._guarded = guarded
        self._former_timeout = former_timeout
        self._leader_timeout = leader_timeout
        self._held: Optional[int] = None  # descriptor of the application's lock file

    def open(self) -> None:
        """Create the directory if it is missing, and record that this application uses it. Raises OSError."""
        if self._held is not None:
            return
        mount = self._directory.parent.parent
        if not mount.is_dir():
            raise FileNotFoundError(
                errno.ENOENT, "checkpoint.shared needs the connection's shared_dir mounted on each node", str(mount)
            )
        try:
            make_own_directory(self._directory / _USERS)
        except UnsafeDirectoryError as error:
            raise PermissionError(errno.EPERM, f"the shared checkpoint directory is not safe: {error}") from error
        (self._directory / "checkpoints").mkdir(mode=0o700, exist_ok=True)
        self._held = self._lock_file(self._application_id)
        fcntl.flock(self._held, fcntl.LOCK_SH | fcntl.LOCK_NB)
        processes.hold_with_guard(self._guarded, [self._held])

    def wait_for_former(self, cancelled: threading.Event) -> None:
        """Wait until no task of another application uses the directory. The leader calls this before it restores.

        Raises OSError, Cancelled.
        """
        for _ in _polls(self._former_timeout, cancelled):
            users = [name for name in os.listdir(self._directory / _USERS) if name != self._application_id]  # noqa: PTH208
            if all(self._is_gone(name) for name in users):
                (self._directory / _FINISHED).unlink(missing_ok=True)
                remove_tree(self._directory / _SNAPSHOTS)  # files of a leader that was killed
                (self._directory / _SNAPSHOTS).mkdir(mode=0o700)
                return
        raise OSError(
            f"tasks of a former attempt {', '.join(users)} still use {self._directory} after {self._former_timeout:g} s"
        )

    def ready(self, generation: int, resumed: Optional[Resumed]) -> None:
        """Record that the directory is restored for the processes of this generation. Raises OSError."""
        # Write in place, because other hosts may cache for a minute which file has this name.
        (self._directory / _READY).write_bytes(dump_json(_Ready(self._application_id, generation, resumed)))

    def wait_ready(self, generation: int, cancelled: threading.Event) -> Optional[Resumed]:
        """Wait until the leader has called ``ready``. Return the checkpoint that the processes resume from.

        Raises OSError, Cancelled.
        """
        for _ in _polls(self._leader_timeout, cancelled):
            os.listdir(self._directory)  # noqa: PTH208 - makes NFS compare its cache of the directory with the server
            try:
                found = load_json((self._directory / _READY).read_bytes(), _Ready)
            except (FileNotFoundError, CodecError):
                continue
            if (found.application_id, found.generation) == (self._application_id, generation):
                return found.resumed
        raise OSError(
            f"the leading task has not restored {self._directory} within {self._leader_timeout:g} s. Check that the "
            "connection's shared_dir is the same directory on all nodes"
        )

    def finished(self) -> None:
        """Record that the last task to end may remove the directory. Raises OSError."""
        (self._directory / _FINISHED).touch()

    def close(self) -> None:
        """Stop using the directory. The last task of a successful application removes it."""
        if self._held is None:
            return
        fcntl.flock(self._held, fcntl.LOCK_UN)  # unlock explicitly, because the guard has a copy of the descriptor
        os.close(self._held)
        self._held = None
        if (self._directory / _FINISHED).exists() and self._is_gone(self._application_id):
            remove_tree(self._directory)

    def _is_gone(self, application_id: str) -> bool:
        """Return whether no task holds an application's lock file. If so, remove the file."""
        file = self._lock_file(application_id)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            (self._directory / _USERS / application_id).unlink(missing_ok=True)
        except BlockingIOError:
            return False
        finally:
            os.close(file)
        return True

    def _lock_file(self, application_id: str) -> int:
        path = self._directory / _USERS / application_id
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _polls(seconds: float, cancelled: threading.Event) -> Iterator[None]:
    """Yield at least once, then periodically for ``seconds``. Raises Cancelled."""
    deadline = time.monotonic() + seconds
    while True:
        yield
        if time.monotonic() >= deadline:
            return
        if cancelled.wait(_POLL):
            raise Cancelled("stopped during the wait for a checkpoint directory that another container uses")
