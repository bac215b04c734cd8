"""The triggers of sensors: they watch a job in the triggerer, without a worker slot."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import attrs
from airflow.triggers.base import BaseTrigger, TriggerEvent

from tony_provider.cluster.errors import ClusterError
from tony_provider.cluster.training.identity import Identity
from tony_provider.configuration import ConfigurationProblem
from tony_provider.runtime.storage.errors import StorageError
from tony_provider.triggers.job_trigger import refuse_newer, wait_until_earliest
from tony_provider.watching.conditions import (
    HeartbeatCondition,
    HeartbeatLimits,
    SensorConditions,
    SensorEnd,
    SensorMemory,
    SensorOutcome,
    StateCondition,
)
from tony_provider.watching.job_poller import FoundApplication, JobTarget, PolledJob, following
from tony_provider.watching.observation import TrainTask, TrainTaskState

VERSION = 1  # of the arguments and of the event
ANSWER_SECONDS = 60.0  # time limit for the state of a task: the first answer of a triggerer loads many modules


class TonySensorTrigger(BaseTrigger):
    """Base class of the sensors' triggers: yields one event when the wait is over; see ``event_of``.

    All state is in the arguments, so that another triggerer can continue. A trigger ends no application.

    :param target: see ``plain_target``.
    :param train_task: the fields of ``TrainTask`` if the target is a training of this Airflow.
    :param poll_interval: minimum seconds between two polls of the job.
    :param start_timeout: maximum seconds without an application; None for no limit.
    :param began: initial start of that time, in epoch seconds by the cluster's clock.
    :param end: time of the event ``timeout``, in epoch seconds by the cluster's clock.
    :param earliest: epoch seconds, see ``earliest_wake_up``; None for immediately.
    :param version: version of these arguments, because an earlier release may have deferred the task.
    """

    def __init__(
        self,
        *,
        tony_conn_id: str,
        proxy_user: str | None,
        target: dict[str, str | None],
        train_task: dict[str, Any] | None,
        poll_interval: float,
        start_timeout: float | None,
        began: float,
        end: float | None,
        earliest: float | None = None,
        version: int = 1,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tony_conn_id = tony_conn_id
        self.proxy_user = proxy_user
        self.target = target
        self.train_task = train_task
        self.poll_interval = poll_interval
        self.start_timeout = start_timeout
        self.began = began
        self.end = end
        self.earliest = earliest
        self.version = version

    def serialize(self) -> tuple[str, dict[str, Any]]:
        common = {
            "tony_conn_id": self.tony_conn_id,
            "proxy_user": self.proxy_user,
            "target": self.target,
            "train_task": self.train_task,
            "poll_interval": self.poll_interval,
            "start_timeout": self.start_timeout,
            "began": self.began,
            "end": self.end,
            "earliest": self.earliest,
            "version": VERSION,
        }
        return f"{type(self).__module__}.{type(self).__qualname__}", {**common, **self._own_arguments()}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        refuse_newer(self.version, VERSION)
        outcome, error = None, None
        try:
            outcome = await self._watch()
        except (ClusterError, StorageError, ConfigurationProblem) as problem:
            error = problem
        await wait_until_earliest(self.earliest)
        yield TriggerEvent(event_of(outcome, error))  # type: ignore[no-untyped-call]

    @abstractmethod
    def _own_arguments(self) -> dict[str, Any]: ...

    @abstractmethod
    def _conditions(self, target: JobTarget, memory: SensorMemory) -> SensorConditions: ...

    async def _watch(self) -> SensorOutcome:
        target = target_of(self.target)
        job = PolledJob(target, self.poll_interval)
        async with following(self.tony_conn_id, self.proxy_user, job) as poller:
            seen = await job.next(None)
            # Before the first answer, the difference between the clocks of the two machines is unknown.
            conditions = self._conditions(target, SensorMemory.beginning(self.began - poller.clock_ahead))
            end = None if self.end is None else self.end - poller.clock_ahead
            task_states: TrainTaskState | None = None
            while True:
                if seen is None:
                    pass
                elif task_states is None and not seen.is_live and seen.outage is None:
                    task_states = await self._ask()
                    poller.hurry(job)  # judge the next observation, because Airflow's answer must precede it
                else:
                    outcome = conditions.judge(seen, task_states or TrainTaskState())
                    if outcome is not None:
                        return outcome
                    task_states = None
                left = None if end is None else end - time.time()
                if left is not None and left <= 0:
                    return SensorOutcome(SensorEnd.TIMEOUT)
                seen = await job.next(left)

    async def _ask(self) -> TrainTaskState:
        """Query the state of the training's task."""
        if self.train_task is None:
            return TrainTaskState()
        return await TrainTask(**self.train_task).ask(ANSWER_SECONDS)


class TonyStateTrigger(TonySensorTrigger):
    """The trigger of ``TonyJobSensor``: waits until the job is in one of the given states.

    :param states: names of states.
    """

    def __init__(self, *, states: Sequence[str], **common: Any) -> None:
        super().__init__(**common)
        self.states = list(states)

    def _own_arguments(self) -> dict[str, Any]:
        return {"states": self.states}

    def _conditions(self, target: JobTarget, memory: SensorMemory) -> SensorConditions:
        states = frozenset(self.states)
        return StateCondition(target, memory, start_timeout=self.start_timeout, log=self.log.info, states=states)


class TonyHeartbeatTrigger(TonySensorTrigger):
    """The trigger of ``TonyHeartbeatSensor``: watches the heartbeats and the speed of the job's tasks.

    :param limits: the fields of ``HeartbeatLimits``.
    """

    def __init__(self, *, limits: dict[str, Any], **common: Any) -> None:
        super().__init__(**common)
        self.limits = limits

    def _own_arguments(self) -> dict[str, Any]:
        return {"limits": self.limits}

    def _conditions(self, target: JobTarget, memory: SensorMemory) -> SensorConditions:
        limits = HeartbeatLimits(**self.limits)
        return HeartbeatCondition(target, memory, start_timeout=self.start_timeout, log=self.log.info, limits=limits)


def plain_target(target: JobTarget) -> dict[str, str | None]:
    """Return the target as a trigger's argument, of JSON types."""
    identity = target.identity
    return {
        "application_id": target.application_id,
        "tag": target.tag,
        "slug": identity.slug if identity is not None else None,
        "digest": identity.digest if identity is not None else None,
    }


def target_of(plain: Mapping[str, str | None]) -> JobTarget:
    """Return the target for a result of ``plain_target``."""
    return JobTarget(plain["application_id"], plain["tag"], _identity(plain))


def event_of(outcome: SensorOutcome | None, error: Exception | None) -> dict[str, Any]:
    """Return the trigger's event, of JSON types: how the wait has ended, or the error that ended it.

    ``end`` is a ``SensorEnd``, or None if ``error`` states why the job could not be watched further.
    """
    found = outcome.found if outcome is not None else None
    identity = found.identity if found is not None else None
    return {
        "version": VERSION,
        "end": outcome.end.value if outcome is not None else None,
        "message": outcome.message if outcome is not None else "",
        "application_id": found.application_id if found is not None else None,
        "slug": identity.slug if identity is not None else None,
        "digest": identity.digest if identity is not None else None,
        "result": attrs.asdict(outcome.result) if outcome is not None and outcome.result is not None else None,
        "error": str(error) if error is not None else None,
        "permanent": isinstance(error, ConfigurationProblem) or getattr(error, "permanent", False),
    }


def outcome_of(event: Mapping[str, Any]) -> SensorOutcome:
    """Return the outcome in an event of ``event_of``, without its result."""
    found = FoundApplication(event["application_id"], _identity(event)) if event["application_id"] else None
    return SensorOutcome(SensorEnd(event["end"]), event["message"], found)


def _identity(plain: Mapping[str, str | None]) -> Identity | None:
    slug, digest = plain["slug"], plain["digest"]
    return Identity(slug, digest) if slug is not None and digest is not None else None
