"""Requests that no waiting would ever fulfil, found before anything is asked for."""

from __future__ import annotations

from typing import Optional

from tony_provider.runtime.am.resource_manager import Largest
from tony_provider.runtime.resource_names import GPU
from tony_provider.runtime.spec.model import JobSpec


def too_large(job: JobSpec, largest: Largest) -> Optional[str]:
    """What the job asks for beyond the cluster's largest container, all of it at once; None when everything fits."""
    problems = []
    for name, task in job.tasks.items():
        wanted = {"memory": (task.memory, largest.memory), "vcores": (task.vcores, largest.vcores)}
        if task.gpus:
            wanted["gpus"] = (task.gpus, largest.resources.get(GPU, 0))
        for resource, amount in task.resources.items():
            number = amount.counted_in(largest.units.get(resource, ""))
            wanted[f"resources.{resource}"] = (number, largest.resources.get(resource, 0))
        problems += [
            f"tasks.{name}.{key}: {number} is more than the {most} that the cluster gives one container at most"
            for key, (number, most) in wanted.items()
            if number > most
        ]
    return "; ".join(problems) or None
