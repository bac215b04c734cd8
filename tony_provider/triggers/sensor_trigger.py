"""The trigger of deferred sensors: it watches a job in the triggerer, without a worker slot."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from functools import cached_property
from typing import Any

import attrs
from airflow.triggers.base import BaseTrigger, TriggerEvent

from tony_provider.cluster.errors import ClusterError
from tony_provider.configuration import ConfigurationProblem
from tony_provider.runtime.common.codec import from_plain, to_plain
from tony_provider.runtime.storage.errors import StorageError
from tony_provider.triggers.job_trigger import refuse_newer, wait_until_earliest
from tony_provider.watching.conditions import SensorCriteria, SensorEnd, SensorMemory, SensorOutcome
from tony_provider.watching.job_poller import JobTarget, PolledJob, following
from tony_provider.watching.observation import TrainTask, TrainTaskState

VERSION = 1  # of the classes below
ANSWER_SECONDS = 60.0  # time limit for the state of a task: the first answer of a triggerer loads many modules


@attrs.frozen
class DeferredSensor:
    """A sensor's wait in the triggerer. Times are epoch seconds by the cluster's clock."""

    tony_conn_id: str
    proxy_user: str | None
    target: JobTarget
    train_task: TrainTask | None  # None if the target is not a training of this Airflow
    criteria: SensorCriteria
    poll_interval: float  # minimum seconds between two polls of the job
    began: float  # initial start of ``start_timeout``
    end: float | None  # time of the event ``timeout``


@attrs.frozen
class SensorEvent:
    """The trigger's event for the sensor: its outcome, or the error that ended the wait."""

    outcome: SensorOutcome | None = None
    error: str = ""
    permanent: bool = False  # whether the error makes a retry useless
    version: int = VERSION


class TonySensorTrigger(BaseTrigger):
    """Yields one event when the wait is over: a ``SensorEvent`` as plain JSON.

    All state is in the arguments, so that another triggerer can continue. The trigger ends no application.

    :param sensor: a ``DeferredSensor``, as plain JSON.
    :param earliest: epoch seconds, see ``earliest_wake_up``; None for immediately.
    :param version: version of these arguments, because another release may have deferred the task.
    """

    def __init__(self, *, sensor: Mapping[str, Any], earliest: float | None = None, version: int = VERSION) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._plain_sensor = dict(sensor)
        self.earliest = earliest
        self.version = version

    @cached_property
    def sensor(self) -> DeferredSensor:
        # Not in the constructor, because an exception there would end the whole triggerer.
        return from_plain(self._plain_sensor, DeferredSensor, ignore_unknown=True)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        arguments = {"sensor": self._plain_sensor, "earliest": self.earliest, "version": self.version}
        return "tony_provider.triggers.sensor_trigger.TonySensorTrigger", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        refuse_newer(self.version, VERSION)
        try:
            event = SensorEvent(await self._watch())
        except (ClusterError, StorageError, ConfigurationProblem) as problem:
            permanent = isinstance(problem, ConfigurationProblem) or getattr(problem, "permanent", False)
            event = SensorEvent(error=str(problem), permanent=permanent)
        await wait_until_earliest(self.earliest)
        yield TriggerEvent(to_plain(event))  # type: ignore[no-untyped-call]

    async def _watch(self) -> SensorOutcome:
        sensor = self.sensor
        job = PolledJob(sensor.target, sensor.poll_interval)
        async with following(sensor.tony_conn_id, sensor.proxy_user, job) as poller:
            seen = await job.next(None)
            # Before the first answer, the difference between the clocks of the two machines is unknown.
            memory = SensorMemory.beginning(sensor.began - poller.clock_ahead)
            condition = sensor.criteria.condition(sensor.target, memory, self.log.info)
            end = None if sensor.end is None else sensor.end - poller.clock_ahead
            task_states: TrainTaskState | None = None
            while True:
                if seen is None:
                    pass
                elif task_states is None and not seen.is_live and seen.outage is None:
                    task_states = TrainTaskState()
                    if sensor.train_task is not None:
                        task_states = await sensor.train_task.ask(ANSWER_SECONDS)
                    poller.hurry(job)  # judge the next observation, because Airflow's answer must precede it
                else:
                    outcome = condition.judge(seen, task_states or TrainTaskState())
                    if outcome is not None:
                        return outcome
                    task_states = None
                left = None if end is None else end - time.time()
                if left is not None and left <= 0:
                    return SensorOutcome(SensorEnd.TIMEOUT)
                seen = await job.next(left)
