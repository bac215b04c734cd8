"""What the benchmark compares with: a trigger that polls its own job, as the operators of most providers do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from tony_provider.cluster.training.identity import Identity
from tony_provider.hooks.tony import TonyHook
from tony_provider.watching.job_watch import JobWatch, WatchLimits
from tony_provider.watching.observation import observe


class NaiveTrigger(BaseTrigger):
    """Every ``poll_interval`` seconds one look at the application and at its status, by a hook of its own."""

    def __init__(self, *, application_id: str, poll_interval: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.application_id = application_id
        self.poll_interval = poll_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        arguments = {"application_id": self.application_id, "poll_interval": self.poll_interval}
        return "benchmarks.naive_trigger.NaiveTrigger", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        identity = Identity("bench", self.application_id)
        watch = JobWatch(self.application_id, WatchLimits(), self.log.info)
        with TonyHook() as hook:
            job = hook.job(self.application_id, identity)
            while watch.judge(await asyncio.to_thread(observe, job)) is None:  # noqa: ASYNC110
                await asyncio.sleep(self.poll_interval)
        yield TriggerEvent({"application_id": self.application_id})  # type: ignore[no-untyped-call]
