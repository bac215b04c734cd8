"""Task types that wait for others: when their containers are asked for, and their tasks begin.

The types that wait for nobody are the first stage: they begin as the job's ``start`` says. No container is asked for a
type that waits, so that no device is held by a task that cannot begin. A gang that has waited is brought together then,
as at the job's start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Optional

from tony_provider.runtime.am.session.containers.containers import Containers
from tony_provider.runtime.am.session.job_completion import JobCompletion
from tony_provider.runtime.am.session.restarts.restarts import Restarts
from tony_provider.runtime.am.session.state.session_state import SessionState
from tony_provider.runtime.am.session.state.task import Task
from tony_provider.runtime.protocol.status import Failure, FailureKind, JobState, TaskState
from tony_provider.runtime.ranks import in_cluster
from tony_provider.runtime.spec.model import Milestone

_IN_WORDS = {
    Milestone.STARTED: "to have started",
    Milestone.READY: "to be ready",
    Milestone.SUCCEEDED: "to have succeeded",
}


class Stages:
    """The part of the session that lets task types begin once those that they wait for are far enough.

    Times are the session's, in seconds.
    """

    def __init__(
        self,
        state: SessionState,
        containers: Containers,
        completion: JobCompletion,
        restarts: Restarts,
    ) -> None:
        self._state = state
        self._containers = containers
        self._completion = completion
        self._restarts = restarts
        self._waiting = {name: after for name in state.job.tasks if (after := state.job.waits_for(name))}
        self._since: Optional[float] = None  # somebody waits, and nobody has begun since

    def check(self, now: float) -> None:
        """Open the next stage once it may be, or end the job because it cannot be."""
        if not self._waiting or self._state.phase is not JobState.RUNNING:
            return
        self._waiting = {name: after for name, after in self._waiting.items() if any(self._tasks(name, waiting=True))}
        due = [name for name in self._waiting if not any(self._missing(name))]
        if due:
            self._since = None
            self._open([task for name in due for task in self._tasks(name, waiting=True)], now)
        elif self._waiting:
            self._look_at_hopeless(now)
            self._look_at_time(now)

    def _open(self, tasks: Sequence[Task], now: float) -> None:
        names = ", ".join(dict.fromkeys(task.type for task in tasks))
        self._state.note("stage", f"{names}: all that it waited for is there")
        for task in tasks:
            task.waits = False
        if any(in_cluster(task.role) for task in tasks) and not self._state.first_come:
            self._containers.ask_for(tasks, now)
            self._restarts.prepare_start(now)
        else:
            self._state.emit(self._containers.gang.ask(tasks))
            self._restarts.begin_each(tasks, now)

    def _look_at_hopeless(self, now: float) -> None:
        for name in self._waiting:
            for other, milestone in self._missing(name):
                lost = next((task for task in self._tasks(other) if task.given_up), None)
                if lost and milestone is not Milestone.SUCCEEDED:
                    why = lost.failure.message if lost.failure else ""
                    message = f"{name} waits for {other}, and {lost.name} was given up: {why}"
                    self._completion.fail(Failure(FailureKind.USER, message, lost.name), now)
                    return

    def _look_at_time(self, now: float) -> None:
        self._since = now if self._since is None else self._since
        limit = self._state.job.timeouts.dependency
        if limit is not None and now - self._since >= limit and self._state.verdict is None:
            message = f"after {limit:g} s (timeouts.dependency) {'; '.join(self.describe())}"
            self._completion.fail(Failure(FailureKind.DEPENDENCY_TIMEOUT, message), now)

    def describe(self) -> Iterator[str]:
        """Who waits for whom, in words."""
        for name in self._waiting:
            missing = [f"{other} {_IN_WORDS[milestone]}" for other, milestone in self._missing(name)]
            if missing and any(self._tasks(name, waiting=True)):
                yield f"{name} waits for {' and '.join(missing)}"

    def _missing(self, name: str) -> Iterator[tuple[str, Milestone]]:
        """What a type still waits for."""
        for other, milestone in self._waiting[name].items():
            if not self._reached(list(self._tasks(other)), milestone):
                yield other, milestone

    @staticmethod
    def _reached(tasks: Sequence[Task], milestone: Milestone) -> bool:
        if milestone is Milestone.STARTED:
            return all(task.state is TaskState.SUCCEEDED or task.state is TaskState.RUNNING for task in tasks)
        if milestone is Milestone.READY:
            return all(task.state is TaskState.SUCCEEDED or _is_ready(task) for task in tasks)
        left = [task for task in tasks if not task.given_up]  # failures that are tolerated hold nobody up
        return bool(left) and all(task.state is TaskState.SUCCEEDED for task in left)

    def _tasks(self, name: str, *, waiting: bool = False) -> Iterator[Task]:
        return (task for task in self._state.tasks if task.type == name and (task.waits or not waiting))


def _is_ready(task: Task) -> bool:
    return task.state is TaskState.RUNNING and task.process is not None and task.process.ready
