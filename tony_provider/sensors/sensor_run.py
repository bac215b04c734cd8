"""What a sensor does while its task runs: looks at the job, or has a trigger look, and says how that ended."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import attrs
from airflow.providers.common.compat.sdk import AirflowSensorTimeout, AirflowTaskTimeout, PokeReturnValue

from tony_provider.airflow_versions.xcoms import pushable
from tony_provider.cluster.errors import ClusterError, ClusterUnreachable
from tony_provider.exceptions import TonyJobMissed, TonyJobRejected, TonyJobStale, TonySpecError
from tony_provider.operators.tries import TaskTry, gets_another_trigger, is_of_dag_test
from tony_provider.sensors.sensor_arguments import SensorArguments
from tony_provider.sensors.sensor_memory import recall, remember
from tony_provider.state_store import StateStore
from tony_provider.triggers.earliest_event import earliest_event
from tony_provider.triggers.sensor import (
    VERSION,
    TonyHeartbeatTrigger,
    TonySensorTrigger,
    TonyStateTrigger,
    outcome_of,
    plain_target,
)
from tony_provider.watching.heartbeat_condition import HeartbeatCondition, HeartbeatLimits
from tony_provider.watching.job_search import JobSearch, JobTarget
from tony_provider.watching.sensor_conditions import SensorConditions, SensorEnd, SensorMemory, SensorOutcome
from tony_provider.watching.state_condition import StateCondition
from tony_provider.watching.state_names import states_of
from tony_provider.watching.task_states import TrainTask, TrainTaskStates
from tony_provider.watching.termination import SensorKill, end_application, end_or_tell
from tony_provider.watching.watch_result import deferral_timeout

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from tony_provider.sensors.base import TonySensor


class SensorRun(ABC):
    """Of ``sensor``, in one process of its task, with its rendered arguments."""

    def __init__(self, sensor: TonySensor) -> None:
        self._sensor = sensor
        self._log = sensor.log
        self._watch: tuple[JobSearch, SensorConditions, TrainTask | None] | None = None  # from one poke to the next

    @abstractmethod
    def _conditions(self, target: JobTarget, memory: SensorMemory) -> SensorConditions: ...

    @abstractmethod
    def _trigger(self, **common: Any) -> TonySensorTrigger: ...

    def _when_stale(self, outcome: SensorOutcome) -> None:  # noqa: B027 - most do nothing
        """Before the task fails."""

    def _aim(self, context: Context) -> tuple[JobTarget, TrainTask | None]:
        sensor = self._sensor
        aim = SensorArguments(
            sensor.application_id,
            sensor.application_tag,
            sensor.train_task_id,
            sensor.map_index,
            sensor.checkpoint_key,
        )
        return aim.resolve(sensor.hook, context, sorted(sensor.dag.task_ids))

    # -- in the triggerer --------------------------------------------------------------------------------------------

    def defer(self, context: Context, began: float | None = None) -> NoReturn:
        """``began``: from when ``start_timeout`` counts, in epoch seconds; default: the sensor's start."""
        sensor = self._sensor
        try:
            target, train_task = self._aim(context)
            ahead = sensor.hook.now() - time.time()  # the clock of the triggerer's machine may differ
        except ClusterError as error:
            raise TonyJobRejected(str(error)) from error
        end = self.until(context)
        sensor.defer(
            trigger=self._trigger(
                tony_conn_id=sensor.tony_conn_id,
                proxy_user=sensor.proxy_user,
                target=plain_target(target),
                train_task=attrs.asdict(train_task) if train_task is not None else None,
                poll_interval=sensor.poke_interval,
                start_timeout=sensor.start_timeout,
                began=(_began(context) if began is None else began) + ahead,
                end=end + ahead,
                earliest=None if is_of_dag_test(context) else earliest_event(),
                version=VERSION,
            ),
            method_name="execute_complete",
            timeout=deferral_timeout(end, time.time()),
        )

    def defer_again(self, context: Context) -> None:
        """After a trigger that has failed; returns where this process is to wait."""
        if gets_another_trigger(StateStore(context, self._log), TaskTry.of(context), self._log):
            # Whether the job had been seen went with the trigger: what start_timeout allows is allowed anew.
            self.defer(context, began=time.time())

    def go_on(self, event: Mapping[str, Any]) -> dict[str, Any] | None:
        """Where the trigger saw that there is nothing more to look at; ``event`` is as ``event_of`` says."""
        if event["error"]:
            raise (TonyJobRejected if event["permanent"] else ClusterUnreachable)(event["error"])
        self._conclude(outcome_of(event))
        result: dict[str, Any] | None = event["result"]
        return pushable(result) if result is not None else None

    def until(self, context: Context) -> float:
        """In epoch seconds."""
        limit, timeout = self._sensor.execution_timeout, self._sensor.timeout
        return _began(context) + (min(timeout, limit.total_seconds()) if limit is not None else timeout)

    @property
    def is_limited(self) -> bool:
        """Whether its execution_timeout comes before its timeout."""
        limit = self._sensor.execution_timeout
        return limit is not None and limit.total_seconds() < self._sensor.timeout

    @property
    def took_too_long(self) -> str:
        return f"the sensor took longer than its execution_timeout ({self._sensor.execution_timeout})"

    # -- in the worker -----------------------------------------------------------------------------------------------

    def poke(self, context: Context) -> bool | PokeReturnValue:
        try:
            outcome = self._look(context)
        except ClusterError as error:
            if error.permanent:
                raise TonyJobRejected(str(error)) from error
            raise
        if outcome is None:
            return False
        self._conclude(outcome)
        result = outcome.result
        return PokeReturnValue(True, pushable(attrs.asdict(result)) if result is not None else None)

    def _look(self, context: Context) -> SensorOutcome | None:
        reschedule = self._sensor.reschedule
        if self._watch is None:
            target, train_task = self._aim(context)
            memory = recall(context, self._log) if reschedule else None
            conditions = self._conditions(target, memory or SensorMemory.beginning(time.time()))
            self._watch = JobSearch(target), conditions, train_task
        search, conditions, train_task = self._watch
        task_states = train_task.states() if train_task is not None else TrainTaskStates()
        outcome = conditions.judge(search.look(self._sensor.hook), task_states)
        if reschedule:
            remember(context, conditions.memory, self._log)
        return outcome

    # -- when there is nothing more to look at -----------------------------------------------------------------------

    def _conclude(self, outcome: SensorOutcome) -> None:
        """Raises unless it is what was waited for."""
        if outcome.end is SensorEnd.TIMEOUT:
            if self.is_limited:
                raise AirflowTaskTimeout(self.took_too_long)
            raise AirflowSensorTimeout(f"the sensor took longer than its timeout ({self._sensor.timeout:g} s)")
        if outcome.end is SensorEnd.START_TIMEOUT:
            raise AirflowSensorTimeout(outcome.message)
        if outcome.end is SensorEnd.MISSED:
            raise TonyJobMissed(outcome.message)
        if outcome.end is SensorEnd.STALE:
            self._log.error("%s", outcome.message)
            self._when_stale(outcome)
            raise TonyJobStale(outcome.message)


class JobSensorRun(SensorRun):
    """Waits for states."""

    def __init__(self, sensor: TonySensor, states: Iterable[str] | str) -> None:
        super().__init__(sensor)
        try:
            self._states = states_of(states)
        except ValueError as error:
            raise TonySpecError(str(error)) from error

    def _conditions(self, target: JobTarget, memory: SensorMemory) -> SensorConditions:
        limit = self._sensor.start_timeout
        return StateCondition(target, memory, start_timeout=limit, log=self._log.info, states=self._states)

    def _trigger(self, **common: Any) -> TonySensorTrigger:
        return TonyStateTrigger(states=sorted(self._states), **common)


class HeartbeatSensorRun(SensorRun):
    """Watches heartbeats and speed."""

    def __init__(self, sensor: TonySensor, limits: HeartbeatLimits, *, kill: bool) -> None:
        """``kill``: end the application where it does not do what it should."""
        super().__init__(sensor)
        self._limits = limits
        self._kill = kill

    def _conditions(self, target: JobTarget, memory: SensorMemory) -> SensorConditions:
        limit = self._sensor.start_timeout
        return HeartbeatCondition(target, memory, start_timeout=limit, log=self._log.info, limits=self._limits)

    def _trigger(self, **common: Any) -> TonySensorTrigger:
        return TonyHeartbeatTrigger(limits=attrs.asdict(self._limits), **common)

    def _when_stale(self, outcome: SensorOutcome) -> None:
        found = outcome.found
        if not self._kill or found is None or found.identity is None:
            return
        self._log.info("Ending %s", found.application_id)
        with end_or_tell(found.application_id, self._log):
            end_application(self._sensor.hook, found.identity, found.application_id, SensorKill(outcome.message))


def _began(context: Context) -> float:
    """When this try of the sensor did, in epoch seconds: before it was deferred."""
    started = context["ti"].start_date
    return started.timestamp() if started is not None else time.time()
