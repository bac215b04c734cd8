"""Task types of a job: ranks, the leading type, the types that must have succeeded before, and resizing.

Ranks start with the chief, then workers, then parameter servers. Evaluators and sidecars are outside the cluster and
have no rank. Within a role, types keep the specified order, and tasks are ordered by index.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Optional, Protocol

from tony_provider.runtime.jobspec.model import JobSpec, Milestone, Role
from tony_provider.runtime.jobspec.problems import child

_ORDER = {Role.CHIEF: 0, Role.WORKER: 1, Role.PS: 2}


class RankedTask(Protocol):
    """Task that can be ranked by its type, index and role, such as ``frameworks.base.TaskAddress``."""

    @property
    def type(self) -> str: ...
    @property
    def index(self) -> int: ...
    @property
    def role(self) -> Role: ...


def in_cluster(role: Role) -> bool:
    """Return whether tasks of this role belong to the cluster, and so have a rank."""
    return role in _ORDER


def saves_checkpoints(role: Role) -> bool:
    """Return whether checkpoints of this role are stored. Parameter servers receive their values from other tasks."""
    return in_cluster(role) and role is not Role.PS


def ranks(tasks: Iterable[RankedTask]) -> dict[tuple[str, int], int]:
    """Return the rank of each task that has one, by type and index. ``tasks`` are ordered by type, then index."""
    ordered = sorted((task for task in tasks if in_cluster(task.role)), key=lambda task: _ORDER[task.role])
    return {(task.type, task.index): rank for rank, task in enumerate(ordered)}


def leading_type(roles: Mapping[str, Role]) -> Optional[str]:
    """Return the type whose task 0 has rank 0: its model and its metrics are the job's.

    ``roles`` are by type, in the specified order. Returns None if the job has only evaluators and sidecars.
    """
    types = [task_type for task_type, role in roles.items() if in_cluster(role)]
    return min(types, key=lambda task_type: _ORDER[roles[task_type]], default=None)


def succeeded_before(job: JobSpec, task_type: str) -> frozenset[str]:
    """Return the types that have succeeded when this type starts, including indirect dependencies."""
    found: set[str] = set()
    seen, left = {task_type}, [task_type]
    while left:
        for other, milestone in job.waits_for(left.pop()).items():
            if milestone is Milestone.SUCCEEDED:
                found.add(other)
            if other in job.tasks and other not in seen:
                seen.add(other)
                left.append(other)
    return frozenset(found)


RESIZE_EXAMPLE = '{"worker": 4}'
RESIZE_EXAMPLE_WORDS = "worker=4"


def resize_refusal(job: JobSpec, counts: Mapping[str, int]) -> Optional[str]:
    """Return why a job cannot be resized to these numbers of tasks, and what to do. Return None if it can."""
    if not counts:
        return f"tasks: a number of tasks for one type at least, such as {RESIZE_EXAMPLE}"
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
