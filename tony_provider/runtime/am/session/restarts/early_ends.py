"""Parameter servers that end by themselves with exit code 0, which is a failure unless the job is about to end.

A program may end them after the chief has finished. Then all deciding tasks succeed within seconds, or upload their
results. Otherwise the program ends its parameter servers too early, and would do so again.
"""

from __future__ import annotations

from tony_provider.runtime.am.session.job_completion import JobCompletion
from tony_provider.runtime.am.session.restarts import failures
from tony_provider.runtime.am.session.state.process_state import ProcessState
from tony_provider.runtime.am.session.state.session_state import SessionState
from tony_provider.runtime.am.session.state.task import Task
from tony_provider.runtime.protocol import timing
from tony_provider.runtime.protocol.status import Failure, JobState, TaskState
from tony_provider.runtime.ranks import in_cluster


class EarlyEnds:
    """The part of the session that judges parameter servers which ended by themselves.

    Times are the session's, in seconds.
    """

    def __init__(self, state: SessionState, completion: JobCompletion) -> None:
        self._state = state
        self._completion = completion
        # An executor may report the end of another task only with its next heartbeat.
        self._wait = state.job.timeouts.grace + timing.heartbeat_interval(state.job.size)
        self._ended: dict[str, tuple[ProcessState, float]] = {}  # by task, and when

    def ended(self, task: Task, process: ProcessState, now: float) -> None:
        """Record that a parameter server has ended with exit code 0 without an order to stop."""
        task.enter(TaskState.SUCCEEDED)
        self._ended[task.name] = process, now
        self._state.note("early_end", f"the tasks that decide have {self._wait:g} s to succeed as well", task)

    def explains(self, task: Task, failure: Failure, now: float) -> bool:
        """Return whether an early end has caused a task's failure, which then needs no other handling."""
        if not in_cluster(task.role) or not self._left():
            return False
        task.fail(failure, TaskState.FAILED)
        self._state.note("failed", failure.message, task)
        if task.decisive:
            self._fail(now)
        return True

    def check(self, now: float) -> None:
        """End the job if the deciding tasks have not succeeded in time."""
        if self._state.phase is not JobState.RUNNING or not self._ended:
            return
        left = self._left()
        if left and now >= min(since for _, since in left.values()) + self._wait and not self._end_in_sight():
            self._fail(now)

    def _left(self) -> dict[str, tuple[ProcessState, float]]:
        """Return the early ends of processes that are still the newest of their tasks."""
        known = self._state.by_name
        self._ended = {name: left for name, left in self._ended.items() if known[name].process is left[0]}
        return self._ended

    def _end_in_sight(self) -> bool:
        """Return whether all deciding tasks succeed soon, or the cluster is about to report another failure."""
        if any(task.silent for task in self._state.tasks):
            return True
        return not any(_is_undecided(task) for task in self._state.tasks)

    def _fail(self, now: float) -> None:
        """Fail the job with the first early end as its cause."""
        name, (_, since) = min(self._left().items(), key=lambda item: item[1][1])
        task = self._state.by_name[name]
        others = [other for other in self._state.tasks if _is_undecided(other)]
        failure = failures.of_early_end(task, others, now - since)
        task.fail(failure, TaskState.FAILED)
        self._state.note("failed", failure.message, task)
        self._completion.fail(failure, now)


def _is_undecided(task: Task) -> bool:
    """Return whether a task decides the job's result, uses parameter servers, and is not about to succeed."""
    decides = task.decisive and in_cluster(task.role) and not task.absent
    return decides and task.state is not TaskState.SUCCEEDED and not task.is_uploading
