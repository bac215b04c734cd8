"""Conditions that sensors wait for. A condition judges the observations of a job, one after the other.

Conditions are used both in a worker, where each poke may be a separate process, and in a triggerer.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any

import attrs

from tony_provider.cluster.interface import ApplicationState
from tony_provider.runtime.common.quantities import number, span
from tony_provider.runtime.protocol.status import FinalStatus, JobState, JobStatus, TaskState, TaskStatus
from tony_provider.watching.job_poller import FoundApplication, JobObservation, JobTarget
from tony_provider.watching.job_watch import FORGOTTEN_SECONDS, OUTAGE_SECONDS, outage_start
from tony_provider.watching.observation import TrainTaskState, UnansweredCalls
from tony_provider.watching.progress_log import ProgressLog, ReachabilityLog


class SensorEnd(StrEnum):
    """Why a sensor has stopped watching."""

    REACHED = "reached"  # the condition is met
    MISSED = "missed"  # the condition can no longer be met
    STALE = "stale"  # the job runs, but does not make the expected progress
    START_TIMEOUT = "start_timeout"  # there was no application within start_timeout
    TIMEOUT = "timeout"  # the sensor's timeout or its execution_timeout has passed


@attrs.frozen
class SensorResult:
    """The return value of a sensor. It always contains all keys. A key is ``None`` if its value is unknown."""

    application_id: str  # ID of the last application that the sensor observed
    state: str  # state of the job, or state of the application if the job reports no state
    step: int | None = None  # last step that the chief or rank 0 reported
    total_steps: int | None = None  # total number of steps that the chief or rank 0 last reported
    steps_per_second: float | None = None  # last measured speed of the training, in steps per second

    @classmethod
    def of(cls, seen: JobObservation, application_id: str) -> SensorResult:
        status = seen.status
        if status is None:
            return cls(application_id, state_of(seen))
        return cls(application_id, state_of(seen), status.step, status.total_steps, status.steps_per_second)


@attrs.frozen
class SensorOutcome:
    """How a sensor's wait has ended, with its return value if the condition is met, otherwise with a message."""

    end: SensorEnd
    message: str = ""
    found: FoundApplication | None = None
    result: SensorResult | None = None


@attrs.define
class SensorMemory:
    """The state that a condition keeps between two observations, possibly in different processes."""

    application_id: str | None = None  # last application that was watched
    absent_since: float | None = None  # epoch seconds since when no application exists; initially the sensor's start
    ended_since: float | None = None
    outage_since: float | None = None
    updated_ms: int | None = None  # time of the newest status by its master's clock; None before the first one
    updated_seen: float = 0.0  # local time at which that status was first seen, in epoch seconds
    slow_since: dict[str, float] = attrs.field(factory=dict)  # by task: since when it is slow, in epoch seconds

    def forget_pulse(self) -> None:
        self.updated_ms = None
        self.slow_since = {}


class SensorConditions(ABC):
    """Base class of sensor conditions. Judges each observation, and ends the wait if no application will start.

    :param start_timeout: maximum seconds without an application; None for no limit.
    :param log: called with lines for the task's log.
    """

    def __init__(
        self,
        target: JobTarget,
        memory: SensorMemory,
        *,
        start_timeout: float | None,
        log: Callable[[str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.memory = memory
        self._target = target
        self._start_timeout = start_timeout
        self._log = log
        self._clock = clock
        self._progress = ProgressLog()
        self._silence = ReachabilityLog(UnansweredCalls(clock), log, clock)
        self._found: FoundApplication | None = None
        self._told = ""

    def judge(self, seen: JobObservation, task_states: TrainTaskState) -> SensorOutcome | None:
        """Return the sensor's outcome after this observation, or None to continue waiting.

        ``task_states`` must be older than the observation: if the task was already over, the observation shows its last
        application. If the cluster or store does not answer, the wait continues for OUTAGE_SECONDS. After that, the
        ClusterError or StorageError is raised.
        """
        now = self._clock()
        if seen.outage is not None:
            self.memory.forget_pulse()  # the job may have had the same outage: measure its silence from its next status
            since = self.memory.outage_since
            self.memory.outage_since = outage_start(seen.outage, since, now)
            self._silence.look(seen)
            return None
        self._answers(now)
        self._tell_of(seen)
        self._silence.look(seen)
        if seen.is_live:
            self.memory.absent_since = self.memory.ended_since = None
            return self._of_live(seen, now)
        self.memory.forget_pulse()
        return self._of_ended(seen, task_states, now) if seen.has_ended else self._of_absent(seen, task_states, now)

    @abstractmethod
    def _of_live(self, seen: JobObservation, now: float) -> SensorOutcome | None: ...

    @abstractmethod
    def _is_good_end(self, seen: JobObservation) -> bool: ...

    def _outcome(self, end: SensorEnd, seen: JobObservation, message: str = "") -> SensorOutcome:
        result = SensorResult.of(seen, seen.found.application_id) if seen.found is not None else None
        return SensorOutcome(end, message, seen.found, result)

    def _of_ended(self, seen: JobObservation, task_states: TrainTaskState, now: float) -> SensorOutcome | None:
        self.memory.absent_since = None
        if self._is_good_end(seen):
            return self._outcome(SensorEnd.REACHED, seen)
        if self.memory.ended_since is None:
            self.memory.ended_since = now
        told = _how_ended(seen)
        if state_of(seen) != JobState.SUCCEEDED.value and self._may_be_followed(
            task_states, now - self.memory.ended_since
        ):
            task = f" (the training task is {task_states.state})" if task_states.state else ""
            self._tell_once(f"{told}; waiting for the training's next application{task}")
            return None
        return self._outcome(SensorEnd.MISSED, seen, told)

    def _may_be_followed(self, task_states: TrainTaskState, seconds: float) -> bool:
        """Whether another application may start, ``seconds`` after the end of this one."""
        if self._target.identity is None:
            return False
        if task_states.is_over is None:  # Airflow did not answer in time
            return seconds < (OUTAGE_SECONDS if self._start_timeout is None else self._start_timeout)
        return not task_states.is_over

    def _of_absent(self, seen: JobObservation, task_states: TrainTaskState, now: float) -> SensorOutcome | None:
        self.memory.ended_since = None
        if self.memory.absent_since is None:
            self.memory.absent_since = now
        seconds = now - self.memory.absent_since
        state = f"; the training task is {task_states.state}" if task_states.state else ""
        if task_states.is_over:
            return self._outcome(SensorEnd.MISSED, seen, f"there is no {self._target}, and none will start{state}")
        self._tell_once(f"There is no {self._target} now; waiting for it{state}")
        if self._start_timeout is not None:
            if seconds <= self._start_timeout:
                return None
            message = f"there was no {self._target} within start_timeout ({self._start_timeout:g} s){state}"
            return self._outcome(SensorEnd.START_TIMEOUT, seen, message)
        was_there = self._target.application_id is not None or seen.found is not None
        if was_there and task_states.is_over is None and seconds > FORGOTTEN_SECONDS:
            name = seen.found.application_id if seen.found is not None else self._target
            return self._outcome(
                SensorEnd.MISSED,
                seen,
                f"the cluster does not know {name}, and its result is not in the staging directory",
            )
        return None

    def _answers(self, now: float) -> None:
        """Log the end of an outage that began in another process. ReachabilityLog logs the end of all other outages."""
        if self.memory.outage_since is not None and not self._silence.lines:
            self._log(f"The cluster and its store answer again, after {span(now - self.memory.outage_since)}")
        self.memory.outage_since = None

    def _tell_of(self, seen: JobObservation) -> None:
        if seen.found is not None and seen.found != self._found:
            self._log(f"Watching {seen.found.application_id}")
            if seen.found.identity is None:
                self._log("The staging directory has no files of the job, so only the cluster's data are shown")
            self._found, self._progress = seen.found, ProgressLog()
            self._silence.begin_anew()
            if seen.found.application_id != self.memory.application_id:
                self.memory.application_id = seen.found.application_id
                self.memory.forget_pulse()
        if seen.unreadable is not None:
            self._tell_once(f"The job's status cannot be read: {seen.unreadable}")
        if seen.application is not None:
            for line in self._progress.lines(seen.application, seen.status):
                self._log(line)

    def _tell_once(self, line: str) -> None:
        if line != self._told:
            self._told = line
            self._log(line)


def state_of(seen: JobObservation) -> str:
    """Return the job's state, the application's if the job reports none, or ABSENT if neither is known."""
    application, status = seen.application, seen.status
    if status is not None and status.state.is_final:
        return status.state.value
    if application is None:
        return "ABSENT"
    if application.state is ApplicationState.FINISHED:
        return (application.final_status or FinalStatus.FAILED).value
    if application.state is ApplicationState.RUNNING and status is not None:
        return status.state.value
    return str(application.state)


def _how_ended(seen: JobObservation) -> str:
    status, application = seen.status, seen.application
    name = seen.found.application_id if seen.found is not None else "it"
    why = application.diagnostics.strip() if application is not None else ""
    if status is not None and status.state.is_final:
        why = (status.failure.full_message if status.failure else status.message) or why
    return f"{name} has ended: {state_of(seen)}" + (f", {why}" if why else "")


class StateCondition(SensorConditions):
    """Condition of the job sensor: met when the job is in one of ``states``.

    :param states: names of states, see ``state_names``.
    """

    def __init__(self, *arguments: Any, states: frozenset[str], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._states = states

    def _of_live(self, seen: JobObservation, now: float) -> SensorOutcome | None:
        return self._outcome(SensorEnd.REACHED, seen) if self._states & _states_seen(seen) else None

    def _is_good_end(self, seen: JobObservation) -> bool:
        return bool(self._states & _states_seen(seen))


def _states_seen(seen: JobObservation) -> set[str]:
    """Return all names of states that the job is in now.

    The application is already RUNNING when only its master runs. So its state RUNNING counts only if the staging
    directory has no files of the job, and thus no status.
    """
    states = {state_of(seen)}
    if seen.application is not None and seen.application.state is not ApplicationState.RUNNING:
        states.add(seen.application.state.value)
    elif seen.status is None and seen.found is not None and seen.found.identity is not None:
        states.discard(ApplicationState.RUNNING.value)  # its master has not reported a status yet
    return states


_MOST_NAMED = 10  # maximum tasks named in one message


@attrs.frozen
class HeartbeatLimits:
    """Limits that the heartbeat sensor applies to the selected tasks. A limit of None is not checked."""

    max_heartbeat_age: float | None  # seconds
    min_steps_per_second: float | None
    slow_for: float  # seconds for which a task may be slower than ``min_steps_per_second``
    task_types: list[str] | None  # None for all


class HeartbeatCondition(SensorConditions):
    """Condition of the heartbeat sensor: met when the job succeeds.

    The sensor fails if a task is silent or slow for too long. Tasks are judged only while the job is RUNNING, because
    tasks that restart or wait for containers send no heartbeats. Times of two clocks are never compared. A heartbeat's
    age is the status's time minus the heartbeat's time, both by the clock of the application master's node, plus the
    local time since that status was first seen.
    """

    def __init__(self, *arguments: Any, limits: HeartbeatLimits, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._limits = limits

    def _of_live(self, seen: JobObservation, now: float) -> SensorOutcome | None:
        if not seen.whole:
            return None  # this status has already been judged
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

    def _is_good_end(self, seen: JobObservation) -> bool:
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
        # Heartbeats are some seconds older than the status that reports them. So if the master is silent, tasks exceed
        # the limit before the master does. Therefore, if a task looks silent, report the master as silent from half of
        # the limit on.
        if silence > (limit / 2 if unheard else limit):
            yield f"its application master has not updated the status for {span(silence)}"
        for name, age in unheard.items():
            yield f"the last heartbeat of {name} was {span(age)} ago"

    def _slow(self, status: JobStatus, now: float) -> Iterator[str]:
        if (limit := self._limits.min_steps_per_second) is None:
            return
        slow = {task.name: task for task in self._running(status) if _speed(task, limit) < limit}
        since = self.memory.slow_since
        self.memory.slow_since = {name: since.get(name, now) for name in slow}
        for name, task in slow.items():
            seconds = now - self.memory.slow_since[name]
            if seconds > self._limits.slow_for:
                yield f"{_named(task)} has made {number(_speed(task, limit))} steps per second for {span(seconds)}"

    def _running(self, status: JobStatus) -> Iterator[TaskStatus]:
        types = self._limits.task_types
        for task in status.tasks:
            if task.state is TaskState.RUNNING and (types is None or task.type in types):
                yield task


def _speed(task: TaskStatus, otherwise: float) -> float:
    """Return the task's steps per second, or ``otherwise`` before its second step and after its last step."""
    progress = task.progress
    if progress is None or progress.steps_per_second is None:
        return otherwise
    if progress.total_steps and progress.step >= progress.total_steps:
        return otherwise
    return progress.steps_per_second


def _named(task: TaskStatus) -> str:
    return f"{task.name} on {task.node}" if task.node else task.name


@attrs.frozen
class SensorCriteria:
    """Criteria of a sensor: either ``states`` of the job, or ``heartbeats``, the limits for tasks of a running job."""

    start_timeout: float | None  # maximum seconds without an application; None for no limit
    states: list[str] | None = None
    heartbeats: HeartbeatLimits | None = None

    def condition(self, target: JobTarget, memory: SensorMemory, log: Callable[[str], None]) -> SensorConditions:
        limit = self.start_timeout
        if self.heartbeats is not None:
            return HeartbeatCondition(target, memory, start_timeout=limit, log=log, limits=self.heartbeats)
        states = frozenset(self.states or ())
        return StateCondition(target, memory, start_timeout=limit, log=log, states=states)
