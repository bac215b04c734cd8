"""What the starts of one container's user process share."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Optional

import attrs

from tony_provider.runtime.executor.checkpoint_directory import CheckpointDirectory
from tony_provider.runtime.executor.checkpoint_link import CheckpointLink
from tony_provider.runtime.executor.executor_container import ExecutorContainer
from tony_provider.runtime.executor.gpus.dealt_gpus import DealtGpus
from tony_provider.runtime.executor.hadoop_access.hadoop_access import HadoopAccess
from tony_provider.runtime.executor.job_files import JobFiles
from tony_provider.runtime.executor.output import Output
from tony_provider.runtime.executor.ports import HeldPorts
from tony_provider.runtime.executor.shared_checkpoints import SharedCheckpoints
from tony_provider.runtime.executor.workspace import Workspace
from tony_provider.runtime.storage import Storage


@attrs.define(eq=False)
class ExecutorContext:
    """The parts of an executor that all starts of its user process use."""

    container: ExecutorContainer
    workspace: Workspace
    ports: HeldPorts
    output: Output
    storage: Storage
    checkpoints: CheckpointDirectory
    checkpoint_link: CheckpointLink
    files: JobFiles
    hadoop: Optional[HadoopAccess] = None  # None: user processes get none
    shared: Optional[SharedCheckpoints] = None  # None: the checkpoint directory is the container's own
    gpus: Optional[DealtGpus] = None  # None: user processes see those that the node shows
    # One thread: what was given up and hangs must be over before something else is put into the same directories.
    preparing: ThreadPoolExecutor = attrs.field(factory=lambda: ThreadPoolExecutor(1, "prepare"))

    @property
    def workspaces(self) -> list[Workspace]:
        """The workspace as each user process has it, by local rank."""
        return [self.workspace.of_process(local_rank) for local_rank in range(self.container.process_count)]

    def close(self) -> None:
        """Give back what the container holds."""
        self.checkpoint_link.close()
        if self.shared is not None:
            self.shared.close()
        self.ports.close()
        self.output.close()
        self.storage.close()
