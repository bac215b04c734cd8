"""What the key ``tensorboard`` stands for: a task type like others, whose command is ours."""

from __future__ import annotations

import attrs

from tony_provider.runtime import contract
from tony_provider.runtime.spec.model import TENSORBOARD, JobSpec, Role, TaskSpec, TensorBoardSpec

TASK = f"{TENSORBOARD}:0"
PAGE = "tensorboard/"  # its address, below the job's page


def task_of(tensorboard: TensorBoardSpec) -> TaskSpec:
    """Its one task."""
    return TaskSpec(
        command=f"exec python {contract.TENSORBOARD_PROGRAM}",
        memory=tensorboard.memory,
        vcores=tensorboard.vcores,
        node_label=tensorboard.node_label,
        env=tensorboard.env,
        role=Role.SIDECAR,
    )


def with_its_task(job: JobSpec) -> JobSpec:
    """As everybody who runs the job wants it."""
    if job.tensorboard is None:
        return job
    return attrs.evolve(job, tasks={**job.tasks, TENSORBOARD: task_of(job.tensorboard)})


def without_its_task(job: JobSpec) -> JobSpec:
    """As people write it, and lay other things over it."""
    if job.tensorboard is None:
        return job
    return attrs.evolve(job, tasks={name: task for name, task in job.tasks.items() if name != TENSORBOARD})
