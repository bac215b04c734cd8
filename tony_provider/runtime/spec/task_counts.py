"""How many tasks of its types a running job may be resized to: checked where somebody asks, and where it is done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

from tony_provider.runtime.spec.model import JobSpec
from tony_provider.runtime.spec.problems import child

EXAMPLE = '{"worker": 4}'
EXAMPLE_WORDS = "worker=4"


def refusal(job: JobSpec, counts: Mapping[str, int]) -> Optional[str]:
    """Why a job cannot be resized to so many tasks of these types, and what to do; None when it can."""
    if not counts:
        return f"tasks: a number of tasks for one type at least, such as {EXAMPLE}"
    for task_type, number in counts.items():
        path = child("tasks", task_type)
        if task_type not in job.tasks:
            return f"{path}: the job has no such task type; it has {', '.join(job.tasks)}"
        task = job.tasks[task_type]
        if task.max_instances is None:
            return f"{path}: it cannot be resized, since the job gives it no max_instances"
        if not task.least_instances <= number <= task.max_instances:
            least = "instances" if task.min_instances is None else "min_instances"
            return (
                f"{path}: {number} is not within {task.least_instances} to {task.max_instances}, "
                f"the {least} and max_instances of the job"
            )
    return None
