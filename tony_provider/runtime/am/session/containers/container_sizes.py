"""The sizes of the containers that are asked for: as specified, or more memory after one was not enough."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

import attrs

from tony_provider.runtime.am.resource_manager import ContainerRequest, Largest
from tony_provider.runtime.resource_names import GPU
from tony_provider.runtime.spec.model import JobSpec, Memory, TaskSpec
from tony_provider.runtime.spec.placement import own_tags


class ContainerSizes:
    """The present size of each task type's containers."""

    def __init__(self, job: JobSpec) -> None:
        self._job = job
        self._specs = dict(job.tasks)
        self._tags = {
            name: own_tags(name, spec.placement) if job.placed_by_rules(name) else []
            for name, spec in job.tasks.items()
        }
        self._most: Optional[int] = None
        # One priority for each size, since older schedulers keep one size per priority; as specified, from 1 on.
        self._priorities: dict[tuple[object, ...], int] = {}
        for spec in job.tasks.values():
            self._priority(spec)

    def limit(self, largest: Largest) -> None:
        """Never ask for more memory than the cluster gives."""
        self._most = largest.memory

    def of(self, task_type: str) -> TaskSpec:
        """The type's specification, with the memory that its containers get now."""
        return self._specs[task_type]

    @property
    def raised(self) -> dict[str, int]:
        """The memory in MiB by task type, where it is more than specified."""
        return {name: spec.memory for name, spec in self._specs.items() if spec.memory != self._job.tasks[name].memory}

    def restore(self, raised: Mapping[str, int]) -> None:
        """Take over what a former application master knew, as ``raised`` gave it."""
        for name, memory in raised.items():
            if name in self._specs:
                self._set(name, memory)

    def raise_memory(self, task_type: str) -> bool:
        """Give a task type more memory, after an out-of-memory kill.

        False when the policy or the cluster forbids it.
        """
        step = self._job.restart.memory_step
        if step is None:
            return False
        now = self._specs[task_type].memory
        limit = self._job.restart.memory_limit or 2 * self._job.tasks[task_type].memory
        wanted = min(now + step, limit, self._most or limit)
        if wanted <= now:
            return False
        self._set(task_type, wanted)
        return True

    def request(self, task_type: str, key: int) -> ContainerRequest:
        spec = self._specs[task_type]
        resources = {name: amount.value for name, amount in spec.resources.items()}
        if spec.gpus:
            resources[GPU] = spec.gpus
        return ContainerRequest(
            key=key,
            priority=self._priority(spec),
            memory=spec.memory,
            vcores=spec.vcores,
            resources=resources,
            units={name: amount.units for name, amount in spec.resources.items() if amount.units},
            node_label=spec.node_label or self._job.node_label,
            placement=spec.placement,
            tags=self._tags[task_type],
        )

    def _set(self, task_type: str, memory: int) -> None:
        self._specs[task_type] = attrs.evolve(self._specs[task_type], memory=Memory(memory))

    def _priority(self, spec: TaskSpec) -> int:
        size = (spec.memory, spec.vcores, spec.gpus, tuple(sorted(spec.resources.items())), spec.node_label)
        return self._priorities.setdefault(size, len(self._priorities) + 1)
