"""Find the root cause: the first of several failures. Later failures are its consequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

import attrs

from tony_provider.runtime.am.session.state.task import Task
from tony_provider.runtime.protocol.status import Failure, FailureKind, TaskState

DOUBT = 0.5  # seconds in which an executor dies with its user process when YARN kills both
COMPARISON = 2.0  # seconds in which tasks of one type that start together fail for the same cause
SETTLE = 5.0  # seconds that a failure waits for the cluster's report of an earlier failure, or a stall for stacks

_LOST = (FailureKind.CONTAINER_LOST, FailureKind.PREEMPTED)


@attrs.define
class _Recorded:
    failure: Failure
    began: float  # time of its first symptom
    since: float  # when it was recorded
    doubtful: bool
    peers: Sequence[Task]  # that show whether only this task's node is the cause


class RootCause:
    """Collects the failures of tasks that depend on each other. Times are the session's, in seconds."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._tasks = tasks
        self._recorded: dict[str, _Recorded] = {}

    @property
    def pending(self) -> bool:
        return bool(self._recorded)

    @property
    def reason(self) -> str:
        """The message of the failure that was reported first. It may not be the cause."""
        return next((recorded.failure.message for recorded in self._recorded.values()), "")

    @property
    def kinds(self) -> set[FailureKind]:
        return {recorded.failure.kind for recorded in self._recorded.values()}

    @property
    def compares(self) -> bool:
        """Whether the decision waits for tasks that may fail for the same cause. Until then they are not stopped."""
        return any(recorded.peers for recorded in self._recorded.values())

    def failed(
        self, task: Task, failure: Failure, now: float, *, doubtful: bool = False, peers: Sequence[Task] = ()
    ) -> None:
        """Record a failure.

        ``doubtful``: a signal has ended the process. The end of its container may show the real reason, so the decision
        waits for it. ``peers``: the decision also waits for these tasks to fail in the same way.
        """
        task.fail(failure, TaskState.LOST if failure.kind in _LOST else TaskState.FAILED)
        began = now if task.trouble_at is None else task.trouble_at
        self._recorded[task.name] = _Recorded(failure, began, now, doubtful, peers)

    def settled(self, task: Task, better: Optional[Failure]) -> bool:
        """Record the end of a failed task's container. Return whether the decision has waited for it."""
        recorded = self._recorded.get(task.name)
        if recorded is None or not recorded.doubtful:
            return False
        recorded.doubtful = False
        if better:
            task.failure = recorded.failure = better
        return True

    def cause(self, now: float) -> Optional[Task]:
        """Return the task that failed first, or None if that is not known yet.

        A task whose stream broke before another task failed may be the cause, so its report is awaited.
        """
        if not self._recorded:
            return None
        first = min(recorded.since for recorded in self._recorded.values())
        if now < first + SETTLE and any(task.silent for task in self._tasks):
            return None
        if any(self._in_doubt(task, now) for task in self._tasks):
            return None
        if FailureKind.STALLED in self.kinds and now < first + SETTLE and any(map(_owes_stacks, self._tasks)):
            return None
        began = {name: recorded.began for name, recorded in self._recorded.items()}
        return min((task for task in self._tasks if task.name in began), key=lambda task: began[task.name])

    def _in_doubt(self, task: Task, now: float) -> bool:
        recorded = self._recorded.get(task.name)
        if recorded and now < recorded.since + COMPARISON and any(peer.runs for peer in recorded.peers):
            return True
        if recorded is None or not recorded.doubtful:
            return False
        return now < recorded.since + (DOUBT if task.connected else SETTLE)

    def reset(self) -> None:
        """Forget the failures after the decision about them."""
        self._recorded.clear()


def _owes_stacks(task: Task) -> bool:
    """Return whether the stacks of a task's process are still to come."""
    process = task.process
    if process is None or process.stacks is not None or not process.runs:
        return False
    return process.stop_by is not None and task.connected
