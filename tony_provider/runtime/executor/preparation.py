"""What a user process finds: the checkpoint that it goes on from, a warm start, its files and its environment."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import Optional

import attrs

from tony_provider.runtime.checkpoint.errors import DamagedCheckpoint
from tony_provider.runtime.executor import warm_start
from tony_provider.runtime.executor.checkpoint_directory import Resumed
from tony_provider.runtime.executor.environment import user_environment
from tony_provider.runtime.executor.order import Order
from tony_provider.runtime.executor.patience import patiently
from tony_provider.runtime.executor.surroundings import Surroundings
from tony_provider.runtime.frameworks.generic import task_environment
from tony_provider.runtime.ranks import in_cluster
from tony_provider.runtime.spec.model import Role
from tony_provider.runtime.storage import StorageError

# Seconds for a store that is out of reach, which is every container's trouble: longer than a NameNode's restart or
# failover takes as a rule. Then it may be this node's own, and a container on another one is worth its price.
_STORE_PATIENCE = 300.0


class PreparationError(Exception):
    """The process cannot start from where it was to."""

    def __init__(self, reason: str, *, uri: str = "", damaged: bool = False) -> None:
        super().__init__(reason)
        self.uri = uri  # of the checkpoint; empty: it was something else
        self.damaged = damaged  # the checkpoint itself: another try finds the same


@attrs.frozen
class Prepared:
    resumed: Optional[Resumed]  # what the process goes on from; None: from the beginning
    environ: dict[str, str]


def prepare(its: Surroundings, order: Order, cancelled: threading.Event) -> Prepared:
    """Blocks. Raises PreparationError, Cancelled; PythonEnvError, LookupError where no other try would mend it."""
    _fetch_warm_start(its, cancelled)
    resumed = _put_checkpoint(its, order, cancelled)
    try:
        return Prepared(resumed, _environment(its, order, resumed))
    except OSError as error:  # this node's trouble, as a rule a full disk
        raise PreparationError(f"its files could not be written: {error}") from error


def _fetch_warm_start(its: Surroundings, cancelled: threading.Event) -> None:
    warm = its.container.description.warm_start
    try:
        if warm is not None:
            fetch = partial(warm_start.fetch, its.storage, warm, its.workspace.warm_start, cancelled)
            patiently(fetch, _STORE_PATIENCE, cancelled)
    except (StorageError, OSError) as error:
        raise PreparationError(f"the warm start could not be copied: {error}") from error


def _put_checkpoint(its: Surroundings, order: Order, cancelled: threading.Event) -> Optional[Resumed]:
    uri = order.resume.uri if order.resume else ""
    try:
        return patiently(partial(_resume, its, order, cancelled), _STORE_PATIENCE, cancelled)
    except DamagedCheckpoint as error:
        raise PreparationError(str(error), uri=uri, damaged=True) from error
    except (StorageError, OSError) as error:
        raise PreparationError(f"the checkpoint directory could not be prepared: {error}", uri=uri) from error


def _resume(its: Surroundings, order: Order, cancelled: threading.Event) -> Optional[Resumed]:
    rank = order.rank(its.container.task_type, its.container.index) or 0
    if order.keep_checkpoints:
        resumed = its.checkpoints.keep(rank, cancelled)
        return resumed if _resumes(its) else None
    if order.resume is None or not _resumes(its):
        its.checkpoints.empty()
        return None
    return its.checkpoints.restore(order.resume, rank, cancelled)


def _resumes(its: Surroundings) -> bool:
    """Parameter servers get their values from the others; side-cars do not train."""
    role = its.container.role
    return role is Role.EVALUATOR or (in_cluster(role) and role is not Role.PS)


def _environment(its: Surroundings, order: Order, resumed: Optional[Resumed]) -> dict[str, str]:
    container, workspace = its.container, its.workspace
    found = task_environment(
        container.job, order.cluster, container.task_type, container.index, directory=str(container.directory)
    )
    for name, text in found.files.items():
        Path(container.directory, name).write_text(text)
    workspace.renew()
    python_bin = workspace.python_bin(container.job.python_env)
    after = f", from {resumed.label}" if resumed else ""
    its.output.note(f"{container.identity.task}, generation {order.generation}, on {container.host}{after}")
    return user_environment(container, workspace, found.env, resumed, python_bin)
