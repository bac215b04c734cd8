"""The job of a notebook: one container that has what a task of another job has, and Jupyter in place of its program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from tony_provider.cluster.errors import JobRejected
from tony_provider.runtime import contract
from tony_provider.runtime.codec import to_plain
from tony_provider.runtime.notebook.options import NotebookOptions
from tony_provider.runtime.parsing.parse import parse_job
from tony_provider.runtime.ranks import leading_type
from tony_provider.runtime.spec.model import CheckpointFormat, JobSpec
from tony_provider.runtime.spec.tensorboard import without_its_task

TASK_TYPE = "notebook"
_FRAMEWORK = "standalone"
TASK = f"{TASK_TYPE}:0"
TOKEN = "JUPYTER_TOKEN"  # the secret that Jupyter takes from its environment
_OF_JOB = (
    *("queue", "priority", "node_label", "tags", "files", "archives", "python_env", "docker", "env", "logs"),
    *("hadoop", "network", "port_range"),
)
_OF_TASK = (
    *("memory", "vcores", "gpus", "resources", "node_label", "docker", "env", "python_env", "files", "archives"),
)
_OF_PLACEMENT = ("nodes", "racks", "required", "attributes")  # rules are about the containers of the training
_GRACE = 60.0  # seconds for Jupyter to end, and for the work to be packed
_LAST_COPY = 600.0  # seconds for the work to get to the store
_SAVES = 2  # that stay on the store


@attrs.frozen
class NotebookWish:
    """What is wanted of a notebook beside the job that it is made of."""

    name: str
    options: NotebookOptions
    lifetime: float  # seconds, of the application
    task_type: str | None = None  # whose container it has; None: that of the leading tasks
    queue: str | None = None  # in place of the job's
    secrets: frozenset[str] = frozenset()  # names of those of the job whose values are given


def notebook_job(job: JobSpec, wish: NotebookWish, overrides: Mapping[str, Any]) -> JobSpec:
    """The notebook's job, with ``overrides`` laid over it. Raises JobRejected, SpecError."""
    job = without_its_task(job)
    task_type = chosen_type(job, wish.task_type)
    whole = to_plain(job)
    task = whole["tasks"][task_type]
    known = {each: whole[each] for each in _OF_JOB}
    plain = {
        **known,
        "framework": _FRAMEWORK,
        "name": f"notebook {wish.name}",
        "queue": wish.queue or known["queue"],
        "am": {each: whole["am"][each] for each in ("vcores", "node_label", "docker")},
        "secrets": sorted({TOKEN, *(wish.secrets - job.secrets_withheld(task_type))}),
        "acls": {"view": whole["acls"]["view"]},  # who may modify it has a shell: nobody inherits that
        "timeouts": {
            "queue": job.timeouts.queue if (job.timeouts.queue or wish.lifetime) < wish.lifetime else None,
            "lifetime": wish.lifetime,
            "grace": _GRACE,
            "checkpoint": _LAST_COPY,
        },
        "checkpoint": {"format": CheckpointFormat.MANIFEST.value, "keep": _SAVES},
        "inputs": {
            name: {**whole["inputs"][name], "tasks": [TASK_TYPE]}
            for name in job.inputs
            if task_type in job.readers(name)
        },
        "tasks": {
            TASK_TYPE: {
                **{each: task[each] for each in _OF_TASK},
                "placement": _placement(task["placement"]),
                "command": f"exec python -m {contract.NOTEBOOK_MODULE} {wish.options.arguments}",
            }
        },
    }
    return parse_job(plain, overrides=overrides)


def chosen_type(job: JobSpec, wanted: str | None) -> str:
    """The task type whose container a notebook has; default: the one that leads. Raises JobRejected."""
    if wanted is None:
        leader = leading_type({name: job.role(name) for name in job.tasks})
        return leader if leader is not None else next(iter(job.tasks))
    if wanted not in job.tasks:
        raise JobRejected([f"the job has no task type {wanted!r}; it has {', '.join(job.tasks)}"])
    return wanted


def left_out(job: JobSpec, wish: NotebookWish) -> list[str]:
    """The secrets of the job that the notebook does not have, since nobody has given their values."""
    task_type = chosen_type(job, wish.task_type)
    return sorted({*job.secrets} - job.secrets_withheld(task_type) - wish.secrets - {TOKEN})


def _placement(placement: Mapping[str, Any] | None) -> dict[str, Any] | None:
    kept = {each: placement[each] for each in _OF_PLACEMENT} if placement is not None else {}
    return kept if any(kept.values()) else None
