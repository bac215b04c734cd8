"""The triggers of a deferred training task and of deferred sensors.

The module also contains the base class of triggers that do something when a user marks or clears their deferred task.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import attrs
from airflow.providers.common.compat.sdk import TaskInstanceState, conf
from airflow.triggers.base import BaseTrigger, TriggerEvent

from tony_provider.cluster.errors import ClusterError
from tony_provider.cluster.training.identity import Identity
from tony_provider.compat import TRIGGERS_ARE_KILLED
from tony_provider.configuration import ConfigurationProblem
from tony_provider.hooks.job import TonyJob
from tony_provider.hooks.mlflow_server import OpenMlflowRun
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.common.codec import from_plain, to_plain
from tony_provider.runtime.common.concurrency import wait_with_timeout
from tony_provider.runtime.storage.errors import StorageError
from tony_provider.watching.conditions import SensorCriteria, SensorEnd, SensorMemory, SensorOutcome
from tony_provider.watching.job_poller import FollowedJob, JobTarget, PolledJob, following
from tony_provider.watching.job_watch import JobWatch, WatchEnd, WatchLimits, WatchResult
from tony_provider.watching.observation import TrainTask, TrainTaskState
from tony_provider.watching.task_output import OutputDisplay, OutputPosition, OutputSelection, output_display
from tony_provider.watching.termination import KillOrder, end_from_triggerer
from tony_provider.watching.token_refresher import TokenRefresher

KILL_SECONDS = 30.0  # time limit of on_kill: Airflow's default for [triggerer] on_kill_timeout


class KilledTrigger(BaseTrigger):
    """A trigger whose ``on_kill`` runs when a user marks or clears its task, in any version of Airflow.

    Airflow before 3.3 cancels triggers for many reasons and does not name the reason, so ``on_kill`` must query the
    task's state.
    """

    has_told = False  # set before the trigger yields its event: a later cancellation is no user's action

    if not TYPE_CHECKING and not TRIGGERS_ARE_KILLED.is_here:

        async def cleanup(self) -> None:
            """Call ``on_kill`` if ``run`` ended without an event. Logs exceptions, which Airflow would hide."""
            if self.has_told:
                return
            try:
                await wait_with_timeout(self.on_kill(), KILL_SECONDS)
            except Exception:
                self.log.exception("The cleanup of a cancelled trigger failed")


class DeferredByNewerRelease(Exception):  # noqa: N818 - named for what is wrong
    """A trigger cannot read its arguments, because a newer release of this provider wrote them.

    The job continues, and the task may defer again.
    """


def refuse_newer(version: int, known: int) -> None:
    """Check that a trigger knows the version of its arguments. Raises DeferredByNewerRelease.

    Call this when the trigger runs: an exception in its constructor would end the whole triggerer.
    """
    if version > known:
        raise DeferredByNewerRelease(
            f"this task was deferred by a newer release of tony-provider than the triggerer has (its arguments have "
            f"version {version}, but the triggerer supports {known}); upgrade the triggerers to the workers' release"
        )


_SUPERVISOR_SECONDS = 5.0  # Airflow's default for [workers] min_heartbeat_interval
_SCHEDULER_SECONDS = 5.0  # delay until a busy scheduler has recorded the end of the deferring process


def earliest_wake_up() -> float:
    """Return the earliest time, in epoch seconds, at which a task that is deferred now may be resumed."""
    looks: float = conf.getfloat("workers", "min_heartbeat_interval", fallback=_SUPERVISOR_SECONDS)
    return time.time() + looks + _SCHEDULER_SECONDS


async def wait_until_earliest(moment: float | None) -> None:
    """Wait until ``moment``, a result of ``earliest_wake_up``. Return immediately for None."""
    if moment is not None:
        await asyncio.sleep(max(0.0, moment - time.time()))


VERSION = 1  # version of the plain form of the classes below


@attrs.frozen
class DeferredJob:
    """A job that a trigger waits for, with the data about the task that the trigger needs."""

    tony_conn_id: str
    proxy_user: str | None
    slug: str  # slug of the training's identity
    digest: str
    application_id: str
    kill: bool  # whether a user's action on the task ends the application
    output: OutputSelection | None = None  # which output the task's log shows; None for none
    mlflow: OpenMlflowRun | None = None  # MLflow run to close if a user's action ends the application

    @property
    def identity(self) -> Identity:
        return Identity(self.slug, self.digest)

    def handle(self) -> TonyJob:
        """Return the handle of the job, with a hook of its own."""
        return TonyJob(TonyHook(self.tony_conn_id, self.proxy_user), self.application_id, self.identity)


@attrs.frozen
class WatchEvent:
    """The trigger's event for the task, with either ``reason`` or ``error``."""

    job: DeferredJob
    reason: WatchEnd | None = None  # why the wait is over
    last_message: str = ""  # the job's last message about its work or wait
    error: str | None = None  # why the job could not be watched further
    told: dict[str, OutputPosition] = attrs.field(factory=dict)  # by task: how far the log shows its output
    version: int = VERSION


STATE_SECONDS = 5.0  # time limit of the query for the task's state; Airflow ends on_kill after 30 seconds
MEANWHILE = 5.0  # maximum seconds between two checks of limits and outages
KILL_REASON = "the deferred task was marked or cleared by a user"


class TonyJobTrigger(KilledTrigger):
    """Yields one event when the wait is over: a ``WatchEvent`` as plain JSON.

    All state is in the arguments, so that another triggerer can continue. ``on_kill`` ends the application if a user
    marks or clears the task. A trigger that is cancelled for another reason leaves the application running.

    :param job: a ``DeferredJob``, as plain JSON.
    :param poll_interval: minimum seconds between two polls of the job's steps and metrics.
    :param end, queue: epoch seconds, see ``WatchLimits``.
    :param earliest: epoch seconds, see ``earliest_wake_up``; None for immediately.
    :param whose: the name of the try. The diagnostics of the application contain it if ``on_kill`` ends the
        application.
    :param version: version of these arguments, because another release may have deferred the task.
    """

    def __init__(
        self,
        *,
        job: Mapping[str, Any],
        poll_interval: float,
        end: float | None,
        queue: float | None,
        whose: str,
        earliest: float | None = None,
        version: int = VERSION,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._plain_job = dict(job)
        self.poll_interval = poll_interval
        self.limits = WatchLimits(end, queue)
        self.whose = whose
        self.earliest = earliest
        self.version = version

    @cached_property
    def job(self) -> DeferredJob:
        # Not in the constructor, because an exception there would end the whole triggerer.
        return from_plain(self._plain_job, DeferredJob, ignore_unknown=True)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "tony_provider.triggers.tony.TonyJobTrigger", {
            "job": self._plain_job,
            "poll_interval": self.poll_interval,
            "end": self.limits.end,
            "queue": self.limits.queue,
            "whose": self.whose,
            "earliest": self.earliest,
            "version": self.version,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        refuse_newer(self.version, VERSION)
        try:
            output = output_display(self.job.output)
            ending = await self._watch(output)
            told = output.told() if output is not None else {}
            event = WatchEvent(self.job, ending.reason, ending.last_message, told=told)
        except (ClusterError, StorageError, ConfigurationProblem) as problem:
            event = WatchEvent(self.job, error=str(problem))
        await wait_until_earliest(self.earliest)
        self.has_told = True
        yield TriggerEvent(to_plain(event))  # type: ignore[no-untyped-call]

    async def on_kill(self) -> None:
        job = self.job
        if not job.kill:
            return
        task = await self._task_states()
        if task.state == TaskInstanceState.DEFERRED.value:
            # No user has ended the task. This triggerer may have been silent, so that Airflow moved its
            # triggers to another triggerer, and now cancels them here as it does after a user's action.
            # Or the task was cleared, and its next try is already deferred. That try has already ended the application.
            return
        if not task.state and not TRIGGERS_ARE_KILLED.is_here:
            return  # the trigger was cancelled for an unknown reason, for example by a triggerer that shuts down
        # If there is a next try, it continues the MLflow run, so do not close the run.
        run = job.mlflow if task.is_over is not False else None
        kill = KillOrder(KILL_REASON, self.whose)
        await end_from_triggerer(job.handle(), kill, run)

    async def _task_states(self) -> TrainTaskState:
        task = self.task_instance
        if task is None:
            return TrainTaskState()
        asked = TrainTask(task.dag_id, task.run_id, task.task_id, task.map_index)
        return await asked.ask(STATE_SECONDS)

    async def _watch(self, output: OutputDisplay | None) -> WatchResult:
        renewal = TokenRefresher()
        followed = FollowedJob(self.job.identity, self.job.application_id, self.poll_interval, output, renewal)
        async with following(self.job.tony_conn_id, self.job.proxy_user, followed) as poller:
            watch = JobWatch(self.job.application_id, self.limits, self.log.info, contact=poller.contact)
            ending = watch.judge(None)
            while ending is None:
                now = watch.now
                deadline = self.limits.next_after(now)
                seen = await followed.next(MEANWHILE if deadline is None else min(MEANWHILE, deadline - now))
                self._tell(output, renewal)
                ending = watch.judge(seen)
                followed.ask_master = watch.silence.wants_master
                if ending is None and seen is not None and watch.wants_look(seen):
                    poller.hurry(followed)
        self._tell(output, renewal)
        return ending

    def _tell(self, output: OutputDisplay | None, renewal: TokenRefresher) -> None:
        for line in (*(output.lines() if output is not None else ()), *renewal.lines()):
            self.log.info(line)


ANSWER_SECONDS = 60.0  # time limit of a query for a task's state; the first query in a triggerer loads many modules


@attrs.frozen
class DeferredSensor:
    """A sensor's wait in the triggerer. Times are epoch seconds by the cluster's clock."""

    tony_conn_id: str
    proxy_user: str | None
    target: JobTarget
    train_task: TrainTask | None  # None if the sensor's arguments name no ``train_task_id``
    criteria: SensorCriteria
    poll_interval: float  # minimum seconds between two polls of the job
    began: float  # time from which the first ``start_timeout`` counts
    end: float | None  # time at which the outcome ``TIMEOUT`` ends the wait; None for no limit


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
        return "tony_provider.triggers.tony.TonySensorTrigger", arguments

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
            # The times are converted only now, because the poller learns the cluster's clock from the first answer.
            memory = SensorMemory(absent_since=sensor.began - poller.clock_ahead)
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
                    poller.hurry(job)  # judge only the next observation, which is newer than Airflow's answer
                else:
                    outcome = condition.judge(seen, task_states or TrainTaskState())
                    if outcome is not None:
                        return outcome
                    task_states = None
                left = None if end is None else end - time.time()
                if left is not None and left <= 0:
                    return SensorOutcome(SensorEnd.TIMEOUT)
                seen = await job.next(left)
