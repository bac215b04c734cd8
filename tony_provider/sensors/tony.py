"""Sensors for the state and for the heartbeats of a job.

Each DAG file with a sensor imports this module, so it imports heavy modules only on use.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from airflow.providers.common.compat.sdk import (
    AirflowSensorTimeout,
    AirflowTaskTimeout,
    BaseSensorOperator,
    PokeReturnValue,
    conf,
)
from airflow.sdk.bases.operator import TRIGGER_FAIL_REPR, TriggerFailureReason

from tony_provider.arguments import (
    DEFAULT_CONN_ID,
    ReadableTemplates,
    empty_to_none,
    positive_number,
    positive_seconds,
    with_readable_errors,
    yes_or_no,
)
from tony_provider.compat import RESCHEDULED_MEMORY
from tony_provider.runtime.protocol.status import ApplicationState, JobState

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from tony_provider.hooks.tony import TonyHook
    from tony_provider.sensors.sensor_run import SensorRun


STATES = list(dict.fromkeys([state.value for kind in (JobState, ApplicationState) for state in kind]))


def state_names(given: Iterable[str] | str) -> frozenset[str]:
    """Parse the names of states in a list, or in text with commas. Raises ValueError for no or unknown names."""
    names = given.split(",") if isinstance(given, str) else list(given)
    states = [str(getattr(name, "value", name)).strip().upper() for name in names]
    for state in states:
        if state not in STATES:
            from tony_provider.runtime.jobspec.problems import suggestion  # here: it is seldom needed

            hint = suggestion(state, [each.lower() for each in STATES])
            raise ValueError(f"states: {state!r} is not a state{hint}; the states are {', '.join(STATES)}")
    if not states:
        raise ValueError(f"states: the list is empty; the states are {', '.join(STATES)}")
    return frozenset(states)


# Exactly one of these arguments names the job.
WHICH_JOB = ("application_id", "application_tag", "train_task_id")

# Optional template fields, in which an empty rendered value means None.
OPTIONAL = (*WHICH_JOB, "map_index", "checkpoint_key", "proxy_user")


class TonySensor(ReadableTemplates, BaseSensorOperator):
    """Base class of both sensors, with their common arguments.

    If a user clears or marks a sensor task, the job of the sensor continues. See "Wait for a training or watch it with
    sensors".

    Exactly one of the first three arguments must be set. This argument selects the job.

    :param application_id: ID of the application to watch, such as ``application_1700000000000_0001`` or
        ``train.output["application_id"]``. Templated.
    :param application_tag: YARN tag: either the tag of a training (``tony-…``), or one of the job's ``tags``. The
        sensor watches the newest application with this tag. Templated.
    :param train_task_id: ID of a training task in the same DAG run. In a task group, write ``<group>.<task>``. The
        sensor needs no dependency on the training task. After a retry of this task, the sensor watches the new
        application. The sensor stops when the training task has ended in Airflow. Templated.
    :param map_index: map index of a mapped training task; default: the sensor's own map index, if the sensor is mapped.
        Templated.
    :param checkpoint_key: ``checkpoint_key`` of the training task, if the training task sets it. Templated.
    :param start_timeout: maximum number of seconds to wait until an application exists; default: no limit except
        ``timeout``. If an application has ended, the sensor waits for the next one as long as the training task can
        still retry.
    :param tony_conn_id: ID of the training task's connection. Templated.
    :param proxy_user: name of the user that the sensor impersonates. If you set ``train_task_id``, use the
        ``proxy_user`` of the training task; default: the connection's user. Templated.
    :param deferrable: whether the sensor waits in the triggerer. If False, the sensor waits in the worker, according to
        ``mode``; default: Airflow's option ``[operators] default_deferrable``.
    :param poke_interval: minimum number of seconds between two polls of the job. In a triggerer, the option ``[tony]
        details_per_second`` also limits the polls of all jobs of a connection.
    :param multiple_outputs: whether each key of the result is a separate XCom.
    """

    template_fields: Sequence[str] = ("tony_conn_id", *OPTIONAL)
    ui_color = "#fff2cc"

    def __init__(
        self,
        *,
        application_id: str | None = None,
        application_tag: str | None = None,
        train_task_id: str | None = None,
        map_index: int | str | None = None,
        checkpoint_key: str | None = None,
        start_timeout: timedelta | float | None = None,
        tony_conn_id: str = DEFAULT_CONN_ID,
        proxy_user: str | None = None,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        poke_interval: timedelta | float = 10.0,
        multiple_outputs: bool = True,
        **kwargs: Any,
    ) -> None:
        seconds = positive_seconds("poke_interval", poke_interval)
        super().__init__(poke_interval=seconds, multiple_outputs=multiple_outputs, **kwargs)
        if application_id is None and application_tag is None and train_task_id is None:
            raise ValueError(f"a sensor needs exactly one of {', '.join(WHICH_JOB)}")
        if self.reschedule and not RESCHEDULED_MEMORY.is_here:
            RESCHEDULED_MEMORY.refuse(f'{type(self).__name__} with mode="reschedule"')
        self.application_id = application_id
        self.application_tag = application_tag
        self.train_task_id = train_task_id
        self.map_index = map_index
        self.checkpoint_key = checkpoint_key
        self.start_timeout = None if start_timeout is None else positive_seconds("start_timeout", start_timeout)
        self.tony_conn_id = tony_conn_id
        self.proxy_user = proxy_user
        self.deferrable = yes_or_no("deferrable", deferrable)
        self._run: SensorRun | None = None  # kept from one poke to the next

    @cached_property
    def hook(self) -> TonyHook:
        from tony_provider.hooks.tony import TonyHook

        return TonyHook(self.tony_conn_id, self.proxy_user)

    @abstractmethod
    def _new_run(self) -> SensorRun:
        """Return the object that does the sensor's work, with the sensor's own criteria."""

    @property
    def running(self) -> SensorRun:
        if self._run is None:
            self._run = self._new_run()
        return self._run

    @with_readable_errors
    def execute(self, context: Context) -> Any:
        self._run = None
        empty_to_none(self, OPTIONAL)
        try:
            if self.deferrable:
                self.running.defer(context)
            return super().execute(context)
        finally:
            self.hook.close()

    def poke(self, context: Context) -> bool | PokeReturnValue:
        return self.running.poke(context)

    @with_readable_errors
    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any] | None:
        """Complete the task after the trigger's event. ``event`` is the trigger's SensorEvent as plain data."""
        try:
            return self.running.continue_after_trigger(event)
        finally:
            self.hook.close()

    @with_readable_errors
    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Resume a deferred sensor: called by Airflow when the trigger has ended or failed. The job is not affected."""
        empty_to_none(self, OPTIONAL)
        given = next_kwargs or {}
        if next_method == TRIGGER_FAIL_REPR and given.get("error") == TriggerFailureReason.TRIGGER_FAILURE:
            self.log.error("Trigger failed:\n%s", "\n".join(given.get("traceback") or ["(no traceback)"]))
            next_method, next_kwargs = "continue_without_trigger", {}
        return super().resume_execution(next_method, next_kwargs, context)

    def continue_without_trigger(self, context: Context) -> Any:
        """Continue after the trigger failed, for the remaining time.

        The sensor waits in the triggerer again, or in the worker after too many failures.
        """
        try:
            self.running.defer_again(context)
            self.log.warning("Waiting in this worker")
            return self._poke_on(context)
        finally:
            self.hook.close()

    def _poke_on(self, context: Context) -> Any:
        """Poke in this process for the remaining time, because rescheduling would restart the task."""
        self.mode = "poke"
        run = self.running
        until, limited = run.until(context), run.is_limited
        self.timeout = max(0.0, until - time.time())
        try:
            return super().execute(context)
        except AirflowSensorTimeout as error:
            if limited and time.time() >= until:
                raise AirflowTaskTimeout(run.took_too_long) from error
            raise


LEAST_HEARTBEAT_AGE = 10.0  # seconds; an application master reports heartbeats every 5 seconds


class TonyJobSensor(TonySensor):
    """Wait until a job is in one of the given states.

    The arguments of ``TonySensor`` select the job, and control how the sensor waits for the job.

    :param states: names of the states to wait for, as a list or as comma-separated text. A job has the states
        ``WAITING``, ``STARTING``, ``RUNNING``, ``RESTARTING``, ``SUSPENDED``, ``RECOVERING``, ``FINISHING``,
        ``SUCCEEDED``, ``FAILED`` and ``KILLED``. Before the job starts, its application has the states ``NEW``,
        ``NEW_SAVING``, ``SUBMITTED`` and ``ACCEPTED``. After the job has ended, its application has the state
        ``FINISHED``. A state may begin and end between two polls, so also list the states that can follow it.
        Templated.
    :return: see ``SensorResult``: each key is a separate XCom.

    Raises TonyJobMissed if the job has ended in another state, or if no job will start. Also raises
    AirflowSensorTimeout, TonySpecError and TonyJobRejected. Raises ClusterError or StorageError after an outage of 10
    minutes.
    """

    template_fields: Sequence[str] = (*TonySensor.template_fields, "states")

    def __init__(self, *, states: Iterable[str] | str = ("RUNNING", "SUCCEEDED"), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not isinstance(states, str):
            states = [str(getattr(state, "value", state)) for state in states]
        if "{" not in str(states):
            state_names(states)
        self.states = states

    def _new_run(self) -> SensorRun:
        from tony_provider.exceptions import TonySpecError
        from tony_provider.sensors.sensor_run import SensorRun
        from tony_provider.watching.conditions import SensorCriteria

        try:
            states = sorted(state_names(self.states))
        except ValueError as error:
            raise TonySpecError(str(error)) from error
        return SensorRun(self, SensorCriteria(self.start_timeout, states=states))


class TonyHeartbeatSensor(TonySensor):
    """Watch a running training from a parallel task. The sensor succeeds when the training succeeds.

    The sensor checks the job's tasks only while the job is ``RUNNING``. While the job waits for containers or restarts,
    the sensor checks nothing.

    :param max_heartbeat_age: maximum age, in seconds, of the last heartbeat of each running task, and of the last
        status from the application master. The value must be at least 10. None disables this check.
    :param min_steps_per_second: minimum number of steps per second over the last minute. The sensor checks each running
        task that reports steps. None disables this check.
    :param slow_for: maximum number of seconds for which a task may be slower than ``min_steps_per_second``.
    :param task_types: task types that the sensor checks, such as ``["worker"]``; default: all task types.
    :param on_stale: what the sensor does if a check fails. With ``fail``, the sensor only fails. With ``kill``, the
        sensor ends the application after a grace period for its user processes, and then fails. The next attempt of the
        training task resumes from the newest checkpoint.

    All other arguments are those of ``TonySensor``. This sensor returns the same result and raises the same errors as
    ``TonyJobSensor``. It also raises TonyJobStale.
    """

    def __init__(
        self,
        *,
        max_heartbeat_age: timedelta | float | None = 120.0,
        min_steps_per_second: float | None = None,
        slow_for: timedelta | float = 120.0,
        task_types: Sequence[str] | None = None,
        on_stale: Literal["fail", "kill"] = "fail",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if on_stale not in ("fail", "kill"):
            raise ValueError(f"on_stale is {on_stale!r} and should be 'fail' or 'kill'")
        if max_heartbeat_age is None and min_steps_per_second is None:
            raise ValueError("max_heartbeat_age and min_steps_per_second are both None: set at least one of them")
        if max_heartbeat_age is not None:
            max_heartbeat_age = positive_seconds("max_heartbeat_age", max_heartbeat_age)
            if max_heartbeat_age < LEAST_HEARTBEAT_AGE:
                raise ValueError(
                    f"max_heartbeat_age is {max_heartbeat_age:g} s and should be at least {LEAST_HEARTBEAT_AGE:g}, "
                    "because the status of a healthy job may be some seconds old"
                )
        if min_steps_per_second is not None:
            min_steps_per_second = positive_number("min_steps_per_second", min_steps_per_second)
        if isinstance(task_types, str):
            raise ValueError(f"task_types is {task_types!r} and should be a list of types, such as ['worker']")  # noqa: TRY004
        self.max_heartbeat_age = max_heartbeat_age
        self.min_steps_per_second = min_steps_per_second
        self.slow_for = positive_seconds("slow_for", slow_for)
        self.task_types = None if task_types is None else list(task_types)
        self.on_stale = on_stale

    def _new_run(self) -> SensorRun:
        from tony_provider.sensors.sensor_run import SensorRun
        from tony_provider.watching.conditions import HeartbeatLimits, SensorCriteria

        limits = HeartbeatLimits(self.max_heartbeat_age, self.min_steps_per_second, self.slow_for, self.task_types)
        return SensorRun(self, SensorCriteria(self.start_timeout, heartbeats=limits), kill=self.on_stale == "kill")
