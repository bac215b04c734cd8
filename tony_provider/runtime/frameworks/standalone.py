"""The framework ``standalone``: any program, with no variables beside the TONY_* ones.

By those its tasks find each other, as in every job. They start together and may talk to each other, unless the job says
``start: first-come``. One that fails starts again alone, and the others go on, unless its type says ``restart: gang``.
"""

from __future__ import annotations

from collections.abc import Sequence

from tony_provider.runtime.frameworks.base import ClusterSpec, Framework, TaskEnvironment
from tony_provider.runtime.jobspec.model import JobSpec, RestartScope, Role


class Standalone(Framework):
    """Programs of any kind, of which nothing is known but that the chief and each worker must succeed."""

    name = "standalone"

    def decisive(self, job: JobSpec) -> Sequence[str]:
        """The chief and every worker, beside parameter servers too: nothing says that one of them serves another."""
        return [name for name, role in job.roles.items() if role.is_tracked]

    @property
    def first_come(self) -> bool:
        """Nothing says that one needs another."""
        return True

    def scope(self, role: Role) -> RestartScope:
        """The failed task alone: nothing says that another depends on it."""
        return RestartScope.TASK

    def environment(self, job: JobSpec, cluster: ClusterSpec, task_type: str, index: int) -> TaskEnvironment:
        return TaskEnvironment({})
