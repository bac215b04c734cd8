"""One process of a sensor's task: resolves its arguments, defers or pokes, and ends the task.

With ``mode="reschedule"``, each poke is another process, so a sensor keeps its memory in Airflow's store.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import attrs
from airflow.providers.common.compat.sdk import AirflowSensorTimeout, AirflowTaskTimeout, PokeReturnValue

from tony_provider.cluster.errors import ClusterError, ClusterUnreachable
from tony_provider.compat import without_empty_xcoms
from tony_provider.exceptions import TonyJobMissed, TonyJobRejected, TonyJobStale, TonySpecError
from tony_provider.hooks.tony import TonyHook
from tony_provider.operators.try_state import StateStore, TaskInstanceInfo, TryInfo, is_of_dag_test, may_defer_again
from tony_provider.runtime.common.codec import CodecError, from_plain, to_plain
from tony_provider.runtime.hadoop.yarn_records import is_application_id
from tony_provider.runtime.jobspec.problems import shown, suggestion
from tony_provider.sensors.tony import WHICH_JOB
from tony_provider.triggers.tony import DeferredSensor, SensorEvent, TonySensorTrigger, earliest_wake_up
from tony_provider.watching.conditions import (
    SensorConditions,
    SensorCriteria,
    SensorEnd,
    SensorMemory,
    SensorOutcome,
)
from tony_provider.watching.job_poller import JobSearch, JobTarget
from tony_provider.watching.job_watch import deferral_timeout
from tony_provider.watching.observation import TrainTask, TrainTaskState
from tony_provider.watching.termination import SensorKillOrder, end_job, logging_end_errors

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context
    from airflow.sdk.types import Logger

    from tony_provider.sensors.tony import TonySensor


_KEY = "tony_sensor_memory"


def save_sensor_memory(context: Context, memory: SensorMemory, log: Logger) -> None:
    """Store the memory in Airflow's store for the next poke of this try."""
    StateStore(context, log).set(_KEY, {"try": context["ti"].try_number, **attrs.asdict(memory)})


def load_sensor_memory(context: Context, log: Logger) -> SensorMemory | None:
    """Return the memory of the last poke of this try, or None at the first poke."""
    if not context.get("task_reschedule_count"):
        return None
    kept: Any = StateStore(context, log).get(_KEY)
    if not isinstance(kept, dict) or kept.get("try") != context["ti"].try_number:
        return None
    try:
        return from_plain(kept, SensorMemory, ignore_unknown=True)
    except CodecError as error:  # untrusted: users who may not change the task can write it
        log.warning("The sensor's memory of its last poke is unreadable and is ignored: %s", error)
        return None


@attrs.frozen
class SensorArguments:
    """The rendered arguments that name a sensor's job. Each is None if it has no value after the rendering."""

    application_id: str | None
    application_tag: str | None
    train_task_id: str | None
    map_index: int | str | None
    checkpoint_key: str | None

    def resolve(self, hook: TonyHook, context: Context, tasks: Sequence[str]) -> tuple[JobTarget, TrainTask | None]:
        """Return the job that the arguments name. With ``train_task_id``, also return the training task in Airflow.

        ``tasks`` are the IDs of the DAG's tasks. Raises TonySpecError, ConnectionProblem.
        """
        given = [name for name in WHICH_JOB if getattr(self, name) is not None]
        if len(given) != 1:
            found = " and ".join(f"{name}={shown(getattr(self, name))}" for name in given) or "none of them"
            raise TonySpecError(f"{found} is given: a sensor needs exactly one of {', '.join(WHICH_JOB)}")
        if self.train_task_id:
            task = self._train_task(context, tasks, self.train_task_id)
            identity = hook.identity(
                dag_id=task.dag_id,
                run_id=task.run_id,
                task_id=task.task_id,
                map_index=-1 if task.map_index is None else task.map_index,
                checkpoint_key=self.checkpoint_key,
            )
            return JobTarget(identity=identity), task
        if self.checkpoint_key or self.map_index is not None:
            raise TonySpecError(f"map_index and checkpoint_key require train_task_id, but {given[0]} is given")
        if self.application_id:
            _check(self.application_id)
        return JobTarget(self.application_id, self.application_tag), None

    def _train_task(self, context: Context, tasks: Sequence[str], task_id: str) -> TrainTask:
        ti = context["ti"]
        if task_id not in tasks or task_id == ti.task_id:
            others = [task for task in tasks if task != ti.task_id]
            hint = suggestion(task_id, others)
            raise TonySpecError(
                f"train_task_id: {shown(task_id)} is not another task of the DAG {ti.dag_id!r}{hint}; its other "
                f"tasks: {', '.join(others) or 'none'}. Within a task group, write <group>.<task>"
            )
        if self.checkpoint_key and self.map_index is not None:
            raise TonySpecError("map_index and checkpoint_key are both given; keep one of them")
        index = None if self.checkpoint_key else self._index(context)
        return TrainTask(ti.dag_id, ti.run_id, task_id, index)

    def _index(self, context: Context) -> int:
        if self.map_index is None:
            return TaskInstanceInfo.of(context).map_index  # all tasks of a mapped task group share the index
        try:
            return int(self.map_index)  # a rendered template is text
        except (TypeError, ValueError) as error:
            raise TonySpecError(f"map_index: should be a whole number, not {shown(self.map_index)}") from error


def _check(application_id: str) -> None:
    if not is_application_id(application_id):
        raise TonySpecError(
            f"application_id: {shown(application_id)} is not an application ID, such as application_1700000000000_0001"
        )


class SensorRun:
    """The part of a sensor's task that one process runs."""

    def __init__(self, sensor: TonySensor, criteria: SensorCriteria, *, kill: bool = False) -> None:
        """``kill``: whether to end the application if its tasks are silent or slow."""
        self._sensor = sensor
        self._criteria = criteria
        self._kill = kill
        self._log = sensor.log
        self._watch: tuple[JobSearch, SensorConditions, TrainTask | None] | None = None  # kept between pokes

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
        """Defer the sensor. ``start_timeout`` counts from ``began`` in epoch seconds, by default the sensor's start."""
        sensor = self._sensor
        try:
            target, train_task = self._aim(context)
            ahead = sensor.hook.now() - time.time()  # because the triggerer's clock may differ
        except ClusterError as error:
            raise TonyJobRejected(str(error)) from error
        end = self.until(context)
        deferred = DeferredSensor(
            tony_conn_id=sensor.tony_conn_id,
            proxy_user=sensor.proxy_user,
            target=target,
            train_task=train_task,
            criteria=self._criteria,
            poll_interval=sensor.poke_interval,
            began=(_began(context) if began is None else began) + ahead,
            end=end + ahead,
        )
        earliest = None if is_of_dag_test(context) else earliest_wake_up()
        sensor.defer(
            trigger=TonySensorTrigger(sensor=to_plain(deferred), earliest=earliest),
            method_name="execute_complete",
            timeout=deferral_timeout(end, time.time()),
        )

    def defer_again(self, context: Context) -> None:
        """Defer again after a failed trigger. Return if triggers failed too often: this process must then wait."""
        if may_defer_again(StateStore(context, self._log), TryInfo.of(context), self._log):
            # The failed trigger's memory is lost, including the time without an application, so count start_timeout
            # from now.
            self.defer(context, began=time.time())

    def continue_after_trigger(self, event: Mapping[str, Any]) -> dict[str, Any] | None:
        """Complete the task after the trigger's event; ``event`` is its plain SensorEvent."""
        ended = from_plain(event, SensorEvent, ignore_unknown=True)
        if ended.outcome is None:
            raise (TonyJobRejected if ended.permanent else ClusterUnreachable)(ended.error)
        return self._conclude(ended.outcome)

    def until(self, context: Context) -> float:
        """Return the end of the wait in epoch seconds."""
        limit, timeout = self._sensor.execution_timeout, self._sensor.timeout
        return _began(context) + (min(timeout, limit.total_seconds()) if limit is not None else timeout)

    @property
    def is_limited(self) -> bool:
        """Whether the sensor's execution_timeout comes before its timeout."""
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
        return False if outcome is None else PokeReturnValue(True, self._conclude(outcome))

    def _look(self, context: Context) -> SensorOutcome | None:
        reschedule = self._sensor.reschedule
        if self._watch is None:
            target, train_task = self._aim(context)
            memory = load_sensor_memory(context, self._log) if reschedule else None
            memory = memory or SensorMemory(absent_since=time.time())
            conditions = self._criteria.condition(target, memory, self._log.info)
            self._watch = JobSearch(target), conditions, train_task
        search, conditions, train_task = self._watch
        task_states = train_task.states() if train_task is not None else TrainTaskState()
        outcome = conditions.judge(search.look(self._sensor.hook), task_states)
        if reschedule:
            save_sensor_memory(context, conditions.memory, self._log)
        return outcome

    # -- after the wait ----------------------------------------------------------------------------------------------

    def _conclude(self, outcome: SensorOutcome) -> dict[str, Any] | None:
        """Return the task's return value, or raise the task's error unless the condition is met."""
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
            self._end_stale(outcome)
            raise TonyJobStale(outcome.message)
        return without_empty_xcoms(to_plain(outcome.result)) if outcome.result is not None else None

    def _end_stale(self, outcome: SensorOutcome) -> None:
        found = outcome.found
        if not self._kill or found is None or found.identity is None:
            return
        self._log.info("Ending %s", found.application_id)
        job = found.job(self._sensor.hook)
        with logging_end_errors(job, self._log):
            end_job(job, SensorKillOrder(outcome.message))


def _began(context: Context) -> float:
    """Return the start of this try of the sensor in epoch seconds. A deferral does not change the start."""
    started = context["ti"].start_date
    return started.timestamp() if started is not None else time.time()
