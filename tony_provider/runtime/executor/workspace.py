"""The workspace: one directory in a container's, for what is ours and the user process's own places."""

from __future__ import annotations

import os
import pkgutil
import shutil
from pathlib import Path
from typing import Optional

import attrs

from tony_provider.runtime import contract
from tony_provider.runtime.contract import WORK_DIR

# A Unix socket's path may have 107 bytes, and Ray's own names take 68 of them; multiprocessing's are shorter.
_LONGEST_TMPDIR = 38
_SDK = (
    "tony_sdk.py",
    "tony_inputs.py",
    "tony_records.py",
    "tony_datasets.py",
    "tony_track.py",
    "tony_progress.py",
    "tony_stop.py",
    "tony_saves.py",
    "tony_keras.py",
    "tony_lightning.py",
    "tony_transformers.py",
    "tony_call.py",
    "sitecustomize.py",
    "tony_jax.py",
    "tony_xgboost.py",
    "tony_horovod.py",
    "tony_mpi.py",
    "tony_frames.py",
    "tony_wait.py",
)
_NOTEBOOK = (
    "__init__.py",
    "__main__.py",
    "activity.py",
    "archive.py",
    "jupyter.py",
    "kept_work.py",
    "options.py",
    "serving.py",
    "words.py",
    "work_files.py",
)


@attrs.frozen
class Workspace:
    """The paths of one container's workspace, as one of its user processes has them, and how they are prepared.

    Where a container runs several, they share some places and have some of their own: in ``own``.
    """

    container: Path  # the working directory of the container
    local_rank: int = 0  # of the process
    shared: Optional[Path] = None  # the directory of the checkpoints of all tasks; None: each task has its own

    def of_process(self, local_rank: int) -> Workspace:
        """This workspace as another process of the container has it."""
        return attrs.evolve(self, local_rank=local_rank)

    @property
    def root(self) -> Path:
        return self.container / WORK_DIR

    @property
    def own(self) -> Path:
        """The directory for what no other process of the container has."""
        return self.root / f"process-{self.local_rank}" if self.local_rank else self.root

    @property
    def files(self) -> Path:
        """The directory for the files that tell the process of the cluster."""
        return self.own if self.local_rank else self.container

    @property
    def python(self) -> Path:
        """The directory for the virtual environment that is made of a PEX, of wheels, or of packages."""
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
        """The directory for what was last moved out of the checkpoint directory."""
        return (self.shared or self.root) / "set-aside"

    @property
    def snapshots(self) -> Path:
        """The directory for checkpoints that are being copied, and the last one that was."""
        return (self.shared or self.root) / "snapshots"

    @property
    def warm_start(self) -> Path:
        """The model to start from; there once it has been copied, if the application has one."""
        return self.root / "warm-start"

    @property
    def checkpoint_request(self) -> Path:
        """The file that is there when a checkpoint is wanted."""
        return self.own / "checkpoint-request"

    @property
    def exports(self) -> Path:
        """The directory for exports of the model on its way."""
        return self.own / "exports"

    @property
    def export_request(self) -> Path:
        """The file that is there when an export is wanted."""
        return self.own / "export-request"

    @property
    def metrics_file(self) -> Path:
        return self.own / "metrics.jsonl"

    @property
    def result_file(self) -> Path:
        """The file for what the user process returns, if anything."""
        return self.own / "result.json"

    @property
    def tensorboard(self) -> Path:
        """The directory for event files: of this user process, or for TensorBoard those of all tasks.

        Below that of local rank 0, which is copied with all that is below it: to TensorBoard a run of its own.
        """
        shared = self.root / "tensorboard"
        return shared / f"process-{self.local_rank}" if self.local_rank else shared

    @property
    def hadoop(self) -> Path:
        """The directory for what the user process finds of Hadoop; there in jobs that ask for it."""
        return self.root / "hadoop"

    @property
    def inputs(self) -> Path:
        """The directory for this task's parts of inputs."""
        return self.root / "inputs"

    @property
    def outputs(self) -> Path:
        """The directory for those of this task's outputs."""
        return self.root / "outputs"

    @property
    def sdk(self) -> Path:
        """The directory that user processes import from: ``tony_sdk``, and modules that act by themselves.

        One prepares Python to show its stacks, one calls a decorated function, others help a framework.
        """
        return self.root / "sdk"

    @property
    def tmpdir(self) -> str:
        """A path of the temporary directory that is short enough to hold Unix sockets.

        YARN's directories are deeper than that, and then multiprocessing in the user process would fail. So it goes
        through this process, which outlives the user process and has the container as its working directory.
        """
        path = str(self.root / "tmp")
        if len(path.encode()) <= _LONGEST_TMPDIR:
            return path
        return f"/proc/{os.getpid()}/cwd/{WORK_DIR}/tmp"  # noqa: S108 - inside the container

    def prepare(self) -> None:
        """Make the directories, once for the container. Blocks; raises OSError."""
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
        """Make what the container of the job's TensorBoard needs, once. Blocks; raises OSError."""
        program = self.container / contract.TENSORBOARD_PROGRAM
        _unpack("tony_provider.runtime.event_files", program.name, program)

    def renew(self) -> None:
        """Make the places of one process new before it starts.

        What a former one was asked, reported, left and returned is not this one's.
        """
        for directory in (self.own, self.tensorboard):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for directory in (self.model, self.exports):
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(mode=0o700, exist_ok=True)
        self.metrics_file.unlink(missing_ok=True)
        self.result_file.unlink(missing_ok=True)
        self.checkpoint_request.unlink(missing_ok=True)
        self.export_request.unlink(missing_ok=True)

    def request_checkpoint(self, reason: str) -> None:
        """Ask the user process for a checkpoint, until it takes note or the next one starts. Blocks; raises OSError."""
        self.checkpoint_request.write_text(reason + "\n")

    def request_export(self, reason: str) -> None:
        """Ask the user process for an export, until it takes note or the next one starts. Blocks; raises OSError."""
        self.export_request.write_text(reason + "\n")


def _unpack(package: str, name: str, path: Path) -> None:
    source = pkgutil.get_data(package, name)
    assert source is not None  # noqa: S101 - it lies beside us in the archive
    path.write_bytes(source)
