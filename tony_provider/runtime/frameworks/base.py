"""What a framework adds to a job: the environment of each task, and which tasks decide the end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import attrs

from tony_provider.runtime.spec.model import JobSpec, Role


@attrs.frozen
class TaskAddress:
    """Where one task of the generation listens."""

    type: str
    index: int
    role: Role
    host: str
    ports: dict[str, int]  # by the names that Framework.ports gave


@attrs.frozen
class ClusterSpec:
    """Every task of one generation, ordered by type as specified, then by index."""

    generation: int
    tasks: tuple[TaskAddress, ...]


@attrs.frozen
class TaskEnvironment:
    env: dict[str, str]
    files: dict[str, str] = attrs.field(factory=dict)  # name in the working directory -> text, written before the start


@attrs.frozen
class Problem:
    """Something wrong with a specification."""

    path: str  # of the key: tasks.worker.instances
    value: object  # as rendered
    message: str  # what is wrong and what is allowed


class Framework(ABC):
    name: str
    can_share_ports = (
        False  # True: held ports stay bound (SO_REUSEPORT) past exec; else they are released just before it
    )

    @abstractmethod
    def problems(self, job: JobSpec) -> list[Problem]:
        """What this framework cannot run."""

    @abstractmethod
    def ports(self, task_type: str, role: Role) -> Sequence[str]:
        """Names of the ports that a task of this type listens on."""

    @abstractmethod
    def decisive(self, job: JobSpec) -> Sequence[str]:
        """The task types that must all succeed for the job to succeed; when they have, the others are stopped."""

    @abstractmethod
    def environment(self, job: JobSpec, cluster: ClusterSpec, task_type: str, index: int) -> TaskEnvironment:
        """What the user process of one task needs to find the others. Executor side."""
