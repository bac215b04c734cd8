"""Files of one container: the workspace, the job's files, and the free space on the disk."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import pkgutil
import shutil
import threading
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Optional

import attrs

from tony_provider.runtime.application import LocalizedResource, ResourceKind
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.archives import unpack_once
from tony_provider.runtime.common.concurrency import Cancelled
from tony_provider.runtime.common.contract import WORK_DIR
from tony_provider.runtime.common.files import remove_tree, sha256_of
from tony_provider.runtime.common.quantities import size
from tony_provider.runtime.executor.executor_container import ExecutorContainer
from tony_provider.runtime.launch.launch_context import generated_names

log = logging.getLogger(__name__)


_LEAST = 1 << 20  # bytes; a disk with less free space counts as full
# Share of a disk that logs leave free. If a disk is 90 % full, a NodeManager treats it, and then the node, as broken.
_RESERVE = 0.15
_LARGEST_RESERVE = 1 << 30  # bytes


def disk_problem(directory: Path) -> Optional[str]:
    """Return the reason if a disk accepts no more data. Otherwise, or if unknown, return None. Blocks briefly."""
    try:
        status = os.statvfs(directory)
    except OSError:
        return None
    free = status.f_bavail * status.f_frsize
    if free < _LEAST:
        return f"the disk of its container is full ({free} bytes left below {directory})"
    if status.f_flag & os.ST_RDONLY:
        return f"the disk of its container is read-only (below {directory})"
    if status.f_files and not status.f_favail:
        return f"the disk of its container has no room for more files (below {directory})"
    return None


def save_space_warning(directory: Path, save: int) -> str:
    """Return a warning if a disk has too little space for another save of ``save`` bytes, otherwise an empty text.

    Blocks briefly.
    """
    try:
        free = shutil.disk_usage(directory).free
    except OSError:
        return ""  # the free space is unknown
    if free >= save:
        return ""
    return (
        f"the disk of its container has {size(free)} left, and its largest save so far has {size(save)}: have the "
        "program delete old saves, or run the job on nodes with larger disks"
    )


def disk_reserve_problem(directory: Path, wanted: int) -> Optional[str]:
    """Return the reason if logs may not take ``wanted`` more bytes of this disk.

    Return None if they may, or if the free space is unknown. Blocks briefly.
    """
    try:
        disk = shutil.disk_usage(directory)
    except OSError:
        return None
    if disk.free - wanted >= min(disk.total * _RESERVE, _LARGEST_RESERVE):
        return None
    return f"the disk of {directory} is nearly full ({size(disk.free)} of {size(disk.total)} left)"


# The path of a Unix socket may have 107 bytes. Ray's names take 68 of them, and those of multiprocessing fewer.
_LONGEST_TMPDIR = 38
_SDK = (
    "tony_sdk.py",
    "tony_inputs.py",
    "tony_records.py",
    "tony_progress.py",
    "tony_callbacks.py",
    "tony_call.py",
    "sitecustomize.py",
    "tony_jax.py",
    "tony_xgboost.py",
    "tony_horovod.py",
    "tony_mpi.py",
    "tony_wait.py",
)
_NOTEBOOK = (
    "__init__.py",
    "__main__.py",
    "jupyter.py",
    "kept_work.py",
    "serving.py",
)


@attrs.frozen
class Workspace:
    """Paths in a container's workspace for one user process, and methods that create the files and directories there.

    Several processes of a container share some paths. Paths in ``own`` belong to one process.
    """

    container: Path  # the working directory of the container
    local_rank: int = 0  # local rank of the process
    shared: Optional[Path] = None  # directory for the checkpoints of all tasks, or None if each task has its own

    def of_process(self, local_rank: int) -> Workspace:
        """Return the workspace for another process of the container."""
        return attrs.evolve(self, local_rank=local_rank)

    @property
    def root(self) -> Path:
        return self.container / WORK_DIR

    @property
    def own(self) -> Path:
        """The directory for files that belong to this process only."""
        return self.root / f"process-{self.local_rank}" if self.local_rank else self.root

    @property
    def files(self) -> Path:
        """The directory for files that describe the cluster to the process."""
        return self.own if self.local_rank else self.container

    @property
    def python(self) -> Path:
        """The directory for a virtual environment that is built from a PEX, wheels or packages."""
        return self.root / "python"

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def model(self) -> Path:
        return self.own / "model"

    @property
    def checkpoints(self) -> Path:
        return (self.shared or self.root) / "checkpoints"

    @property
    def set_aside(self) -> Path:
        """The directory for entries that were last moved out of the checkpoint directory."""
        return (self.shared or self.root) / "set-aside"

    @property
    def snapshots(self) -> Path:
        """The directory for checkpoints that are being copied, and for the last copied one."""
        return (self.shared or self.root) / "snapshots"

    @property
    def warm_start(self) -> Path:
        """The directory for the model of a warm start. It exists once the copy is complete."""
        return self.root / "warm-start"

    @property
    def debug(self) -> Path:
        """The directory for files that explain a failure of the user process."""
        return self.own / "debug"

    @property
    def checkpoint_request(self) -> Path:
        """The file that exists while a checkpoint is requested."""
        return self.own / "checkpoint-request"

    @property
    def exports(self) -> Path:
        """The directory for model exports that are not uploaded yet."""
        return self.own / "exports"

    @property
    def export_request(self) -> Path:
        """The file that exists while an export is requested."""
        return self.own / "export-request"

    @property
    def metrics_file(self) -> Path:
        return self.own / "metrics.jsonl"

    @property
    def result_file(self) -> Path:
        """The file for the optional return value of the user process."""
        return self.own / "result.json"

    @property
    def tensorboard(self) -> Path:
        """The directory for event files: those of this user process, or in TensorBoard's container those of all tasks.

        The directories of other processes are within the directory of local rank 0, which is copied as a whole.
        TensorBoard shows each directory as a separate run.
        """
        shared = self.root / "tensorboard"
        return shared / f"process-{self.local_rank}" if self.local_rank else shared

    @property
    def hadoop(self) -> Path:
        """The directory for Hadoop's files for the user process. It exists in jobs that request Hadoop."""
        return self.root / "hadoop"

    @property
    def inputs(self) -> Path:
        """The directory for lists and copies of the input shards of this task."""
        return self.root / "inputs"

    @property
    def outputs(self) -> Path:
        """The directory for this task's outputs."""
        return self.root / "outputs"

    @property
    def sdk(self) -> Path:
        """The directory that user processes import from: ``tony_sdk``, and modules that act by themselves.

        One module prepares Python to write its stacks, one calls a decorated function, and others help a framework.
        """
        return self.root / "sdk"

    @property
    def tmpdir(self) -> str:
        """A path of the temporary directory that is short enough for Unix sockets.

        YARN's paths are longer, so multiprocessing in the user process would fail. The short path leads through /proc
        to this process, which outlives the user process and has the container as its working directory.
        """
        path = str(self.root / "tmp")
        if len(path.encode()) <= _LONGEST_TMPDIR:
            return path
        return f"/proc/{os.getpid()}/cwd/{WORK_DIR}/tmp"  # noqa: S108 - inside the container

    def prepare(self) -> None:
        """Create the directories, once for the container. Blocks. Raises OSError."""
        own = [self.home, self.root / "tmp", self.sdk, self.tensorboard]
        if self.shared is None:
            own += [self.checkpoints, self.snapshots]
        for directory in (self.root, *own):
            directory.mkdir(mode=0o700, exist_ok=True)
        for name in _SDK:
            _unpack("tony_provider.runtime.sdk", name, self.sdk / name)
        notebook = self.sdk / contract.NOTEBOOK_MODULE
        notebook.mkdir(mode=0o700, exist_ok=True)
        for name in _NOTEBOOK:
            _unpack("tony_provider.runtime.notebook", name, notebook / name)

    def prepare_tensorboard(self) -> None:
        """Write the program that shows the job's TensorBoard, once. Blocks. Raises OSError."""
        program = self.container / contract.TENSORBOARD_PROGRAM
        _unpack("tony_provider.runtime.event_files", program.name, program)

    def reset(self) -> None:
        """Clear the files of one process before it starts.

        Removes the requests, metrics, result, model and debug files of a former process.
        """
        for directory in (self.own, self.tensorboard):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for directory in (self.model, self.exports, self.debug):
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(mode=0o700, exist_ok=True)
        for file in (self.metrics_file, self.result_file, self.checkpoint_request, self.export_request):
            file.unlink(missing_ok=True)

    def request_checkpoint(self, reason: str) -> None:
        """Request a checkpoint until the process handles it or the next process starts. Blocks. Raises OSError."""
        self.checkpoint_request.write_text(reason + "\n")

    def request_export(self, reason: str) -> None:
        """Request an export until the process handles it or the next process starts. Blocks. Raises OSError."""
        self.export_request.write_text(reason + "\n")


def _unpack(package: str, name: str, path: Path) -> None:
    source = pkgutil.get_data(package, name)
    assert source is not None  # noqa: S101 - it is in the same archive
    path.write_bytes(source)


_LAUNCH_SCRIPT = "launch_container.sh"
# NodeManagers may create these entries before the launch script.
_OF_NODE_MANAGER = ("container_tokens", "default_container_executor*.sh", "tmp", "yarn_provided.*", ".*.crc")


class ChangedFileError(Exception):
    """A file in the container does not have the content that was submitted."""


@attrs.define
class JobFiles:
    """Verifies, unpacks and links the job's files once, before the user's program runs for the first time.

    Containers of one application share unpacked archives on a node only if all task types get the same secrets.
    Otherwise a program without a secret could change files that a container with the secret runs later.
    """

    _directory: Path  # the container's directory
    _resources: Sequence[LocalizedResource]
    _sharing_key: Optional[bytes] = attrs.field(default=None, repr=False)  # None if no files are shared
    _done: bool = attrs.field(default=False, init=False)

    @classmethod
    def of(cls, container: ExecutorContainer) -> JobFiles:
        """Return the files of a container."""
        job, resources = container.job, container.description.resources_of(container.task_type)
        share = not any(job.secrets_withheld(task_type) for task_type in job.tasks)
        return cls(container.directory, resources, container.secrets.get(contract.SECRET_JOB_KEY) if share else None)

    def place(self, cancelled: threading.Event) -> None:
        """Verify, unpack and link each file. Blocks. Raises ChangedFileError, ArchiveError, Cancelled, OSError."""
        if self._done:
            return
        self._remove_earlier_files()
        names = generated_names(self._resources)
        for uri, name in names.items():
            same = [each for each in self._resources if each.uri == uri]
            self._verify(same[0], self._directory / name, cancelled)
            for resource in same:
                self._link(resource, self._directory / name, cancelled)
        self._done = True

    def _remove_earlier_files(self) -> None:
        """Remove what was in the container's directory before YARN started the container.

        The ctime of a file decides, because users can set its mtime but not its ctime.
        """
        made = [self._directory / name for name in (_LAUNCH_SCRIPT, contract.RUNTIME_FILE)]
        times = [path.lstat().st_ctime_ns for path in made if path.exists()]
        for path in self._directory.iterdir() if times else ():
            if path.lstat().st_ctime_ns >= min(times) or any(fnmatch(path.name, each) for each in _OF_NODE_MANAGER):
                continue
            log.warning("removing %s, which was in the container's directory before the container started", path.name)
            remove_tree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
            if path.exists():
                raise ChangedFileError(f"cannot remove {path.name}, which is older than the container")

    def _verify(self, resource: LocalizedResource, file: Path, cancelled: threading.Event) -> None:
        if cancelled.is_set():
            raise Cancelled("verifying the job's files was cancelled")
        if resource.sha256 is None:
            return
        with file.open("rb") as content:
            if sha256_of(content) != resource.sha256:
                copy = file.resolve()
                if "filecache" in copy.parts:  # the NodeManager then fetches the file again
                    copy.unlink(missing_ok=True)
                raise ChangedFileError(
                    f"{resource.name} differs from the submitted file: a program has changed {resource.uri} or this "
                    "node's copy after the submission. Programs of other jobs of the same user can do this. Submit the "
                    "job again: the submission replaces files that it has copied; build a changed environment again"
                )

    def _link(self, resource: LocalizedResource, file: Path, cancelled: threading.Event) -> None:
        target = self._directory / resource.name
        if resource.kind is ResourceKind.ARCHIVE:
            # The launcher has unpacked the environment if the node has no other Python.
            directory = self._directory / contract.RUNTIME_DIR / contract.PYTHON_ENV_DIR
            if resource.name != contract.PYTHON_ENV_DIR or not directory.is_dir():
                directory = self._unpacked(resource)
                unpack_once(file, directory, cancelled)
            file = directory
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(file.resolve())

    def _unpacked(self, resource: LocalizedResource) -> Path:
        """Return the directory for the content of an archive, which containers of the application may share.

        No program of another application can make a shared directory beforehand, because a key is part of its name.
        """
        content = f"{resource.uri} {resource.size} {resource.modified_ms}".encode()
        above = self._directory.parent
        if self._sharing_key is None or not os.access(above, os.W_OK):
            return self._directory / contract.RUNTIME_DIR / "unpacked" / hashlib.sha256(content).hexdigest()[:32]
        return above / contract.UNPACKED_DIR / hmac.new(self._sharing_key, content, hashlib.sha256).hexdigest()[:32]
