"""Stages: task types that start only after other types have reached a milestone.

Types that wait for no other type are the first stage, and begin according to the job's ``start``. Containers for a
waiting type are not requested, so that blocked tasks hold no devices. A waiting gang is allocated as a whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Optional

import attrs

from tony_provider.runtime.am.session.context import Part, SessionContext
from tony_provider.runtime.am.session.session_state import Task
from tony_provider.runtime.jobspec.model import Milestone, Role
from tony_provider.runtime.jobspec.task_types import in_cluster
from tony_provider.runtime.protocol.status import Failure, FailureKind, JobState, TaskState

_IN_WORDS = {
    Milestone.STARTED: "to have started",
    Milestone.READY: "to be ready",
    Milestone.SUCCEEDED: "to have succeeded",
}


class Stages(Part):
    """The part of the session that starts task types once the types before them have reached their milestones."""

    def __init__(self, context: SessionContext) -> None:
        super().__init__(context)
        self._tasks = self._state.of_type
        self._all = {
            name: [_Wait(other, self._tasks[other], milestone) for other, milestone in after.items()]
            for name in self._state.job.tasks
            if (after := self._state.job.waits_for(name))
        }
        self._waiting = self._all  # types that had waiting tasks at the last check
        self._since: Optional[float] = None  # time since which types wait without any new start

    def reset(self, tasks: Iterable[Task], types: Collection[str]) -> None:
        """Let these tasks wait again for tasks of ``types``, which begin again as well."""
        for task in tasks:
            task.waits_for_types = any(other in types for other in self._state.job.waits_for(task.type))
        self._waiting, self._since = self._all, None
        self._note_reset(types)

    def _note_reset(self, types: Collection[str]) -> None:
        """Record the present starts, so that the next application master does not count these tasks as lost.

        The event log has a single count for all tasks of a type.
        """
        starts = {name: start for name in types if (start := max(task.start for task in self._tasks[name]))}
        for name, start in starts.items():
            for task in self._tasks[name]:
                if not task.done:
                    task.start = task.start_at_reset = start
        if starts:
            self._state.note("anew", f"{', '.join(starts)} to begin anew", data={"starts_at_reset": starts})

    def check(self, now: float) -> None:
        """Open the next stage if it is due. End the job if it never can be."""
        if not self._waiting or self._state.phase is JobState.FINISHING:
            return
        self._waiting = {name: waits for name, waits in self._waiting.items() if self._waits(name)}
        if self._state.phase is not JobState.RUNNING:
            self._check_hopeless(now)  # no task may be left that could make the job run
            return
        due = [name for name, waits in self._waiting.items() if all(wait.over for wait in waits)]
        if due:
            self._since = None
            self._open([task for name in due for task in self._tasks[name] if task.waits_for_types], now)
        elif self._waiting:
            self._check_hopeless(now)
            self._check_time(now)

    def _open(self, tasks: Sequence[Task], now: float) -> None:
        names = ", ".join(dict.fromkeys(task.type for task in tasks))
        self._state.note("stage", f"{names}: all that it waited for is there")
        for task in tasks:
            task.waits_for_types = False
        if any(in_cluster(task.role) for task in tasks) and not self._state.first_come:
            self._containers.ask_for(tasks, now)
            self._restarts.prepare_start(now)
        else:
            self._state.emit(self._containers.gang.ask(tasks))
            self._restarts.begin_each(tasks, now)

    def _check_hopeless(self, now: float) -> None:
        for name, waits in self._waiting.items():
            for wait in waits:
                lost = wait.hopeless
                if lost and lost.failure:
                    message = f"{name} waits for {wait.other}, and {lost.name} was given up: {lost.failure.message}"
                    self._completion.fail(attrs.evolve(lost.failure, message=message), now)
                    return

    def _check_time(self, now: float) -> None:
        self._since = now if self._since is None else self._since
        limit = self._state.job.timeouts.dependency
        if limit is not None and now - self._since >= limit and self._state.verdict is None:
            message = f"after {limit:g} s (timeouts.dependency) {'; '.join(self.describe())}"
            self._completion.fail(Failure(FailureKind.DEPENDENCY_TIMEOUT, message), now)

    def describe(self) -> Iterator[str]:
        """Yield which types wait for which milestones, as text."""
        for name, waits in self._waiting.items():
            missing = [f"{wait.other} {_IN_WORDS[wait.milestone]}" for wait in waits if not wait.over]
            if missing and self._waits(name):
                yield f"{name} waits for {' and '.join(missing)}"

    def _waits(self, name: str) -> bool:
        return any(task.waits_for_types for task in self._tasks[name])


@attrs.define
class _Wait:
    """A wait for the tasks of one type to reach a milestone."""

    other: str  # the awaited type
    tasks: Sequence[Task]
    milestone: Milestone
    _checked_from: int = 0  # index of a task that had not reached it at the last check

    @property
    def over(self) -> bool:
        """Whether the wait is over.

        Called after every message of thousands of executors, so a check continues at the last index.
        """
        for _ in self.tasks:
            if not self._reached(self.tasks[self._checked_from % len(self.tasks)]):
                return False
            self._checked_from = (self._checked_from + 1) % len(self.tasks)
        return self.hopeless is None

    def _reached(self, task: Task) -> bool:
        if task.given_up or task.left_out or task.state is TaskState.SUCCEEDED:
            return True  # tolerated failures and left-out tasks do not block others
        if self.milestone is Milestone.SUCCEEDED or task.state is not TaskState.RUNNING:
            return False
        return self.milestone is Milestone.STARTED or (task.process is not None and task.process.ready)

    @property
    def hopeless(self) -> Optional[Task]:
        """A task that was given up and so makes the wait endless: a service, or the first task if all are given up."""
        if self.tasks[0].role is Role.SIDECAR:
            return next((task for task in self.tasks if task.given_up), None)
        return self.tasks[0] if all(task.given_up for task in self.tasks) else None
