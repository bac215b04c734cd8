"""Tasks that end before their job: they have succeeded, or the job continues without them after a final failure.

Only a restart of the whole gang restarts them, so their containers are released. A long training then does not hold
the devices of finished tasks.
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
    """The part of the session that releases finished tasks. Times are the session's, in seconds."""

    def __init__(self, state: SessionState, containers: Containers, groups: RestartGroups) -> None:
        self._state = state
        self._containers = containers
        self._groups = groups
        members = {task.name for task in groups.gang.members}
        # Precomputed so that large jobs skip the scan of their tasks.
        self._outlives_gang = any(task.decisive and task.name not in members for task in state.tasks)

    def look_at(self, task: Task, now: float) -> None:
        """Release the container of a finished task, once the event log contains its end.

        A gang finishes as a whole, because until then the failure of any member restarts all members.
        """
        if self._groups.of(task) is not self._groups.gang:
            if self._is_over(task):
                self._finish(task)
        elif self._outlives_gang and self._is_running and self._groups.gang_has_succeeded:
            for member in self._groups.gang.members:
                if self._is_over(member):
                    self._finish(member)
                elif member.absent:
                    self.do_without(member, now)

    def _finish(self, task: Task) -> None:
        if not task.recorded:
            self._note(task)
        if not task.has_container:
            task.released = True  # its container was lost

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
        """Release the container of a task, because the event log contains its end."""
        if self._is_over(task) and task.recorded:
            task.released = True
            self._containers.dismiss(task, now, "it has succeeded")

    def _is_over(self, task: Task) -> bool:
        """Return whether a task has succeeded, has reported everything, and is not about to restart."""
        if task.state is not TaskState.SUCCEEDED or not _is_settled(task):
            return False
        if task.told_to_stop or task.role is Role.PS:
            return False
        return self._is_running and self._groups.preparing(task) is None

    @property
    def _is_running(self) -> bool:
        return self._state.phase not in (JobState.RECOVERING, JobState.FINISHING)

    def do_without(self, task: Task, now: float) -> None:
        """Release the container and the request of a task whose gang has succeeded without it."""
        self._containers.dismiss(task, now, "the others have succeeded")
        self._state.emit(*self._containers.gang.withdraw(task))
        task.container_gone()
        task.deadline = None
        if not task.ended:
            task.enter(TaskState.LOST)
            self._state.note("not_needed", "the others have succeeded; no container is asked for", task)

    def do_without_the_rest(self, now: float) -> None:
        """Release the parameter servers and the missing tasks of a gang that has succeeded."""
        for task in self._groups.gang.members:
            succeeded = task.state is TaskState.SUCCEEDED and task.role is not Role.PS
            if not succeeded and not task.over:
                self.do_without(task, now)

    def tolerates(self, task: Task) -> bool:
        """Return whether the job continues after the final failure of this task."""
        if task.role is Role.SIDECAR:
            return True
        if not self._may_fail(task):
            return False
        return sum(1 for each in self._state.tasks if each.given_up and self._may_fail(each)) < self._most

    def too_many(self, task: Task) -> str:
        """Return the reason if ``tolerated_failures`` is exceeded, or an empty text if it does not apply."""
        if not self._most or not self._may_fail(task):
            return ""
        return f"one more than the {self._most} that tolerated_failures allows"

    def _may_fail(self, task: Task) -> bool:
        return task.role is Role.WORKER and self._groups.of(task) is not self._groups.gang

    @property
    def _most(self) -> int:
        return self._state.job.most_failures

    def give_up(self, task: Task, failure: Failure, now: float) -> None:
        """Continue the job without this task."""
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
        """Take over the outcomes of finished tasks from former application masters, so that they do not run again."""
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
