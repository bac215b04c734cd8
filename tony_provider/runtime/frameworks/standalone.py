"""Any commands: each gets the TONY_* variables of every job, and workers may use them to talk to each other.

Nothing is set up for a library beyond that; each tracked task must succeed.
"""

from __future__ import annotations

from collections.abc import Sequence

from tony_provider.runtime.frameworks.base import ClusterSpec, Framework, TaskEnvironment
from tony_provider.runtime.spec.model import JobSpec, RestartScope, Role
from tony_provider.runtime.spec.problems import Problem


class Standalone(Framework):
    name = "standalone"

    def problems(self, job: JobSpec) -> list[Problem]:
        return []

    def decisive(self, job: JobSpec) -> Sequence[str]:
        """Chief and workers alike, whatever else there is."""
        return [name for name, role in job.roles.items() if role.is_tracked]

    def scope(self, role: Role) -> RestartScope:
        """Nothing says that the others wait for it."""
        return RestartScope.TASK

    def environment(self, job: JobSpec, cluster: ClusterSpec, task_type: str, index: int) -> TaskEnvironment:
        return TaskEnvironment({})
