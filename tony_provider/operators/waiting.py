"""Waiting in the worker for an application to end: until when, and who ends it should nobody wait any more."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from tony_provider.cluster import lifetime
from tony_provider.cluster.errors import is_unforeseen
from tony_provider.cluster.identity import Identity
from tony_provider.cluster.prepared_submission import with_defaults
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.protocol.status import JobState
from tony_provider.runtime.spec.model import JobSpec
from tony_provider.watching.kill_switch import KillSwitch
from tony_provider.watching.looker import Looker
from tony_provider.watching.observation import Observation
from tony_provider.watching.watch import JobWatch
from tony_provider.watching.watch_result import WatchLimits, WatchResult

if TYPE_CHECKING:
    from airflow.sdk.types import Logger

FIRST_POLL = 0.3  # seconds; the pauses grow from there by POLL_GROWTH, up to the task's poll_interval
POLL_GROWTH = 1.05  # so that an end is known late by a twentieth of the job's time at most
LIFETIME_SLACK = 600.0  # seconds after the deadline: first the trigger minds it, then Airflow's own end of a deferral


def deadlines_of(
    hook: TonyHook,
    application_id: str,
    job: JobSpec,
    *,
    started: datetime | None,
    execution_timeout: timedelta | None,
) -> WatchLimits:
    """The limits of a try's wait for its application.

    ``execution_timeout`` counts from when this try ``started``, the job's queue timeout from its submission.
    """
    if not execution_timeout and job.timeouts.queue is None:
        return WatchLimits()
    application = hook.application(application_id)
    local = time.time()
    now = local + (application.clock_ahead if application else 0.0)  # by the cluster's clock
    end = queue = None
    if execution_timeout:
        # A start that is yet to come was written by a machine with another clock.
        gone = max(0.0, local - started.timestamp()) if started else 0.0
        end = now - gone + execution_timeout.total_seconds()
    if job.timeouts.queue is not None:
        submitted = application.started_ms / 1000 if application and application.started_ms else now
        queue = submitted + job.timeouts.queue
    return WatchLimits(end, queue)


def bound(
    hook: TonyHook, identity: Identity, application_id: str, job: JobSpec, end: float, *, attached: bool, log: Logger
) -> None:
    """Have the cluster itself end the application soon after ``end``, should all of Airflow be gone.

    ``end``: epoch seconds by the cluster's clock.

    One that an earlier try has started had that try's time. The job's own limits hold all the same.
    """
    try:
        application = hook.application(application_id)
        if application is None or application.is_final or (attached and _is_ending(hook, identity, application_id)):
            return
        latest = end + LIFETIME_SLACK
        timeouts = with_defaults(job, hook.settings).timeouts
        if (own := lifetime.seconds_left(timeouts, application.started_ms / 1000)) is not None:
            latest = min(latest, application.started_ms / 1000 + own)
        now = time.time() + application.clock_ahead
        hook.limit(application_id, latest - now, "the task's execution_timeout is over", prolong=True)
    except Exception as error:  # what the job says of itself is read for it
        said = "%s goes on without a limit set by the cluster: %s"
        log.warning(said, application_id, error, exc_info=is_unforeseen(error))


def _is_ending(hook: TonyHook, identity: Identity, application_id: str) -> bool:
    """It was stopped: the cluster was told how long that may take, and is not to be told otherwise."""
    status = hook.job_status(identity, application_id)
    return status is not None and status.state is JobState.FINISHING


def wait(
    look: Callable[[], Observation],
    watch: JobWatch,
    switch: KillSwitch,
    poll_interval: float,
    heed_kill: Callable[[], None],
    seen: Callable[[Observation | None], None] = lambda _: None,
) -> WatchResult:
    """Look at the job until there is nothing more to watch; returns why.

    ``heed_kill`` raises once the switch was pulled; ``seen`` is given what each look has seen.
    """
    seconds = min(FIRST_POLL, poll_interval)

    def pause() -> None:
        nonlocal seconds
        switch.sleep(seconds)
        heed_kill()
        seconds = min(seconds * POLL_GROWTH, poll_interval)

    with Looker(look, watch) as looker:
        return looker.until_the_end(pause, heed_kill, seen)
