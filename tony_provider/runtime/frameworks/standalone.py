"""The framework ``standalone``: commands with nothing but the TONY_* variables of every job.

There is no other rendezvous; each tracked task must succeed.
"""

from __future__ import annotations

from collections.abc import Sequence

from tony_provider.runtime.frameworks.base import ClusterSpec, Framework, TaskEnvironment
from tony_provider.runtime.spec.model import JobSpec, RestartScope, Role
from tony_provider.runtime.spec.problems import Problem


class Standalone(Framework):
    """Tasks that run without a rendezvous of a framework's own; each starts again by itself."""

    name = "standalone"

    def problems(self, job: JobSpec) -> list[Problem]:
        return []

    def decisive(self, job: JobSpec) -> Sequence[str]:
        """Chief and workers alike, whatever else there is: no task works for another."""
        return [name for name, role in job.roles.items() if role.is_tracked]

    def scope(self, role: Role) -> RestartScope:
        """Only the task itself starts again: nobody waits for anybody."""
        return RestartScope.TASK

    def environment(self, job: JobSpec, cluster: ClusterSpec, task_type: str, index: int) -> TaskEnvironment:
        return TaskEnvironment({})
