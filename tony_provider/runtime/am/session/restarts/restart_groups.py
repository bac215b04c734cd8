"""Groups of tasks that start again together: the gang, or one task alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

import attrs

from tony_provider.runtime.am.session.restarts.progress import GroupProgress
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
    """A request for a resume point, and its answer."""

    generation: int  # that resumes from it
    made: bool = False
    resume: Optional[ResumePoint] = None  # None if no checkpoint exists


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
    not_before: Optional[float] = None  # None until the cause is known, which decides whether a restart is allowed
    choice: Optional[ResumeChoice] = None
    looking_at: int = 0  # index of the member that was not ready at the last check


@attrs.define(eq=False)
class RestartGroup:
    """Tasks that start again together, with their failures and restarts so far."""

    name: str
    members: list[Task]
    root_cause: RootCause
    budget: RestartBudget
    repeats: RepeatedFailures
    progress: GroupProgress = attrs.field(factory=GroupProgress)
    restart: Optional[Restart] = None
    decided: bool = False  # the event log contains the decision to restart, and not yet the restart
    damaged: int = 0  # number of damaged resume points in a row
    moves: int = 0  # number of times that a task has left a node which lacked something, without progress in between
    suspicions: set[str] = attrs.field(factory=set)  # for which a task has left its node, without progress in between
    suspect: Optional[SuspectResume] = None  # the restart that is being prepared needs another checkpoint

    @property
    def has_failed(self) -> bool:
        """Whether failures since the last progress count."""
        return bool(self.budget.times or self.repeats.seen or self.damaged or self.moves)

    def rest(self) -> None:
        """Forget failures and a start that was being prepared."""
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
        """Return the group that restarts if this task fails."""
        return self._own.get(task.name, self.gang)

    def follow(self, tasks: Sequence[Task]) -> None:
        """Set the tasks of the gang after a resize. Added or removed tasks never restart alone."""
        self.gang.members[:] = [task for task in tasks if in_cluster(task.role) or task.name not in self._own]

    @property
    def gang_has_succeeded(self) -> bool:
        """Whether all members that can succeed have done so. Then the gang never restarts, but later types may run."""
        if self.gang.restart:
            return False
        members = [task for task in self.gang.members if task.role is not Role.PS and not task.absent]
        return bool(members) and all(task.over or task.state is TaskState.SUCCEEDED for task in members)

    def is_needless(self, task: Task) -> bool:
        """Return whether the task is no longer needed, because its gang has succeeded with or without it."""
        return self.of(task) is self.gang and self.gang_has_succeeded

    def preparing(self, task: Task) -> Optional[RestartGroup]:
        """Return the group that prepares a start of this task, or None."""
        for group in (self.gang, self.of(task)):
            if group.restart and task in group.restart.members:
                return group
        return None
