"""Waiting in the worker for an application to end, and until when."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta

from tony_provider.hooks.tony import TonyHook
from tony_provider.operators.killing import KillSwitch
from tony_provider.operators.watch import Deadlines, Ending, JobWatch
from tony_provider.runtime.spec.model import JobSpec

FIRST_POLL = 0.5  # seconds; the pauses grow from there by POLL_GROWTH, up to the task's poll_interval
POLL_GROWTH = 1.3


def deadlines_of(
    hook: TonyHook,
    application_id: str,
    job: JobSpec,
    *,
    started: datetime | None,
    execution_timeout: timedelta | None,
) -> Deadlines:
    """``execution_timeout`` counts from when this try ``started``, the job's queue timeout from its submission."""
    end = None
    if execution_timeout:
        end = (started.timestamp() if started else time.time()) + execution_timeout.total_seconds()
    if job.timeouts.queue is None:
        return Deadlines(end)
    application = hook.application(application_id)
    submitted = application.started_ms / 1000 if application and application.started_ms else time.time()
    return Deadlines(end, submitted + job.timeouts.queue)


def wait(watch: JobWatch, switch: KillSwitch, poll_interval: float, heed_kill: Callable[[], None]) -> Ending:
    """Look until there is nothing more to watch. ``heed_kill`` raises once the switch was pulled."""
    pause = min(FIRST_POLL, poll_interval)
    while (ending := watch.look()) is None:
        switch.sleep(pause)
        heed_kill()
        pause = min(pause * POLL_GROWTH, poll_interval)
    return ending
