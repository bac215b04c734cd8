"""The base of both sensors: which job they look at, and where they wait for it.

Every parse of a DAG file loads this module, and so it loads nothing that only a running task needs.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import (
    AirflowSensorTimeout,
    AirflowTaskTimeout,
    BaseSensorOperator,
    PokeReturnValue,
    conf,
)
from airflow.sdk.bases.operator import TRIGGER_FAIL_REPR, TriggerFailureReason

from tony_provider.airflow_versions.capabilities import RESCHEDULED_MEMORY
from tony_provider.arguments import DEFAULT_CONN_ID, empty_to_none, positive_seconds, yes_or_no
from tony_provider.readable_errors import ReadableTemplates, with_readable_errors

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from tony_provider.hooks.tony import TonyHook
    from tony_provider.sensors.waiting_run import WaitingRun

# Exactly one of them says which job.
WHICH_JOB = ("application_id", "application_tag", "train_task_id")

# Templated, and not all of them needed.
OPTIONAL = (*WHICH_JOB, "map_index", "checkpoint_key", "proxy_user")


class TonySensor(ReadableTemplates, BaseSensorOperator):
    """Base class of both sensors, with the arguments that both take; see docs/sensors.md.

    Neither ends a job because it is cleared or marked.

    Exactly one of the first three arguments says which job.

    :param application_id: such as ``application_1700000000000_0001``, or ``train.output["application_id"]``. Templated.
    :param application_tag: a tag on YARN: that of a training (``tony-…``), or one of the job's ``tags``; the newest
        application that has it. Templated.
    :param train_task_id: a training task of the same run (in a task group, ``<group>.<task>``); no dependency is
        needed. A retry is followed to its new application, as long as Airflow has not done with the task. Templated.
    :param map_index: the map index of the training task, where it is mapped; default: the sensor's own, or none.
        Templated.
    :param checkpoint_key: the training task's, where it has one. Templated.
    :param start_timeout: seconds that there may be no application, from the sensor's start and between two tries of the
        training; default: no limit but ``timeout``.
    :param tony_conn_id: the training task's connection. Templated.
    :param proxy_user: the user to ask as; with ``train_task_id``, the training task's; default: the connection's user.
        Templated.
    :param deferrable: wait in the triggerer, else in the worker, as ``mode`` says; default: Airflow's
        ``[operators] default_deferrable``.
    :param poke_interval: seconds between two looks, at least. In a triggerer all jobs of a connection share one list of
        applications and a budget of looks, whatever this says.
    :param multiple_outputs: each key of the result is an XCom of its own.
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
        self._run: WaitingRun | None = None  # from one poke to the next

    @cached_property
    def hook(self) -> TonyHook:
        from tony_provider.hooks.tony import TonyHook

        return TonyHook(self.tony_conn_id, self.proxy_user)

    @abstractmethod
    def _new_run(self) -> WaitingRun:
        """What the sensor does from now on."""

    @property
    def running(self) -> WaitingRun:
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
        """Go on where the trigger saw that there is nothing more to look at; ``event`` is as ``event_of`` says."""
        try:
            return self.running.go_on(event)
        finally:
            self.hook.close()

    @with_readable_errors
    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Go on with a deferred sensor: called by Airflow when the trigger has ended or failed. The job runs on."""
        empty_to_none(self, OPTIONAL)
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
            self.running.defer_again(context)
            self.log.warning("Waiting in this worker")
            return self._poke_on(context)
        finally:
            self.hook.close()

    def _poke_on(self, context: Context) -> Any:
        """In this very process, for what is left of the time: rescheduled, the task would begin anew."""
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
