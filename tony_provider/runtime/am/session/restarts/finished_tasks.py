"""Tasks that are over before their job is: they have succeeded, or have failed for good and the job goes on.

Nothing starts them again but a restart of the whole gang, so they give their containers back: one that trains long
does not hold the devices of those that are done.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

from tony_provider.runtime.am.session.actions import KeepNotes
from tony_provider.runtime.am.session.containers.containers import Containers
from tony_provider.runtime.am.session.restarts.restart_groups import RestartGroups
from tony_provider.runtime.am.session.state.process_state import ProcessEnd, ProcessState
from tony_provider.runtime.am.session.state.session_state import SessionState
from tony_provider.runtime.am.session.state.task import Task
from tony_provider.runtime.am.session.state.task_outcome import TaskOutcome, over
from tony_provider.runtime.protocol.status import Failure, JobState, TaskState
from tony_provider.runtime.spec.model import Role
from tony_provider.runtime.text import first_line


class FinishedTasks:
    """The part of the session that lets go of tasks which are over. Times are the session's, in seconds."""

    def __init__(self, state: SessionState, containers: Containers, groups: RestartGroups) -> None:
        self._state = state
        self._containers = containers
        self._groups = groups
        members = {task.name for task in groups.gang.members}
        # Of thousands, nobody is to be looked at in vain.
        self._outlives_gang = any(task.decisive and task.name not in members for task in state.tasks)

    def look_at(self, task: Task, now: float) -> None:
        """Give the container of a task back if it is over, once the next application master would know that it is.

        A gang is over as a whole: until then the failure of one starts all of them again.
        """
        if self._groups.of(task) is not self._groups.gang:
            if self._is_over(task):
                self._let_go(task)
        elif self._outlives_gang and self._going_on and self._groups.gang_has_succeeded:
            for member in self._groups.gang.members:
                if self._is_over(member):
                    self._let_go(member)
                elif member.absent:
                    self.do_without(member, now)

    def _let_go(self, task: Task) -> None:
        if not task.recorded:
            self._note(task)
        if not task.has_container:
            task.released = True  # it was lost meanwhile

    def _note(self, task: Task) -> None:
        end = task.process.end if task.process else None
        outputs = list(end.outputs) if end else []
        outcome = TaskOutcome(model_dir=end.model_dir if end else "", progress=task.progress, outputs=outputs)
        data = {"tasks": {task.name: over(task, outcome)}}
        if task.has_container:
            self._state.note("over", "it has succeeded; its container is given back", task, data)
            self._state.emit(KeepNotes(task.name, task.attempt))
        else:
            self._state.note("over", "it has succeeded", task, data)

    def release(self, task: Task, now: float) -> None:
        """Give the container of a task back, as the event log says that it is over."""
        if self._is_over(task) and task.recorded:
            task.released = True
            self._containers.dismiss(task, now, "it has succeeded")

    def _is_over(self, task: Task) -> bool:
        """It has succeeded, nothing more comes of it, and nothing is about to start it again."""
        if task.state is not TaskState.SUCCEEDED or not _is_settled(task):
            return False
        if task.told_to_stop or task.role is Role.PS:
            return False
        return self._going_on and self._groups.preparing(task) is None

    @property
    def _going_on(self) -> bool:
        return self._state.phase not in (JobState.RECOVERING, JobState.FINISHING)

    def do_without(self, task: Task, now: float) -> None:
        """Have no container for a task whose gang has succeeded, without it or before it failed."""
        self._containers.dismiss(task, now, "the others have succeeded")
        self._state.emit(*self._containers.gang.withdraw(task))
        task.container_gone()
        task.deadline = None
        if not task.ended:
            task.enter(TaskState.LOST)
            self._state.note("not_needed", "the others have succeeded; no container is asked for", task)

    def do_without_the_rest(self, now: float) -> None:
        """Have no containers for the rest of a gang that has succeeded: parameter servers, and who was missing."""
        for task in self._groups.gang.members:
            succeeded = task.state is TaskState.SUCCEEDED and task.role is not Role.PS
            if not succeeded and not task.over:
                self.do_without(task, now)

    def tolerates(self, task: Task) -> bool:
        """Whether the job goes on though this task has failed for good."""
        if task.role is Role.SIDECAR:
            return True
        if not self._may_fail(task):
            return False
        return sum(1 for each in self._state.tasks if each.given_up and self._may_fail(each)) < self._most

    def too_many(self, task: Task) -> str:
        """Why a failure is not tolerated where others were; empty where none of such a task is."""
        if not self._most or not self._may_fail(task):
            return ""
        return f"one more than the {self._most} that tolerated_failures allows"

    def _may_fail(self, task: Task) -> bool:
        return task.role is Role.WORKER and self._groups.of(task) is not self._groups.gang

    @property
    def _most(self) -> int:
        return self._state.job.most_failures

    def give_up(self, task: Task, failure: Failure, now: float) -> None:
        """Go on without this task."""
        self._containers.dismiss(task, now, "it is given up")
        self._state.emit(*self._containers.gang.withdraw(task))
        group = self._groups.of(task)
        group.rest()
        task.fail(failure, TaskState.FAILED)
        self._record(task, failure)
        data: dict[str, Any] = {"tasks": {task.name: over(task, TaskOutcome(failure=failure))}}
        if group.decided:
            group.decided, data["restarting"] = False, {group.name: False}
        self._state.note("given_up", first_line(failure.message), task, data)

    def _record(self, task: Task, failure: Failure) -> None:
        task.given_up = True
        self._state.warnings.append(failure.message)

    def remember(self, outcomes: Mapping[str, Optional[TaskOutcome]]) -> None:
        """Take over, by task, what former application masters knew: nobody is to run these again."""
        for task in self._state.tasks:
            outcome = outcomes.get(task.name)
            if outcome is None:
                continue
            task.container_gone()
            task.recorded = True
            if outcome.failure:
                task.fail(outcome.failure, TaskState.FAILED)
                self._record(task, outcome.failure)
            else:
                outputs = tuple(outcome.outputs)
                end = ProcessEnd(task.start, model_dir=outcome.model_dir, progress=outcome.progress, outputs=outputs)
                task.process = ProcessState(task.start, self._state.generation.number, end=end, settled=True)
                task.progress, task.released = outcome.progress, True
                task.enter(TaskState.SUCCEEDED)


def _is_settled(task: Task) -> bool:
    return task.process is not None and task.process.settled
