"""Follow a job from a command until it ends."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from rich.console import Console
from rich.live import Live

from tony_provider.cli.show_status import job_table
from tony_provider.cluster.errors import ClusterError
from tony_provider.configuration import poll_interval
from tony_provider.hooks.job import TonyJob
from tony_provider.operators.outcome import failure
from tony_provider.runtime.common.text import printable
from tony_provider.runtime.protocol.status import JobStatus
from tony_provider.watching.job_watch import JobWatch, Looker, WatchEnd, WatchLimits, WatchResult
from tony_provider.watching.observation import Observation
from tony_provider.watching.termination import KillOrder, clean_up, end_job

log = logging.getLogger(__name__)

NO_LIMITS = WatchLimits()
_LOOK = 1.0  # seconds between two polls for a table


class JobEndedBadly(ClusterError):  # noqa: N818 - named for what it is
    """The followed job failed, so the command exits with 1. The message describes the failure."""


def wait_for_job(job: TonyJob, limits: WatchLimits = NO_LIMITS) -> JobStatus | None:
    """Follow the job until it ends, remove files that it no longer needs, and return its last status.

    On a terminal, a table shows the job. Otherwise, each change is printed as a line. If the job waits
    for containers longer than ``limits`` allows, this call ends the job. Raises JobEndedBadly. Raises ClusterError and
    StorageError if the cluster is unreachable for long.
    """
    console = Console()
    follow = _in_table if console.is_terminal else _in_lines
    ending = follow(console, job, limits)
    if ending.reason is WatchEnd.QUEUE_TIMEOUT:
        end_job(job, KillOrder("timeouts.queue is over", by="`airflow tony submit --wait`"))
        waited = f"{job} did not get its containers within timeouts.queue, and was ended"
        raise JobEndedBadly(f"{waited}: {ending.last_message}")
    clean_up(job, log.warning)
    if problem := failure(job.application_id, ending.application, ending.status):
        raise JobEndedBadly(str(problem))
    return ending.status


def watch_until_end(
    job: TonyJob,
    limits: WatchLimits = NO_LIMITS,
    *,
    pause: float,
    say: Callable[[str], None],
    show: Callable[[Observation | None, list[str]], None],
) -> WatchResult:
    """Observe the job every ``pause`` seconds until it has ended, and return the result.

    ``say`` is called with lines about changes. ``show`` is called repeatedly with the last observation (None before
    the first one) and with lines about unreachable services.
    """
    watch = JobWatch(job.application_id, limits, say)
    newest: Observation | None = None

    def seen(observation: Observation | None) -> None:
        nonlocal newest
        newest = observation
        meanwhile()

    def meanwhile() -> None:
        show(newest, watch.silence.lines)

    with Looker(job, watch, say) as looker:
        return looker.until_the_end(lambda: time.sleep(pause), meanwhile, seen)


def _in_lines(console: Console, job: TonyJob, limits: WatchLimits) -> WatchResult:
    def say(line: str) -> None:
        console.print(printable(line), markup=False, highlight=False, soft_wrap=True)

    return watch_until_end(job, limits, pause=poll_interval(), say=say, show=lambda *_: None)


def _in_table(console: Console, job: TonyJob, limits: WatchLimits) -> WatchResult:
    directory = job.directory
    with Live(console=console, refresh_per_second=2) as live:
        last: list[Observation] = []

        def show(seen: Observation | None, troubles: list[str]) -> None:
            """Show the observation. If an outage left it without data, show the last observation with data."""
            if seen is not None and (seen.outage is None or seen.master is not None):
                last[:] = [seen]
            application, status = (last[0].application, last[0].newest) if last else (None, None)
            if last or troubles:
                live.update(job_table(job.application_id, application, status, directory, troubles))

        return watch_until_end(job, limits, pause=_LOOK, say=lambda _: None, show=show)
