"""TonyJobSensor and TonyHeartbeatSensor: waiting for a job, or watching it, from another task."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, Literal

import attrs

from tony_provider.arguments import positive_number, positive_seconds
from tony_provider.cluster.errors import ClusterError
from tony_provider.exceptions import TonySpecError
from tony_provider.runtime.storage.errors import StorageError
from tony_provider.sensors.base import TonySensor
from tony_provider.triggers.sensor import TonyHeartbeatTrigger, TonySensorTrigger, TonyStateTrigger
from tony_provider.watching.heartbeat_condition import HeartbeatCondition, HeartbeatLimits
from tony_provider.watching.job_search import JobTarget
from tony_provider.watching.sensor_conditions import SensorConditions, SensorMemory, SensorOutcome
from tony_provider.watching.state_condition import StateCondition, states_of
from tony_provider.watching.termination import SensorKill, end_application

LEAST_HEARTBEAT_AGE = 10.0  # seconds; an application master tells what it has heard every five


class TonyJobSensor(TonySensor):
    """Wait until a job is in one of some states.

    Which job, and how to wait for it, say the arguments of ``TonySensor``.

    :param states: names of states of the job (``WAITING``, ``STARTING``, ``RUNNING``, ``RESTARTING``, ``RECOVERING``,
        ``FINISHING``, ``SUCCEEDED``, ``FAILED``, ``KILLED``) or of its application before (``NEW``, ``NEW_SAVING``,
        ``SUBMITTED``, ``ACCEPTED``) or after (``FINISHED``); a list, or text with commas. One that passes between two
        looks is not seen: name those that may follow it too. Templated.
    :return: see ``SensorResult``: each key is an XCom of its own.

    Raises TonyJobMissed when the job has ended otherwise, or none will come; AirflowSensorTimeout, TonySpecError,
    TonyJobRejected; ClusterError or StorageError after 10 minutes out of reach.
    """

    template_fields: Sequence[str] = (*TonySensor.template_fields, "states")

    def __init__(self, *, states: Iterable[str] | str = ("RUNNING", "SUCCEEDED"), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not isinstance(states, str):
            states = [str(getattr(state, "value", state)) for state in states]
        if "{" not in str(states):
            states_of(states)
        self.states = states

    def _conditions(self, target: JobTarget, memory: SensorMemory) -> SensorConditions:
        return StateCondition(
            target, memory, start_timeout=self.start_timeout, log=self.log.info, states=self._rendered_states()
        )

    def _trigger(self, **common: Any) -> TonySensorTrigger:
        return TonyStateTrigger(states=sorted(self._rendered_states()), **common)

    def _rendered_states(self) -> frozenset[str]:
        try:
            return states_of(self.states)
        except ValueError as error:
            raise TonySpecError(str(error)) from error


class TonyHeartbeatSensor(TonySensor):
    """Watch a training while it runs, from a task beside it: it succeeds when the training has.

    The job's tasks are judged while the job is ``RUNNING``; not while it waits for containers, or starts again.

    :param max_heartbeat_age: seconds that the application master may not have heard of a running task, or may itself
        say nothing; at least 10. None: it is not judged.
    :param min_steps_per_second: steps per second that each running task which reports steps is to make, over its last
        minute. None: speed is not judged.
    :param slow_for: seconds that a task may be slower than that.
    :param task_types: those to judge, such as ``["worker"]``; default: all.
    :param on_stale: ``fail``, or ``kill`` to end the application before, with the grace of its user processes: its
        task's next try goes on from the newest checkpoint.

    All others as ``TonySensor``; what it returns and raises as ``TonyJobSensor``, and TonyJobStale.
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
            raise ValueError(f"on_stale is {on_stale!r}: 'fail' or 'kill'")
        if max_heartbeat_age is None and min_steps_per_second is None:
            raise ValueError("max_heartbeat_age and min_steps_per_second are both None: there is nothing to watch")
        if max_heartbeat_age is not None:
            max_heartbeat_age = positive_seconds("max_heartbeat_age", max_heartbeat_age)
            if max_heartbeat_age < LEAST_HEARTBEAT_AGE:
                raise ValueError(
                    f"max_heartbeat_age is {max_heartbeat_age:g} s: at least {LEAST_HEARTBEAT_AGE:g}, since a healthy "
                    "job's status may be some seconds old"
                )
        if min_steps_per_second is not None:
            min_steps_per_second = positive_number("min_steps_per_second", min_steps_per_second)
        if isinstance(task_types, str):
            raise ValueError(f"task_types is {task_types!r}: a list of types, such as ['worker']")  # noqa: TRY004
        self.max_heartbeat_age = max_heartbeat_age
        self.min_steps_per_second = min_steps_per_second
        self.slow_for = positive_seconds("slow_for", slow_for)
        self.task_types = None if task_types is None else list(task_types)
        self.on_stale = on_stale

    def _conditions(self, target: JobTarget, memory: SensorMemory) -> SensorConditions:
        return HeartbeatCondition(
            target, memory, start_timeout=self.start_timeout, log=self.log.info, limits=self._limits()
        )

    def _trigger(self, **common: Any) -> TonySensorTrigger:
        return TonyHeartbeatTrigger(limits=attrs.asdict(self._limits()), **common)

    def _limits(self) -> HeartbeatLimits:
        return HeartbeatLimits(self.max_heartbeat_age, self.min_steps_per_second, self.slow_for, self.task_types)

    def _when_stale(self, outcome: SensorOutcome) -> None:
        found = outcome.found
        if self.on_stale != "kill" or found is None or found.identity is None:
            return
        self.log.info("Ending %s", found.application_id)
        try:
            end_application(self.hook, found.identity, found.application_id, SensorKill(outcome.message))
        except (ClusterError, StorageError) as error:
            self.log.error("%s could not be ended: %s", found.application_id, error)  # noqa: TRY400
