"""The executor's start in its container, and the exit code that its end becomes."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
from pathlib import Path
from typing import NoReturn, Optional

from tony_provider.runtime import exit_codes, own_log
from tony_provider.runtime.application_store import open_application_store
from tony_provider.runtime.container_inputs import ContainerError
from tony_provider.runtime.executor.checkpoint_directory import CheckpointDirectory
from tony_provider.runtime.executor.checkpoint_link import CheckpointLink
from tony_provider.runtime.executor.executor import Executor
from tony_provider.runtime.executor.executor_container import ExecutorContainer
from tony_provider.runtime.executor.executor_context import ExecutorContext
from tony_provider.runtime.executor.gpus.dealt_gpus import DealtGpus
from tony_provider.runtime.executor.hadoop_access.hadoop_access import HadoopAccess
from tony_provider.runtime.executor.job_files import JobFiles
from tony_provider.runtime.executor.output import Output
from tony_provider.runtime.executor.ports import HeldPorts, PortError
from tony_provider.runtime.executor.processes import become_subreaper
from tony_provider.runtime.executor.shared_checkpoints import SharedCheckpoints
from tony_provider.runtime.executor.workspace import Workspace
from tony_provider.runtime.frameworks import get_framework
from tony_provider.runtime.frameworks.base import port_of_process
from tony_provider.runtime.frameworks.task_environment import VISIBLE_DEVICES
from tony_provider.runtime.storage import StorageError
from tony_provider.runtime.task_identity import IdentityError

log = logging.getLogger(__name__)


def main(guard: Optional[socket.socket] = None) -> NoReturn:
    """Run the executor of this container. Ends the process. ``guard``: see ``guard.post``."""
    gc.freeze()  # see launch/start.py
    gc.enable()
    own_log.configure()
    try:
        code = asyncio.new_event_loop().run_until_complete(_run(guard))
    except Exception:
        log.exception("a fault of the executor itself")
        code = exit_codes.INTERNAL
    # Not the ordinary way out: that would wait for transfers which may hang until their deadlines.
    logging.shutdown()
    os._exit(code)


async def _run(guard: Optional[socket.socket]) -> int:
    try:
        container = ExecutorContainer.of_process(os.environ, Path.cwd())
        context = _context(container, guard)
        executor = Executor(container, context)
    except (ContainerError, PortError, IdentityError, LookupError, StorageError, OSError, ValueError) as error:
        log.error("the executor cannot start: %s", error)  # noqa: TRY400 - the message says it all
        return exit_codes.BAD_CONTAINER
    try:
        return await executor.run()
    finally:
        context.close()


def _context(container: ExecutorContainer, guard: Optional[socket.socket]) -> ExecutorContext:
    become_subreaper()
    shared = container.description.shared_checkpoints
    workspace = Workspace(container.directory, shared=Path(shared) if shared else None)
    workspace.prepare()
    if container.shows_tensorboard:
        workspace.prepare_tensorboard()
    framework = get_framework(container.job.framework)
    storage = open_application_store(container.description, container.secrets)
    return ExecutorContext(
        container=container,
        workspace=workspace,
        ports=HeldPorts(
            [
                port_of_process(name, local_rank)
                for local_rank in range(container.process_count)
                for name in framework.ports(container.task_type, container.role)
            ],
            container.job.port_range,
            share=framework.shares_ports(container.role),
        ),
        output=Output.of(container.log_dir, workspace.root, container.job.logs.max_size, container.process_count),
        storage=storage,
        checkpoints=CheckpointDirectory(container, workspace, storage),
        checkpoint_link=CheckpointLink(container.description, container.identity.task, workspace.checkpoints, guard),
        files=JobFiles.of(container),
        hadoop=HadoopAccess(container, workspace.hadoop) if container.job.hadoop else None,
        shared=SharedCheckpoints(Path(shared), container.description.application_id, guard) if shared else None,
        gpus=_gpus(container, guard),
    )


def _gpus(container: ExecutorContainer, guard: Optional[socket.socket]) -> Optional[DealtGpus]:
    """None: they are not dealt, or the job chooses them itself."""
    dealing = container.description.gpu_dealing
    if dealing is None or VISIBLE_DEVICES in {**container.job.env, **container.spec.env}:
        return None
    return DealtGpus(dealing, container.spec.gpus, container.environ, guard)
