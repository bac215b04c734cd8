"""TonyJobSensor and TonyHeartbeatSensor: waiting for a job, or watching it, from another task."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from tony_provider.arguments import positive_number, positive_seconds
from tony_provider.sensors.base import TonySensor
from tony_provider.watching.state_names import states_of

if TYPE_CHECKING:
    from tony_provider.sensors.waiting_run import WaitingRun

LEAST_HEARTBEAT_AGE = 10.0  # seconds; an application master tells what it has heard every five


class TonyJobSensor(TonySensor):
    """Wait until a job is in one of some states.

    Which job, and how to wait for it, say the arguments of ``TonySensor``.

    :param states: names of states of the job (``WAITING``, ``STARTING``, ``RUNNING``, ``RESTARTING``, ``SUSPENDED``,
        ``RECOVERING``, ``FINISHING``, ``SUCCEEDED``, ``FAILED``, ``KILLED``) or of its application before (``NEW``,
        ``NEW_SAVING``, ``SUBMITTED``, ``ACCEPTED``) or after (``FINISHED``); a list, or text with commas. A state may
        be over between two looks: name those that may follow it, too. Templated.
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

    def _new_run(self) -> WaitingRun:
        from tony_provider.sensors.sensor_run import JobSensorRun

        return JobSensorRun(self, self.states)


class TonyHeartbeatSensor(TonySensor):
    """Watch a training while it runs, from a task beside it: it succeeds when the training has.

    The job's tasks are judged while the job is ``RUNNING``; not while it waits for containers, or starts again.

    :param max_heartbeat_age: seconds for which the application master may hear nothing of a running task, or be silent
        itself; at least 10. None: not checked.
    :param min_steps_per_second: the least steps per second of each running task that reports steps, over its last
        minute. None: not checked.
    :param slow_for: seconds that a task may be slower than that.
    :param task_types: the task types to check, such as ``["worker"]``; default: all.
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

    def _new_run(self) -> WaitingRun:
        from tony_provider.sensors.sensor_run import HeartbeatSensorRun
        from tony_provider.watching.heartbeat_condition import HeartbeatLimits

        limits = HeartbeatLimits(self.max_heartbeat_age, self.min_steps_per_second, self.slow_for, self.task_types)
        return HeartbeatSensorRun(self, limits, kill=self.on_stale == "kill")
