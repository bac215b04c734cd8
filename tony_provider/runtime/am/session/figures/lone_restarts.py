"""Tasks that start again alone, while the others go on: which part of the work stands still, or is done again."""

from __future__ import annotations

from tony_provider.runtime.am.session.state.session_state import SessionState
from tony_provider.runtime.am.session.state.task import Task
from tony_provider.runtime.protocol.status import JobState


class LoneRestarts:
    """Knows who is down, and who has not got again to where it was. Of the tasks that decide how the job ends."""

    def __init__(self, state: SessionState) -> None:
        self._state = state
        self._tasks = 1  # of which these are parts
        self._restarts = 0  # that were looked at
        self._down: dict[str, int] = {}  # the step that each had reached
        self._behind: dict[str, int] = {}  # the same, of those that work again

    @property
    def down(self) -> float:
        """The part of the tasks that is down, 0 to 1."""
        return len(self._down) / self._tasks if self._down else 0.0

    @property
    def repeating(self) -> float:
        """The part of the tasks that does again what it had done, 0 to 1."""
        return len(self._behind) / self._tasks if self._behind else 0.0

    def look(self, trains: bool) -> None:
        """See who starts again, if anybody does. ``trains``: the job goes on; else all start again together."""
        if not trains:
            self._down, self._behind = {}, {}
        if self._restarts == self._state.restarts or self._state.phase is JobState.RECOVERING:
            return
        self._restarts = self._state.restarts
        if trains:
            tasks = [task for task in self._state.tasks if task.decisive and not task.absent]
            self._tasks = max(1, len(tasks))
            for task in tasks:
                if task.name not in self._down and _starts_again(task):
                    reached = task.progress.step if task.progress else 0
                    self._down[task.name] = max(reached, self._behind.pop(task.name, 0))

    def is_down(self, task: Task) -> bool:
        return task.name in self._down

    def works(self, task: Task) -> None:
        """A task that was down is at work again."""
        if reached := self._down.pop(task.name):
            self._behind[task.name] = reached

    def reported(self, task: Task, step: int) -> None:
        """A task has said how far it is."""
        process = task.process
        if process is None or process.started_at is None or not process.runs or process.stop_by is not None:
            return  # it may be what it had reported before
        if task.name in self._down:
            self.works(task)
        if step >= self._behind.get(task.name, step + 1):
            del self._behind[task.name]


def _starts_again(task: Task) -> bool:
    process = task.process
    if not task.has_begun or task.over or (process is not None and process.succeeded):
        return False
    return not task.runs or (process is not None and process.stop_by is not None)
