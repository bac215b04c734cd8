"""The base of both sensors: which job they look at, where they wait for it, and how they end."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

import attrs
from airflow.providers.common.compat.sdk import (
    AirflowSensorTimeout,
    AirflowTaskTimeout,
    BaseSensorOperator,
    PokeReturnValue,
    conf,
)
from airflow.sdk.bases.operator import TRIGGER_FAIL_REPR, TriggerFailureReason

from tony_provider.arguments import empty_to_none, positive_seconds, yes_or_no
from tony_provider.cluster.errors import ClusterError, ClusterUnreachable
from tony_provider.exceptions import TonyJobMissed, TonyJobRejected, TonyJobStale
from tony_provider.hooks.tony import TonyHook
from tony_provider.operators.tries import TaskTry, gets_another_trigger
from tony_provider.sensors.sensor_arguments import NAMES, SensorArguments
from tony_provider.sensors.sensor_memory import recall, remember
from tony_provider.state_store import StateStore
from tony_provider.triggers.sensor import VERSION, TonySensorTrigger, outcome_of, plain_target
from tony_provider.watching.job_search import JobSearch, JobTarget
from tony_provider.watching.sensor_conditions import SensorConditions, SensorEnd, SensorMemory, SensorOutcome
from tony_provider.watching.task_states import TrainTask, TrainTaskStates
from tony_provider.watching.watch_result import deferral_timeout

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

# Templated, and not all of them needed.
_OPTIONAL = (*NAMES, "map_index", "checkpoint_key", "proxy_user")


class TonySensor(BaseSensorOperator):
    """Base class of both sensors, with the arguments that both take; see docs/sensors.md.

    Neither ends a job because it is cleared or marked.

    Exactly one of the first three arguments says which job.

    :param application_id: such as ``application_1700000000000_0001``, or ``train.output["application_id"]``. Templated.
    :param application_tag: a tag on YARN: that of a training (``tony-…``), or one of the job's ``tags``; the newest
        application that has it. Templated.
    :param train_task_id: a training task of the same run (in a task group, ``<group>.<task>``); no dependency is
        needed. A retry is followed to its new application, as long as Airflow has not done with the task. Templated.
    :param map_index: of the mapped training task; default: the sensor's own, or none. Templated.
    :param checkpoint_key: the training task's, where it has one. Templated.
    :param start_timeout: seconds that there may be no application, from the sensor's start and between two tries of the
        training; default: no limit but ``timeout``.
    :param tony_conn_id: the training task's connection. Templated.
    :param proxy_user: whom to ask as: for ``train_task_id`` the training task's; default: the connection's user.
        Templated.
    :param deferrable: wait in the triggerer, else in the worker, as ``mode`` says; default: Airflow's
        ``[operators] default_deferrable``.
    :param poke_interval: seconds between two looks, at least. In a triggerer all jobs of a connection share one list of
        applications and a budget of looks, whatever this says.
    :param multiple_outputs: each key of the result is an XCom of its own.
    """

    template_fields: Sequence[str] = ("tony_conn_id", *_OPTIONAL)
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
        tony_conn_id: str = TonyHook.default_conn_name,
        proxy_user: str | None = None,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        poke_interval: timedelta | float = 10.0,
        multiple_outputs: bool = True,
        **kwargs: Any,
    ) -> None:
        seconds = positive_seconds("poke_interval", poke_interval)
        super().__init__(poke_interval=seconds, multiple_outputs=multiple_outputs, **kwargs)
        if application_id is None and application_tag is None and train_task_id is None:
            raise ValueError(f"a sensor needs exactly one of {', '.join(NAMES)}")
        self.application_id = application_id
        self.application_tag = application_tag
        self.train_task_id = train_task_id
        self.map_index = map_index
        self.checkpoint_key = checkpoint_key
        self.start_timeout = None if start_timeout is None else positive_seconds("start_timeout", start_timeout)
        self.tony_conn_id = tony_conn_id
        self.proxy_user = proxy_user
        self.deferrable = yes_or_no("deferrable", deferrable)
        self._watch: tuple[JobSearch, SensorConditions, TrainTask | None] | None = None  # from one poke to the next

    @cached_property
    def hook(self) -> TonyHook:
        return TonyHook(self.tony_conn_id, self.proxy_user)

    def execute(self, context: Context) -> Any:
        self._watch = None
        empty_to_none(self, _OPTIONAL)
        try:
            if self.deferrable:
                self._defer(context)
            return super().execute(context)
        finally:
            self.hook.close()

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
        return PokeReturnValue(True, attrs.asdict(outcome.result) if outcome.result is not None else None)

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any] | None:
        """Go on where the trigger saw that there is nothing more to look at; ``event`` is as ``event_of`` says."""
        try:
            if event["error"]:
                raise (TonyJobRejected if event["permanent"] else ClusterUnreachable)(event["error"])
            self._conclude(outcome_of(event))
        finally:
            self.hook.close()
        result: dict[str, Any] | None = event["result"]
        return result

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Go on with a deferred sensor: called by Airflow when the trigger has ended or failed.

        The job is none the worse for a failed trigger.
        """
        empty_to_none(self, _OPTIONAL)
        given = next_kwargs or {}
        if next_method == TRIGGER_FAIL_REPR and given.get("error") == TriggerFailureReason.TRIGGER_FAILURE:
            self.log.error("Trigger failed:\n%s", "\n".join(given.get("traceback") or ["(nobody said why)"]))
            next_method, next_kwargs = "go_on_without_trigger", {}
        return super().resume_execution(next_method, next_kwargs, context)

    def go_on_without_trigger(self, context: Context) -> Any:
        """Go on after the trigger failed, for what is left of the time.

        That is in the triggerer again, and at last in the worker.
        """
        try:
            if gets_another_trigger(StateStore(context, self.log), TaskTry.of(context), self.log):
                # Whether the job had been seen went with the trigger: what start_timeout allows is allowed anew.
                self._defer(context, began=time.time())
            self.log.warning("Waiting in this worker")
            return self._poke_on(context)
        finally:
            self.hook.close()

    def _poke_on(self, context: Context) -> Any:
        """In this very process, for what is left of the time: rescheduled, the task would begin anew."""
        self.mode = "poke"
        until, limited = self._until(context), self._is_limited
        self.timeout = max(0.0, until - time.time())
        try:
            return super().execute(context)
        except AirflowSensorTimeout as error:
            if limited and time.time() >= until:
                raise AirflowTaskTimeout(self._took_too_long) from error
            raise

    @abstractmethod
    def _conditions(self, target: JobTarget, memory: SensorMemory) -> SensorConditions: ...

    @abstractmethod
    def _trigger(self, **common: Any) -> TonySensorTrigger: ...

    def _when_stale(self, outcome: SensorOutcome) -> None:
        """Before the task fails."""

    def _aim(self, context: Context) -> tuple[JobTarget, TrainTask | None]:
        aim = SensorArguments(
            self.application_id, self.application_tag, self.train_task_id, self.map_index, self.checkpoint_key
        )
        return aim.resolve(self.hook, context, sorted(self.dag.task_ids))

    # -- in the triggerer --------------------------------------------------------------------------------------------

    def _defer(self, context: Context, began: float | None = None) -> NoReturn:
        """``began``: from when ``start_timeout`` counts, in epoch seconds; default: the sensor's start."""
        try:
            target, train_task = self._aim(context)
        except ClusterError as error:
            raise TonyJobRejected(str(error)) from error
        end = self._until(context)
        self.defer(
            trigger=self._trigger(
                tony_conn_id=self.tony_conn_id,
                proxy_user=self.proxy_user,
                target=plain_target(target),
                train_task=attrs.asdict(train_task) if train_task is not None else None,
                poll_interval=self.poke_interval,
                start_timeout=self.start_timeout,
                began=_began(context) if began is None else began,
                end=end,
                version=VERSION,
            ),
            method_name="execute_complete",
            timeout=deferral_timeout(end),
        )

    def _until(self, context: Context) -> float:
        """In epoch seconds."""
        limit = self.execution_timeout
        return _began(context) + (min(self.timeout, limit.total_seconds()) if limit is not None else self.timeout)

    @property
    def _is_limited(self) -> bool:
        """Whether its execution_timeout comes before its timeout."""
        return self.execution_timeout is not None and self.execution_timeout.total_seconds() < self.timeout

    @property
    def _took_too_long(self) -> str:
        return f"the sensor took longer than its execution_timeout ({self.execution_timeout})"

    # -- in the worker -----------------------------------------------------------------------------------------------

    def _look(self, context: Context) -> SensorOutcome | None:
        if self._watch is None:
            target, train_task = self._aim(context)
            memory = recall(context, self.log) if self.reschedule else None
            conditions = self._conditions(target, memory or SensorMemory.beginning(time.time()))
            self._watch = JobSearch(target), conditions, train_task
        search, conditions, train_task = self._watch
        task_states = train_task.states() if train_task is not None else TrainTaskStates()
        outcome = conditions.judge(search.look(self.hook), task_states)
        if self.reschedule:
            remember(context, conditions.memory, self.log)
        return outcome

    # -- when there is nothing more to look at -----------------------------------------------------------------------

    def _conclude(self, outcome: SensorOutcome) -> None:
        """Raises unless it is what was waited for."""
        if outcome.end is SensorEnd.TIMEOUT:
            if self._is_limited:
                raise AirflowTaskTimeout(self._took_too_long)
            raise AirflowSensorTimeout(f"the sensor took longer than its timeout ({self.timeout:g} s)")
        if outcome.end is SensorEnd.START_TIMEOUT:
            raise AirflowSensorTimeout(outcome.message)
        if outcome.end is SensorEnd.MISSED:
            raise TonyJobMissed(outcome.message)
        if outcome.end is SensorEnd.STALE:
            self.log.error("%s", outcome.message)
            self._when_stale(outcome)
            raise TonyJobStale(outcome.message)


def _began(context: Context) -> float:
    """When this try of the sensor did, in epoch seconds: before it was deferred."""
    started = context["ti"].start_date
    return started.timestamp() if started is not None else time.time()
