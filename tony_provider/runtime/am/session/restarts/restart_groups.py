"""Groups of tasks that start again together: the gang, or one task alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

import attrs

from tony_provider.runtime.am.session.restarts.repeated_failures import RepeatedFailures
from tony_provider.runtime.am.session.restarts.restart_budget import RestartBudget
from tony_provider.runtime.am.session.restarts.root_cause import RootCause
from tony_provider.runtime.am.session.state.task import Task
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.peak import takes_gang_along
from tony_provider.runtime.protocol.status import Failure, TaskState
from tony_provider.runtime.ranks import in_cluster
from tony_provider.runtime.spec.model import JobSpec, Role

GANG = "gang"


@attrs.define
class ResumeChoice:
    """A resume point that was asked for, and the answer."""

    generation: int  # that goes on from it
    made: bool = False
    resume: Optional[ResumePoint] = None  # None: there is no checkpoint


@attrs.frozen
class SuspectResume:
    """A repeated failure of processes that resumed from a checkpoint. Only an older checkpoint permits a restart."""

    task: Task
    failure: Failure  # with the reason to give up
    uri: str  # of the checkpoint


@attrs.define
class Restart:
    """A start that is being prepared: processes stop, containers are replaced, the resume point is chosen."""

    reason: str
    members: list[Task]
    not_before: Optional[float] = None  # None: why it is needed, and so whether it is allowed, is not known yet
    choice: Optional[ResumeChoice] = None
    looking_at: int = 0  # the member that is not ready, by the last look


@attrs.define(eq=False)
class RestartGroup:
    """Tasks that start again together, with their failures and restarts so far."""

    name: str
    members: list[Task]
    root_cause: RootCause
    budget: RestartBudget
    repeats: RepeatedFailures
    restart: Optional[Restart] = None
    decided: bool = False  # the event log says that it starts again, and not yet that it has
    damaged: int = 0  # resume points in a row that turned out to be damaged
    suspect: Optional[SuspectResume] = None  # the restart that is being prepared needs another checkpoint

    def rest(self) -> None:
        """Forget failures and a start that was being prepared: nothing of the group is under way."""
        self.restart = self.suspect = None
        self.root_cause.reset()


class RestartGroups:
    """All restart groups of a job: the gang, and each task that starts again alone."""

    def __init__(self, job: JobSpec, tasks: list[Task]) -> None:
        def group(name: str, members: list[Task]) -> RestartGroup:
            return RestartGroup(
                name, members, RootCause(members), RestartBudget(job.restart), RepeatedFailures(job.restart)
            )

        along = {task.name: takes_gang_along(job, task.role, task.scope) for task in tasks}
        self.gang = group(GANG, [task for task in tasks if in_cluster(task.role) or along[task.name]])
        self._own = {task.name: group(task.name, [task]) for task in tasks if not along[task.name]}
        self.every = [self.gang, *self._own.values()]

    def of(self, task: Task) -> RestartGroup:
        """The group that starts again when this task fails."""
        return self._own.get(task.name, self.gang)

    def follow(self, tasks: Sequence[Task]) -> None:
        """Have the gang be of these tasks: the job has got more, or has fewer. None of those starts again alone."""
        self.gang.members[:] = [task for task in tasks if in_cluster(task.role) or task.name not in self._own]

    @property
    def gang_has_succeeded(self) -> bool:
        """Whether all of the gang have that could, while types that wait for them go on: it never starts again."""
        if self.gang.restart:
            return False
        members = [task for task in self.gang.members if task.role is not Role.PS and not task.absent]
        return bool(members) and all(task.over or task.state is TaskState.SUCCEEDED for task in members)

    def is_needless(self, task: Task) -> bool:
        """Whether nobody needs this task any more: a gang has succeeded with it, or without."""
        return self.of(task) is self.gang and self.gang_has_succeeded

    def preparing(self, task: Task) -> Optional[RestartGroup]:
        """The group that prepares a start which this task takes part in."""
        for group in (self.gang, self.of(task)):
            if group.restart and task in group.restart.members:
                return group
        return None
