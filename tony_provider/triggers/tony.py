"""TonyJobTrigger: waits for a job in the triggerer, while no worker slot is held."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from functools import cached_property
from typing import Any

from airflow.providers.common.compat.sdk import TaskInstanceState
from airflow.triggers.base import TriggerEvent

from tony_provider.airflow_versions.capabilities import TRIGGERS_ARE_KILLED
from tony_provider.airflow_versions.killed_trigger import KilledTrigger
from tony_provider.cluster.errors import ClusterError
from tony_provider.configuration import ConfigurationProblem
from tony_provider.runtime.codec import from_plain, to_plain
from tony_provider.runtime.storage.errors import StorageError
from tony_provider.triggers.deferred_job import VERSION, DeferredJob, WatchEvent
from tony_provider.triggers.earliest_event import until_earliest
from tony_provider.triggers.versions import refuse_newer
from tony_provider.watching.job_poller import FollowedJob, following
from tony_provider.watching.shown_output import ShownOutput, shown_output
from tony_provider.watching.task_states import TrainTask, TrainTaskStates
from tony_provider.watching.termination import Kill, end_from_triggerer
from tony_provider.watching.token_renewal import TokenRenewal
from tony_provider.watching.watch import JobWatch
from tony_provider.watching.watch_result import WatchLimits, WatchResult

STATE_SECONDS = 5.0  # that Airflow may take to tell the task's state; it ends on_kill after 30
MEANWHILE = 5.0  # seconds between two chances to tell that there is no news
KILL_REASON = "the deferred task was marked or cleared by a user"


class TonyJobTrigger(KilledTrigger):
    """Yields one event when there is nothing more to wait for: a ``WatchEvent``, as plain JSON.

    All state is in its arguments, so that another triggerer can go on with it. Only a user's action on the task ends
    the application (``on_kill``), and only this one; being cancelled does not.

    :param job: a ``DeferredJob``, as plain JSON.
    :param poll_interval: seconds between two looks at its steps and metrics, at least.
    :param end, queue: epoch seconds, see ``WatchLimits``.
    :param earliest: epoch seconds, see ``earliest_event``; None: at once.
    :param whose: the name of the try; the application's diagnostics hold it when the try's end was its end.
    :param version: of these arguments; a task may have been deferred by another release.
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
        # Not in the constructor: what that raises would end the whole triggerer.
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
            output = shown_output(self.job.application_id, self.job.output)
            ending = await self._watch(output)
            told = output.told() if output is not None else {}
            event = WatchEvent(self.job, ending.reason, ending.last_message, told=told)
        except (ClusterError, StorageError, ConfigurationProblem) as problem:
            event = WatchEvent(self.job, error=str(problem))
        await until_earliest(self.earliest)
        self.has_told = True
        yield TriggerEvent(to_plain(event))  # type: ignore[no-untyped-call]

    async def on_kill(self) -> None:
        job = self.job
        if not job.kill:
            return
        task = await self._task_states()
        if task.state == TaskInstanceState.DEFERRED.value:
            # No user has ended it. A triggerer that was silent for a while finds its triggers handed to another one,
            # and is told to cancel them in the words of a user's action. Or the task was cleared, and its next try is
            # deferred by now: that one has ended the application before.
            return
        if not task.state and not TRIGGERS_ARE_KILLED.is_here:
            return  # all that is known is that this trigger was cancelled, as by a triggerer that goes down
        # A next try goes on with the run.
        run = job.mlflow if task.is_over is not False else None
        kill = Kill(KILL_REASON, self.whose)
        await end_from_triggerer(job.tony_conn_id, job.proxy_user, job.identity, job.application_id, kill, run)

    async def _task_states(self) -> TrainTaskStates:
        task = self.task_instance
        if task is None:
            return TrainTaskStates()
        asked = TrainTask(task.dag_id, task.run_id, task.task_id, task.map_index)
        return await asked.ask(STATE_SECONDS)

    async def _watch(self, output: ShownOutput | None) -> WatchResult:
        renewal = TokenRenewal(self.job.identity, self.job.application_id)
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

    def _tell(self, output: ShownOutput | None, renewal: TokenRenewal) -> None:
        for line in (*(output.lines() if output is not None else ()), *renewal.lines()):
            self.log.info(line)
