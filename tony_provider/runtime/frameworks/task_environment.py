"""Build the cluster addresses of all processes, and the environment of one user process.

A container may run several processes, so the addresses of processes are derived from those of tasks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import attrs

from tony_provider.runtime.common import contract
from tony_provider.runtime.frameworks import get_framework
from tony_provider.runtime.frameworks.base import (
    MAIN_PORT,
    ClusterSpec,
    TaskAddress,
    TaskEnvironment,
    port_of_process,
    with_file,
)
from tony_provider.runtime.jobspec.model import JobSpec
from tony_provider.runtime.jobspec.task_types import in_cluster, ranks


def by_process(job: JobSpec, cluster: ClusterSpec) -> ClusterSpec:
    """Return the cluster with one address for each process; processes of a task follow each other by local rank.

    Their indices count the processes of a type, so that processes have an order and ranks like tasks.
    """
    if all(job.tasks[task.type].process_count == 1 for task in cluster.tasks):
        return cluster
    return attrs.evolve(cluster, tasks=tuple(each for task in cluster.tasks for each in _processes(job, task)))


def process_index(job: JobSpec, task_type: str, index: int, local_rank: int) -> int:
    """Return the index of a process among those of its type; ``index`` is the task's index."""
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


VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"


def task_environment(
    job: JobSpec, cluster: ClusterSpec, task_type: str, index: int, *, local_rank: int = 0, directory: str = ""
) -> TaskEnvironment:
    """Return the variables and files by which a user process finds the others, including its framework's.

    ``cluster`` has the tasks' addresses. The caller writes the files in ``directory``; if it is empty, the variables
    have paths relative to the working directory. The job's own ``env`` is not included. Raises LookupError if the
    cluster lacks the task.
    """
    everybody, own = by_process(job, cluster), process_index(job, task_type, index, local_rank)
    common = cluster_environment(job, everybody, task_type, own)
    return (common + get_framework(job.framework).environment(job, everybody, task_type, own)).placed(directory)


def cluster_environment(job: JobSpec, cluster: ClusterSpec, task_type: str, index: int) -> TaskEnvironment:
    """Return the part of a process's environment that does not depend on the framework.

    The arguments are those of ``Framework.environment``. Evaluators and sidecars get the cluster but no rank.
    """
    task = cluster.task(task_type, index)
    rank_of = ranks(cluster.tasks)
    env = {
        contract.ENV_JOB_NAME: job.name,
        contract.ENV_TASK_TYPE: task_type,
        contract.ENV_TASK_INDEX: str(task.task_index),
        contract.ENV_LOCAL_RANK: str(task.local_rank),
        contract.ENV_LOCAL_WORLD_SIZE: str(task.local_world_size),
        contract.ENV_WORLD_SIZE: str(len(rank_of)),
        contract.ENV_GENERATION: str(cluster.generation),
        contract.ENV_PORT: str(task.ports[MAIN_PORT]),
    }
    first = cluster.task(*min(rank_of, key=rank_of.__getitem__)) if rank_of else None
    if first and first.main:
        env[contract.ENV_RENDEZVOUS] = first.main
    if in_cluster(task.role):
        env[contract.ENV_RANK] = str(rank_of[task_type, index])
    spec = job.tasks[task_type]
    # Other resources may be GPUs by another name, such as nvidia.com/gpu.
    if spec.gpus == 0 and not spec.resources and VISIBLE_DEVICES not in {**job.env, **spec.env}:
        env[VISIBLE_DEVICES] = "-1"  # nodes without isolation show every GPU to every container
    listed = with_file(
        contract.ENV_CLUSTER_SPEC, cluster_json(cluster), contract.ENV_CLUSTER_SPEC_FILE, contract.CLUSTER_SPEC_FILE
    )
    return TaskEnvironment(env) + listed


def cluster_json(cluster: ClusterSpec) -> str:
    """Return the addresses of chief, workers and parameter servers as JSON: ``{type: ["host:port", …]}``.

    They are ordered by type as specified, then by index. The address of a task that does not run is empty.
    """
    by_type: dict[str, list[str]] = {}
    for task in cluster.tasks:
        if in_cluster(task.role):
            by_type.setdefault(task.type, []).append(task.main)
    return json.dumps(by_type, separators=(",", ":"))
