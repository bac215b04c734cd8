"""The root cause: which of several failures was the first; later ones are its consequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

import attrs

from tony_provider.runtime.am.session.state.task import Task
from tony_provider.runtime.protocol.status import Failure, FailureKind, TaskState

DOUBT = 0.5  # seconds in which an executor dies with its user process when YARN kills both
SETTLE = 5.0  # seconds that a failure waits for the cluster's word on what may have come before it

_LOST = (FailureKind.CONTAINER_LOST, FailureKind.PREEMPTED)


@attrs.define
class _Trouble:
    failure: Failure
    began: float  # the first sign of it
    since: float  # when it was recorded
    doubtful: bool


class RootCause:
    """Collects the failures of tasks that depend on each other. Times are the session's, in seconds."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._tasks = tasks
        self._troubles: dict[str, _Trouble] = {}

    @property
    def pending(self) -> bool:
        return bool(self._troubles)

    @property
    def reason(self) -> str:
        """The failure that was heard of first, in words; the cause may be another."""
        return next((trouble.failure.message for trouble in self._troubles.values()), "")

    @property
    def kinds(self) -> set[FailureKind]:
        return {trouble.failure.kind for trouble in self._troubles.values()}

    def failed(self, task: Task, failure: Failure, now: float, *, doubtful: bool = False) -> None:
        """Record a failure.

        Doubtful is one by a signal: it waits for the end of the container, which may tell the real reason, as long as
        that may come.
        """
        task.failure = failure
        task.state = TaskState.LOST if failure.kind in _LOST else TaskState.FAILED
        began = now if task.trouble_at is None else task.trouble_at
        self._troubles[task.name] = _Trouble(failure, began, now, doubtful)

    def settled(self, task: Task, better: Optional[Failure]) -> bool:
        """Record that the end of a failed task's container is known; returns whether that was waited for."""
        trouble = self._troubles.get(task.name)
        if trouble is None or not trouble.doubtful:
            return False
        trouble.doubtful = False
        if better:
            task.failure = trouble.failure = better
        return True

    def cause(self, now: float) -> Optional[Task]:
        """The task that failed first, once that can be said.

        A task whose stream broke without a word before another one failed is waited for: it may be the cause.
        """
        if not self._troubles:
            return None
        first = min(trouble.since for trouble in self._troubles.values())
        if now < first + SETTLE and any(task.silent for task in self._tasks):
            return None
        if any(self._in_doubt(task, now) for task in self._tasks):
            return None
        began = {name: trouble.began for name, trouble in self._troubles.items()}
        return min((task for task in self._tasks if task.name in began), key=lambda task: began[task.name])

    def _in_doubt(self, task: Task, now: float) -> bool:
        trouble = self._troubles.get(task.name)
        if trouble is None or not trouble.doubtful:
            return False
        return now < trouble.since + (DOUBT if task.connected else SETTLE)

    def reset(self) -> None:
        """Forget the failures: it is decided what comes of them."""
        self._troubles.clear()
