"""The places in a specification that say what stands in user processes' environments."""

from __future__ import annotations

from collections.abc import Mapping

from tony_provider.runtime.spec.model import JobSpec
from tony_provider.runtime.spec.problems import child


def environments(job: JobSpec) -> dict[str, Mapping[str, str]]:
    """The environments that a job gives, by their path: the job's, each task type's, that of our TensorBoard."""
    own = {"tensorboard.env": job.tensorboard.env} if job.tensorboard else {}
    tasks = {child(child("tasks", name), "env"): task.env for name, task in job.tasks.items()}
    return {"env": job.env, **tasks, **own}
