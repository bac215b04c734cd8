"""The task type that the key ``tensorboard`` stands for: one like others, whose command is ours."""

from __future__ import annotations

import attrs

from tony_provider.runtime import contract
from tony_provider.runtime.spec.model import TENSORBOARD, JobSpec, Role, TaskSpec, TensorBoardSpec

TASK = f"{TENSORBOARD}:0"
PAGE = "tensorboard/"  # its address, below the job's page


def task_of(tensorboard: TensorBoardSpec) -> TaskSpec:
    """The task type for the key."""
    return TaskSpec(
        command=f"exec python {contract.TENSORBOARD_PROGRAM}",
        memory=tensorboard.memory,
        vcores=tensorboard.vcores,
        node_label=tensorboard.node_label,
        docker=tensorboard.docker,
        env=tensorboard.env,
        role=Role.SIDECAR,
    )


def with_its_task(job: JobSpec) -> JobSpec:
    """The job with TensorBoard's task among the others, as everybody who runs it wants it."""
    if job.tensorboard is None:
        return job
    return attrs.evolve(job, tasks={**job.tasks, TENSORBOARD: task_of(job.tensorboard)})


def without_its_task(job: JobSpec) -> JobSpec:
    """The job without TensorBoard's task, as people write it, and lay other things over it."""
    if job.tensorboard is None:
        return job
    return attrs.evolve(job, tasks={name: task for name, task in job.tasks.items() if name != TENSORBOARD})
