"""Requests that no waiting would ever fulfil, found before anything is asked for."""

from __future__ import annotations

from typing import Optional

from tony_provider.runtime.am.resource_manager import Registered
from tony_provider.runtime.am.session.gang import GPU
from tony_provider.runtime.spec.model import JobSpec


def too_large(job: JobSpec, cluster: Registered) -> Optional[str]:
    """What is asked for beyond the cluster's largest container, all of it at once; None when everything fits."""
    problems = []
    for name, task in job.tasks.items():
        wanted = {"memory": (task.memory, cluster.max_memory), "vcores": (task.vcores, cluster.max_vcores)}
        if task.gpus:
            wanted["gpus"] = (task.gpus, cluster.max_resources.get(GPU, 0))
        for resource, number in task.resources.items():
            wanted[f"resources.{resource}"] = (number, cluster.max_resources.get(resource, 0))
        problems += [
            f"tasks.{name}.{key}: {number} is more than the {most} that the cluster gives one container at most"
            for key, (number, most) in wanted.items()
            if number > most
        ]
    return "; ".join(problems) or None
