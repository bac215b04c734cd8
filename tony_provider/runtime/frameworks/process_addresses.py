"""The addresses of a generation's processes, made of those of its tasks: a container may run several."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from tony_provider.runtime.frameworks import get_framework
from tony_provider.runtime.frameworks.base import ClusterSpec, TaskAddress, port_of_process
from tony_provider.runtime.spec.model import JobSpec


def by_process(job: JobSpec, cluster: ClusterSpec) -> ClusterSpec:
    """The cluster with an address for each process, those of a task one after the other by local rank.

    Their indices count the processes of a type, so that they have an order, and ranks, as tasks have.
    """
    if all(job.tasks[task.type].process_count == 1 for task in cluster.tasks):
        return cluster
    return attrs.evolve(cluster, tasks=tuple(each for task in cluster.tasks for each in _processes(job, task)))


def process_index(job: JobSpec, task_type: str, index: int, local_rank: int) -> int:
    """The index of a process among those of its type; ``index`` is the task's."""
    return index * job.tasks[task_type].process_count + local_rank


def _processes(job: JobSpec, task: TaskAddress) -> Iterator[TaskAddress]:
    names = get_framework(job.framework).ports(task.type, task.role)
    count = job.tasks[task.type].process_count
    for local_rank in range(count):
        yield TaskAddress(
            type=task.type,
            index=process_index(job, task.type, task.index, local_rank),
            role=task.role,
            host=task.host,
            ports={name: task.ports[port_of_process(name, local_rank)] for name in names} if task.host else {},
            local_rank=local_rank,
            local_world_size=count,
        )
