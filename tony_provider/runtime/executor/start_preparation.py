"""Preparation of a start: the job's files, GPUs, warm start, checkpoint, and the environment of each user process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Callable, Optional, TypeVar

import attrs

from tony_provider.runtime.checkpoint.catalog import fetch_warm_start
from tony_provider.runtime.checkpoint.stored_checkpoint import DamagedCheckpoint
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.archives import ArchiveError
from tony_provider.runtime.common.concurrency import retry_blocking
from tony_provider.runtime.executor.checkpoint_directory import Resumed
from tony_provider.runtime.executor.executor_container import ExecutorContainer, own_address
from tony_provider.runtime.executor.gpus import NoGpusError, own_instance
from tony_provider.runtime.executor.ports import PortError
from tony_provider.runtime.executor.start_context import ExecutorContext, StartOrder
from tony_provider.runtime.executor.user_environment import python_bin, user_environment
from tony_provider.runtime.executor.workspace import ChangedFileError, Workspace
from tony_provider.runtime.frameworks.base import VISIBLE_DEVICES, HelperProcess, get_framework, task_environment
from tony_provider.runtime.frameworks.task_type_rules import takes_gang_along
from tony_provider.runtime.jobspec.model import MirrorScope, Preflight, Role, in_cluster, saves_checkpoints
from tony_provider.runtime.storage import StorageError, StorageUnreachable

log = logging.getLogger(__name__)


T = TypeVar("T")

# Seconds to wait for an unreachable store. A restart or failover of a NameNode, which affects every container, usually
# takes less. After this time, this node may be the cause, so a container on another node is worth its cost.
_STORE_TIMEOUT = 300.0
_NOT_PLACED = "the job's files could not be put into the container"


class PreparationError(Exception):
    """The preparation of a start has failed. The message names the reason."""

    def __init__(self, reason: str, *, uri: str = "", damaged: bool = False, unfit: bool = False) -> None:
        super().__init__(reason)
        self.unfit = unfit  # a check of the node has failed
        self.uri = uri  # URI of the checkpoint; empty if the checkpoint is not the cause
        self.damaged = damaged  # the checkpoint itself is damaged, so another attempt would fail


@attrs.frozen
class ProcessLaunch:
    """The environment and command of one user process."""

    environ: dict[str, str]
    command: str  # for /bin/sh
    before: str = ""  # shell commands to run before ``command``
    rank: int = 0
    name: str = ""  # name of the process among several in the container, for messages
    helpers: tuple[HelperProcess, ...] = ()  # start with the process, in the environment of the process


@attrs.frozen
class PreparedStart:
    """The checkpoint and the launches of a start whose files are all in place."""

    resumed: Optional[Resumed]  # the checkpoint to resume from; None means from the beginning
    launches: tuple[ProcessLaunch, ...]  # by local rank


def prepare_start(context: ExecutorContext, order: StartOrder, cancelled: threading.Event) -> PreparedStart:
    """Prepare everything that the user processes need. Blocks.

    Raises PreparationError, Cancelled. Raises PythonEnvError, LookupError if another attempt would fail in the same
    way.
    """
    with _reported("", NoGpusError):
        gpus = context.gpus.environment(cancelled) if context.gpus else {}
    if order.preflight:
        _check(context, order, cancelled)
    with _reported("", ChangedFileError, ArchiveError), _reported(_NOT_PLACED, OSError):
        context.files.place(cancelled)
    with _reported("the warm start could not be copied", StorageError, DamagedCheckpoint, OSError):
        _fetch_warm_start(context, cancelled)
    if context.shared is None:  # the path of a shared directory is the same everywhere
        context.checkpoints.user_path = context.checkpoint_link.path(cancelled)
        if context.checkpoint_link.problem:
            context.output.note(context.checkpoint_link.problem)
    uri = order.resume.uri if order.resume else ""
    with _reported("the checkpoint directory could not be prepared", StorageError, OSError, uri=uri):
        try:
            resumed = wait_for_store(partial(_resume, context, order, cancelled), cancelled)
        except DamagedCheckpoint as error:
            raise PreparationError(str(error), uri=uri, damaged=True) from error
    with _reported("its files could not be written", OSError):  # a problem of this node, usually a full disk
        return _prepared(context, order, resumed, gpus, cancelled)


def _check(context: ExecutorContext, order: StartOrder, cancelled: threading.Event) -> None:
    """Check the node, and with ``Preflight.NETWORK`` also the network. Raises PreparationError, Cancelled."""
    from tony_provider.runtime.executor.preflight import Ring, UnfitNodeError, check_network, check_node

    try:
        check_node(context, cancelled)
        ring = Ring.of(context, order) if order.preflight is Preflight.NETWORK else None
        if ring is not None:
            check_network(ring, context.ports, cancelled)
    except UnfitNodeError as error:
        raise PreparationError(f"its node has failed the preflight: {error}", unfit=True) from error
    except (PortError, OSError) as error:
        raise PreparationError(f"the network could not be checked: {error}") from error


@contextmanager
def _reported(problem: str, *errors: type[Exception], uri: str = "") -> Iterator[None]:
    """Raise PreparationError with ``problem`` instead of these errors. ``uri``: see PreparationError."""
    try:
        yield
    except errors as error:
        raise PreparationError(f"{problem}: {error}" if problem else str(error), uri=uri) from error


def wait_for_store(work: Callable[[], T], cancelled: threading.Event) -> T:
    """Return the result of ``work``, and retry it while the store is unreachable. Blocks.

    Raises Cancelled and the errors of ``work``. Raises StorageUnreachable only after all retries.
    """

    def on_first_failure(error: StorageUnreachable) -> None:
        log.warning("waiting up to %g s for the store: %s", _STORE_TIMEOUT, error)

    return retry_blocking(work, _STORE_TIMEOUT, StorageUnreachable, on_first_failure, cancelled)


def _fetch_warm_start(context: ExecutorContext, cancelled: threading.Event) -> None:
    warm = context.container.description.warm_start
    if warm is not None:
        fetch = partial(fetch_warm_start, context.storage, warm, context.workspace.warm_start, cancelled)
        wait_for_store(fetch, cancelled)


def _resume(context: ExecutorContext, order: StartOrder, cancelled: threading.Event) -> Optional[Resumed]:
    rank = order.rank(context.container.task_type, context.container.index)
    shared = context.shared
    if shared is None:
        return _resume_own(context, order, rank, cancelled)
    shared.open()
    if rank is None:
        return None
    if rank > 0:
        resumed = shared.wait_ready(order.generation, cancelled)
        return resumed if _resumes(context) else None
    shared.wait_for_former(cancelled)
    resumed = _resume_own(context, order, rank, cancelled)
    shared.ready(order.generation, resumed)
    return resumed


def _resume_own(
    context: ExecutorContext, order: StartOrder, rank: Optional[int], cancelled: threading.Event
) -> Optional[Resumed]:
    """Keep, empty or restore the checkpoint directory, as ordered. Return the checkpoint to resume from, or None."""
    if order.keep_checkpoints:
        resumed = context.checkpoints.keep(rank, cancelled)
        return resumed if _resumes(context) else None
    if order.resume is None or not _resumes(context):
        context.checkpoints.empty()
        return None
    return context.checkpoints.restore(order.resume, rank, cancelled)


def _resumes(context: ExecutorContext) -> bool:
    """Return whether the task resumes. Parameter servers get their values from workers, and sidecars do not train."""
    role = context.container.role
    return role is Role.EVALUATOR or saves_checkpoints(role)


def _prepared(
    context: ExecutorContext,
    order: StartOrder,
    resumed: Optional[Resumed],
    gpus: Mapping[str, str],
    cancelled: threading.Event,
) -> PreparedStart:
    container = context.container
    own_bin = python_bin(container, context.workspace, cancelled)
    after = f", from {resumed.point.label}" if resumed else ""
    which = f", generation {order.generation}," if order.generation > 1 else ""
    context.output.note(f"{container.identity.task}{which} on {container.node_host}{after}")
    checkpoints = {contract.ENV_CHECKPOINT_DIR: str(context.checkpoints.user_path)}
    before = {**_hadoop(context), **_listening(container, order), **checkpoints}
    launches = tuple(
        _launch(context, workspace, order, resumed, own_bin, before, gpus) for workspace in context.workspaces
    )
    ranks = [int(each.environ.get(contract.ENV_RANK, 0)) for each in launches]
    world_size = int(launches[0].environ.get(contract.ENV_WORLD_SIZE, 1))
    context.checkpoints.begin(world_size, ranks, alone=_saves_alone(container, order))
    return PreparedStart(resumed, launches)


def _saves_alone(container: ExecutorContainer, order: StartOrder) -> bool:
    """Return whether no other task contributes files to the checkpoints of this task."""
    job, savers = container.job, [task for task in order.cluster.tasks if saves_checkpoints(task.role)]
    scope = container.spec.restart or get_framework(job.framework).scope(container.role)
    is_independent = not takes_gang_along(job, container.role, scope)
    return len(savers) <= 1 or is_independent or job.checkpoint.stored is MirrorScope.LEADER


def _launch(
    context: ExecutorContext,
    workspace: Workspace,
    order: StartOrder,
    resumed: Optional[Resumed],
    own_bin: Path,
    before: Mapping[str, str],
    after: Mapping[str, str],
) -> ProcessLaunch:
    """Return the launch of one process.

    ``before`` and ``after`` are further variables, of lower and higher precedence than the cluster's.
    """
    container = context.container
    workspace.reset()
    found = task_environment(
        container.job,
        order.cluster,
        container.task_type,
        container.index,
        local_rank=workspace.local_rank,
        directory=str(workspace.files),
    )
    for name, text in found.files.items():
        Path(workspace.files, name).write_text(text)
    own = _own_gpu({**container.environ, **after}, workspace, container) if container.process_count > 1 else {}
    variables = {**before, **found.env, **container.framework_secrets, **after, **own}
    environ = user_environment(container, workspace, variables, resumed, own_bin)
    launch = ProcessLaunch(environ, container.command, found.before, helpers=found.helpers)
    if container.process_count == 1:
        return launch
    rank = int(found.env[contract.ENV_RANK])
    return attrs.evolve(launch, rank=rank, name=f"rank {rank} (local rank {workspace.local_rank})")


def _own_gpu(environ: Mapping[str, str], workspace: Workspace, container: ExecutorContainer) -> dict[str, str]:
    """Return the variables of a process that sees only its own MIG instance, which is then its first and only GPU.

    The framework's number of that GPU is 0. ``TONY_LOCAL_RANK`` still counts the processes. Return {} if the job
    selects the GPUs itself.
    """
    instance = own_instance(environ, workspace.local_rank, container.process_count)
    if instance is None or VISIBLE_DEVICES in {**container.job.env, **container.spec.env}:
        return {}
    return {VISIBLE_DEVICES: instance, **get_framework(container.job.framework).only_device}


def _listening(container: ExecutorContainer, order: StartOrder) -> dict[str, str]:
    """Return the variables for the address that servers listen at, or an empty dict if they listen everywhere.

    Variables that the node sets have precedence.
    """
    if not in_cluster(container.role):
        return {}
    own = own_address(container.host, {task.host for task in order.cluster.tasks})
    if own is None:
        return {}
    variables = get_framework(container.job.framework).interface_variables if own.interface else frozenset()
    interfaces = {variable: own.interface for variable in variables if variable not in container.environ}
    return {contract.ENV_LISTEN_ADDRESS: own.address, **interfaces}


def _hadoop(context: ExecutorContext) -> Mapping[str, str]:
    """Return the variables for access to Hadoop."""
    if context.hadoop is None:
        return {}
    found = context.hadoop.environment()
    context.output.note(context.hadoop.describe())
    return found
