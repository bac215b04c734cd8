"""The containers that a job needs, and how they are told to people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from tony_provider.runtime.quantities import amount
from tony_provider.runtime.resource_names import GPU, MEMORY, VCORES
from tony_provider.runtime.spec.model import JobSpec


@attrs.frozen
class Demand:
    """The containers of one kind that a job needs, all at the same time."""

    what: str  # such as tasks.worker
    resources: dict[str, int]  # of each, by YARN's names, in the cluster's units
    label: str | None
    count: int = 1  # without which the job does not go on
    units: Mapping[str, str] = attrs.field(factory=dict)  # of the cluster, for resources not counted one by one
    task_type: str | None = None  # None: the application master, which is always there

    def key(self, resource: str) -> str:
        """The key of the job specification that says how much of a resource is asked for."""
        keys = {MEMORY: "memory", VCORES: "vcores", GPU: "gpus"}
        return f"{self.what}.{keys.get(resource, f'resources.{resource}')}"

    def amount(self, resource: str, number: int) -> str:
        """So much of a resource, for people."""
        return amount(resource, number, self.units.get(resource, ""))


def demands(job: JobSpec, units: Mapping[str, str]) -> Iterator[Demand]:
    """The demands of a job, the application master's first. ``units`` are the cluster's, see ClusterView."""
    am = {MEMORY: int(job.am_memory), VCORES: job.am.vcores}
    yield Demand("am", am, job.am.node_label or job.node_label)
    for name, task in job.tasks.items():
        others = {other: wanted.counted_in(units.get(other, "")) for other, wanted in task.resources.items()}
        wanted = {MEMORY: int(task.memory), VCORES: task.vcores, **others}
        if task.gpus:
            wanted[GPU] = task.gpus
        yield Demand(f"tasks.{name}", wanted, task.node_label or job.node_label, job.at_once(name), units, name)
