"""Stopping tasks, bounded in time: the executor is asked first, then the container is taken away."""

from __future__ import annotations

from collections.abc import Sequence

from tony_provider.runtime.am.session.actions import Action, Release, ShutdownTask
from tony_provider.runtime.am.session.task import Task
from tony_provider.runtime.protocol.status import TaskState
from tony_provider.runtime.protocol.timing import KEEP_LOGS, RELEASE_WAIT


class Ending:
    """Times are the session's, in seconds."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._tasks = tasks

    @property
    def done(self) -> bool:
        """No container is left that somebody could still wait for."""
        return all(task.container is None or task.container_ended for task in self._tasks)

    def stop(self, task: Task, now: float, grace: float, reason: str) -> list[Action]:
        """Have one task end. Again with a shorter grace, it hurries."""
        task.told_to_stop = True
        if task.container is None or task.container_ended:
            return self._stopped(task)
        if not task.launched:
            task.released = task.container_ended = True
            return [Release((task.container.id,)), *self._stopped(task)]
        if not task.connected or task.state is TaskState.LOST:
            return self._release(task, now)
        process_runs = task.end is None and not task.ended
        deadline = now + (grace if process_runs else 0.0) + KEEP_LOGS
        if task.stop_deadline is None or deadline < task.stop_deadline:
            task.stop_deadline = deadline
        return [ShutdownTask(task.name, grace, reason)]

    def hurry(self, now: float) -> list[Action]:
        """Take away every container that is still there."""
        return [
            action
            for task in self._tasks
            if task.container and not task.container_ended and not task.released
            for action in self._release(task, now)
        ]

    def tick(self, now: float) -> list[Action]:
        """Lose patience with tasks that do not end."""
        actions: list[Action] = []
        for task in self._tasks:
            if task.stop_deadline is None or now < task.stop_deadline or task.container_ended:
                continue
            if task.released:
                task.container_ended = True  # the cluster stops it when the application ends, at the latest
                self._stopped(task)
            else:
                actions += self._release(task, now)
        return actions

    def _release(self, task: Task, now: float) -> list[Action]:
        if task.released or task.container is None:
            return []
        task.released = True
        task.stop_deadline = now + RELEASE_WAIT
        return [Release((task.container.id,))]

    @staticmethod
    def _stopped(task: Task) -> list[Action]:
        if not task.ended:
            task.state = TaskState.STOPPED
        return []
