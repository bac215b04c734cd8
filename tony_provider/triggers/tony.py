"""TonyJobTrigger: waits for a job in the triggerer, while no worker slot is held."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from tony_provider.cluster.errors import ClusterError
from tony_provider.cluster.identity import Identity
from tony_provider.hooks.tony import TonyHook
from tony_provider.operators.killing import end_application
from tony_provider.operators.watch import Deadlines, Ending, JobWatch
from tony_provider.runtime.storage.errors import StorageError


class TonyJobTrigger(BaseTrigger):
    """Yields one event when there is nothing more to wait for; ``_event`` says what is in it.

    All state is in its arguments, so that another triggerer can go on with it. Only a user's action on the task ends
    the application (``on_kill``), and only this one; being cancelled does not.

    :param slug, digest: of the training's identity.
    :param attached: whether the application was an earlier try's; comes back in the event.
    :param poll_interval: seconds.
    :param end, queue: epoch seconds, see ``Deadlines``.
    :param kill: whether a user's action on the task ends the application.
    """

    def __init__(
        self,
        *,
        tony_conn_id: str,
        proxy_user: str | None,
        slug: str,
        digest: str,
        application_id: str,
        attached: bool,
        poll_interval: float,
        end: float | None,
        queue: float | None,
        kill: bool,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tony_conn_id = tony_conn_id
        self.proxy_user = proxy_user
        self.slug = slug
        self.digest = digest
        self.application_id = application_id
        self.attached = attached
        self.poll_interval = poll_interval
        self.end = end
        self.queue = queue
        self.kill = kill

    def serialize(self) -> tuple[str, dict[str, Any]]:
        arguments = (
            "tony_conn_id",
            "proxy_user",
            "slug",
            "digest",
            "application_id",
            "attached",
            "poll_interval",
            "end",
            "queue",
            "kill",
        )
        return "tony_provider.triggers.tony.TonyJobTrigger", {name: getattr(self, name) for name in arguments}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        with TonyHook(self.tony_conn_id, self.proxy_user) as hook:
            watch = JobWatch(
                hook,
                Identity(self.slug, self.digest),
                self.application_id,
                Deadlines(end=self.end, queue=self.queue),
                self.log.info,
            )
            ending, error = None, None
            while ending is None and error is None:
                try:
                    ending = await asyncio.to_thread(watch.look)
                except (ClusterError, StorageError) as problem:
                    error = str(problem)
                else:
                    await asyncio.sleep(0 if ending else self.poll_interval)
            yield TriggerEvent(self._event(ending, error))  # type: ignore[no-untyped-call]

    async def on_kill(self) -> None:
        if self.kill:
            await asyncio.to_thread(self._end_application)

    def _event(self, ending: Ending | None, error: str | None) -> dict[str, Any]:
        """``reason`` is a ``watch.Reason``, or None when ``error`` says why it could not be watched any more."""
        return {
            "version": 1,
            "application_id": self.application_id,
            "attached": self.attached,
            "reason": ending.reason.value if ending else None,
            "last_message": ending.last_message if ending else "",
            "error": error,
        }

    def _end_application(self) -> None:
        with TonyHook(self.tony_conn_id, self.proxy_user) as hook:
            reason = "the deferred Airflow task was marked or cleared by a user"
            end_application(hook, Identity(self.slug, self.digest), self.application_id, reason)
