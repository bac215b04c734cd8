"""Which of several failures was the first: it is the cause, later ones are its consequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from tony_provider.runtime.am.session.task import Task
from tony_provider.runtime.protocol.status import Failure, FailureKind, TaskState
from tony_provider.runtime.spec.model import Role

SETTLE = 5.0  # seconds that a failure waits for the cluster's word on others that may have come before it


class Judge:
    """Collects the failures of tasks that matter. Times are the session's, in seconds."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._tasks = [task for task in tasks if task.role is not Role.SIDECAR]
        self._doubtful: set[str] = set()  # killed by a signal: the end of the container may tell the real reason
        self._judge_at: Optional[float] = None

    @property
    def pending(self) -> bool:
        return self._judge_at is not None

    def is_doubtful(self, task: Task) -> bool:
        return task.name in self._doubtful

    def failed(self, task: Task, failure: Failure, now: float, *, doubtful: bool) -> None:
        """Record a failure. A doubtful one waits for the container's end, which may give a better reason."""
        task.failure = failure
        task.state = TaskState.LOST if failure.kind is FailureKind.CONTAINER_LOST else TaskState.FAILED
        if task.trouble_at is None:
            task.trouble_at = now
        if task.role is Role.SIDECAR:
            return
        if doubtful:
            self._doubtful.add(task.name)
        if self._judge_at is None:
            self._judge_at = now + SETTLE

    def settled(self, task: Task, better: Optional[Failure]) -> None:
        """The end of a doubtful task's container is known."""
        self._doubtful.discard(task.name)
        if better:
            task.failure = better

    def cause(self, now: float) -> Optional[Failure]:
        """Why the job fails, once that can be said.

        A task whose stream broke without a word before another one failed is waited for: it may be the cause.
        """
        if self._judge_at is None:
            return None
        open_questions = self._doubtful or any(task.silent for task in self._tasks)
        if open_questions and now < self._judge_at:
            return None
        failed = [(task.trouble_at or now, task.failure) for task in self._tasks if task.failure]
        return min(failed, key=lambda pair: pair[0])[1]
