"""The heartbeat sensor's condition: a job's tasks are heard of, and take their steps as fast as they should."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from tony_provider.cluster.base import ApplicationState
from tony_provider.runtime.protocol.status import JobState, JobStatus, TaskState, TaskStatus
from tony_provider.watching.job_search import JobSighting
from tony_provider.watching.sensor_conditions import SensorConditions, SensorEnd, SensorOutcome, state_of

_MOST_NAMED = 10  # tasks in one message


@attrs.frozen
class HeartbeatLimits:
    """What the heartbeat sensor demands of the tasks that it judges; a limit of None is not judged."""

    max_heartbeat_age: float | None  # seconds
    min_steps_per_second: float | None
    slow_for: float  # seconds that a task may be slower than that
    task_types: Sequence[str] | None  # None: all


class HeartbeatCondition(SensorConditions):
    """The heartbeat sensor's condition: met when the job has succeeded, missed when a task is silent or slow for long.

    Tasks are judged while the job is RUNNING only: what restarts, or waits for containers, is not heard of. Two clocks
    are never compared: a heartbeat's age is the status's own time less the heartbeat's, both by the clock of the
    application master's node, and what has gone by here since that status was first seen.
    """

    def __init__(self, *arguments: Any, limits: HeartbeatLimits, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._limits = limits

    def _of_live(self, seen: JobSighting, now: float) -> SensorOutcome | None:
        if not seen.whole:
            return None  # the status is one that was judged already
        status, application = seen.status, seen.application
        runs = application is not None and application.state is ApplicationState.RUNNING
        if status is None or status.state is not JobState.RUNNING or not runs:
            self.memory.forget_pulse()
            return None
        if not (stale := [*self._unheard(status, now), *self._slow(status, now)]):
            return None
        more = f"; and {len(stale) - _MOST_NAMED} more" if len(stale) > _MOST_NAMED else ""
        return self._outcome(
            SensorEnd.STALE, seen, f"{status.application_id}: " + "; ".join(stale[:_MOST_NAMED]) + more
        )

    def _is_good_end(self, seen: JobSighting) -> bool:
        return state_of(seen) == JobState.SUCCEEDED.value

    def _unheard(self, status: JobStatus, now: float) -> Iterator[str]:
        if status.updated_ms != self.memory.updated_ms:
            self.memory.updated_ms, self.memory.updated_seen = status.updated_ms, now
        if (limit := self._limits.max_heartbeat_age) is None:
            return
        silence = now - self.memory.updated_seen
        ages = {
            _named(task): (status.updated_ms - task.heartbeat_ms) / 1000 + silence
            for task in self._running(status)
            if task.heartbeat_ms is not None
        }
        unheard = {name: age for name, age in ages.items() if age > limit}
        # A task's last heartbeat is some seconds older than its master's last word: who is silent is told all the same.
        if silence > (limit / 2 if unheard else limit):
            yield f"its application master has told nothing for {silence:.0f} s"
        for name, age in unheard.items():
            yield f"{name} was last heard of {age:.0f} s ago"

    def _slow(self, status: JobStatus, now: float) -> Iterator[str]:
        if (limit := self._limits.min_steps_per_second) is None:
            return
        slow = {task.name: task for task in self._running(status) if _speed(task, limit) < limit}
        since = self.memory.slow_since
        self.memory.slow_since = {name: since.get(name, now) for name in slow}
        for name, task in slow.items():
            seconds = now - self.memory.slow_since[name]
            if seconds > self._limits.slow_for:
                yield f"{_named(task)} takes {_speed(task, limit):.3g} steps per second, for {seconds:.0f} s"

    def _running(self, status: JobStatus) -> Iterator[TaskStatus]:
        types = self._limits.task_types
        for task in status.tasks:
            if task.state is TaskState.RUNNING and (types is None or task.type in types):
                yield task


def _speed(task: TaskStatus, otherwise: float) -> float:
    """``otherwise`` of one that has not reported two steps yet, or has reported its last."""
    progress = task.progress
    if progress is None or progress.steps_per_second is None:
        return otherwise
    if progress.total_steps and progress.step >= progress.total_steps:
        return otherwise
    return progress.steps_per_second


def _named(task: TaskStatus) -> str:
    return f"{task.name} on {task.node}" if task.node else task.name
