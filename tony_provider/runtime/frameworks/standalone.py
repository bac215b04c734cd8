"""Framework ``standalone``: any program, with only the TONY_* variables that every job has.

The tasks find each other by these variables. They start together and may communicate, unless the job sets ``start:
first-come``. A failed task restarts alone while the others continue, unless its type sets ``restart: gang``.
"""

from __future__ import annotations

from tony_provider.runtime.frameworks.base import TRACKED, ClusterSpec, Framework, TaskEnvironment
from tony_provider.runtime.jobspec.model import JobSpec, RestartScope, Role


class Standalone(Framework):
    """Independent programs of any kind; the chief and each worker must succeed."""

    name = "standalone"
    starts_alone = True
    decisive_roles = TRACKED  # also with parameter servers, which need not serve the chief or workers

    @property
    def first_come(self) -> bool:
        """True: no task is known to need another."""
        return True

    def scope(self, role: Role) -> RestartScope:
        """Return TASK for all roles, because no other task is known to depend on the failed one."""
        return RestartScope.TASK

    def environment(self, job: JobSpec, cluster: ClusterSpec, task_type: str, index: int) -> TaskEnvironment:
        return TaskEnvironment({})
