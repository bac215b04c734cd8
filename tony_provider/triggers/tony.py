"""TonyJobTrigger: waits for a job in the triggerer, while no worker slot is held."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

from airflow.providers.common.compat.sdk import TaskInstanceState
from airflow.triggers.base import BaseTrigger, TriggerEvent

from tony_provider.cluster.errors import ClusterError
from tony_provider.cluster.identity import Identity
from tony_provider.configuration import ConfigurationProblem
from tony_provider.runtime.storage.errors import StorageError
from tony_provider.triggers.versions import refuse_newer
from tony_provider.watching.poller import FollowedJob, following
from tony_provider.watching.task_states import TrainTask
from tony_provider.watching.termination import Kill, end_from_triggerer
from tony_provider.watching.watch import JobWatch
from tony_provider.watching.watch_result import WatchLimits, WatchResult

VERSION = 2  # of the arguments and of the event; those of every earlier one are understood
STATE_SECONDS = 5.0  # that Airflow may take to tell the task's state; it ends on_kill after 30
MEANWHILE = 5.0  # seconds between two chances to tell that there is no news
KILL_REASON = "the deferred task was marked or cleared by a user"


class TonyJobTrigger(BaseTrigger):
    """The trigger of a deferred training task: yields one event when there is nothing more to wait for.

    ``_event`` says what is in it.

    All state is in its arguments, so that another triggerer can go on with it. Only a user's action on the task ends
    the application (``on_kill``), and only this one; being cancelled does not.

    :param slug, digest: of the training's identity.
    :param poll_interval: seconds between two looks at its steps and metrics, at least.
    :param end, queue: epoch seconds, see ``WatchLimits``.
    :param kill: whether a user's action on the task ends the application.
    :param whose: the name of the try; the application's diagnostics hold it when the try's end was its end.
    :param version: of these arguments; a task may have been deferred by an earlier release.
    """

    def __init__(
        self,
        *,
        tony_conn_id: str,
        proxy_user: str | None,
        slug: str,
        digest: str,
        application_id: str,
        poll_interval: float,
        end: float | None,
        queue: float | None,
        kill: bool,
        whose: str | None = None,  # not in version 1
        attached: bool = False,  # in version 1 only
        version: int = 1,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tony_conn_id = tony_conn_id
        self.proxy_user = proxy_user
        self.slug = slug
        self.digest = digest
        self.application_id = application_id
        self.poll_interval = poll_interval
        self.end = end
        self.queue = queue
        self.kill = kill
        self.whose = whose
        self.version = version

    def serialize(self) -> tuple[str, dict[str, Any]]:
        arguments = (
            "tony_conn_id",
            "proxy_user",
            "slug",
            "digest",
            "application_id",
            "poll_interval",
            "end",
            "queue",
            "kill",
            "whose",
        )
        given = {name: getattr(self, name) for name in arguments}
        return "tony_provider.triggers.tony.TonyJobTrigger", {**given, "version": VERSION}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        refuse_newer(self.version, VERSION)
        ending, error = None, None
        try:
            ending = await self._watch()
        except (ClusterError, StorageError, ConfigurationProblem) as problem:
            error = str(problem)
        yield TriggerEvent(self._event(ending, error))  # type: ignore[no-untyped-call]

    async def on_kill(self) -> None:
        if self.kill and not await self._goes_on():
            await end_from_triggerer(
                self.tony_conn_id, self.proxy_user, self._identity, self.application_id, self._kill
            )

    @property
    def _kill(self) -> Kill:
        return Kill(KILL_REASON, self.whose)

    async def _goes_on(self) -> bool:
        """Whether the task is deferred all the same, so that no user has ended it.

        A triggerer that was silent for a while finds its triggers handed to another one, and is told to cancel them in
        the words of a user's action. Or the task was cleared, and its next try is deferred by now: that one has ended
        the application before.
        """
        task = self.task_instance
        if task is None:
            return False
        asked = TrainTask(task.dag_id, task.run_id, task.task_id, task.map_index)
        task_states = await asked.ask(STATE_SECONDS)
        return task_states.state == TaskInstanceState.DEFERRED.value

    async def _watch(self) -> WatchResult:
        deadlines = WatchLimits(end=self.end, queue=self.queue)
        job = FollowedJob(self._identity, self.application_id, self.poll_interval)
        async with following(self.tony_conn_id, self.proxy_user, job) as poller:
            watch = JobWatch(self.application_id, deadlines, self.log.info, contact=poller.contact)
            ending = watch.judge(None)
            while ending is None:
                now = time.time()
                deadline = deadlines.next_after(now)
                seen = await job.next(MEANWHILE if deadline is None else min(MEANWHILE, deadline - now))
                ending = watch.judge(seen)
                job.ask_master = watch.silence.wants_master
                if ending is None and seen is not None and watch.wants_look(seen):
                    poller.hurry(job)
        return ending

    @property
    def _identity(self) -> Identity:
        return Identity(self.slug, self.digest)

    def _event(self, ending: WatchResult | None, error: str | None) -> dict[str, Any]:
        """``reason`` is an ``ending.Reason``, or None when ``error`` says why it could not be watched any more."""
        return {
            "version": VERSION,
            "application_id": self.application_id,
            "reason": ending.reason.value if ending else None,
            "last_message": ending.last_message if ending else "",
            "error": error,
        }
