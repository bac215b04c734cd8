"""Jobs and their generations, as an application master would make them."""

from __future__ import annotations

from typing import Any

from tony_provider.runtime.frameworks.base import ClusterSpec, TaskAddress, get_framework, port_of_process
from tony_provider.runtime.jobspec.model import JobSpec
from tony_provider.runtime.parsing.parse import parse_job


def job_of(framework: str = "tensorflow", /, **tasks: dict[str, Any]) -> JobSpec:
    return parse_job(
        {"framework": framework, "tasks": {name: {"command": "true", **task} for name, task in tasks.items()}}
    )


def cluster_of(job: JobSpec, host: str = "10.0.0.1") -> ClusterSpec:
    """Every task on ``host``, the main port of its first process 20000 and upwards in the order of the tasks.

    Those of its other processes are so many thousands above.
    """
    framework = get_framework(job.framework)
    addresses: list[TaskAddress] = []
    for task_type, task in job.tasks.items():
        role = job.role(task_type)
        for index in range(task.instances):
            ports = {
                port_of_process(name, local_rank): 20000 + 1000 * local_rank + len(addresses)
                for name in framework.ports(task_type, role)
                for local_rank in range(task.process_count)
            }
            addresses.append(TaskAddress(task_type, index, role, host, ports))
    return ClusterSpec(generation=1, tasks=tuple(addresses))
