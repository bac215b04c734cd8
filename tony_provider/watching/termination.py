"""End an application from Airflow: quickly from a signal handler, or with a wait for its end.

The application master receives a stop order: user processes get their grace, and checkpoints and logs are copied a last
time. From then on the application ends by itself, even if the process that ordered the stop dies. If the application
takes too long, the waiting process kills it. If that process has died, YARN kills the application, because
YARN also receives the time limit.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING

import attrs

from tony_provider.cluster.errors import MasterOutOfReach, is_unforeseen, logging_errors
from tony_provider.cluster.interface import CONTROL_SECONDS, Application, wait_for_end
from tony_provider.cluster.training.checkpoint_chains import TakenOverError
from tony_provider.compat import in_thread
from tony_provider.hooks.job import TonyJob
from tony_provider.hooks.mlflow_server import OpenMlflowRun
from tony_provider.runtime.checkpoint.stored_checkpoint import Stop
from tony_provider.runtime.common.concurrency import run_in_threads
from tony_provider.runtime.jobspec.problems import shown

if TYPE_CHECKING:
    from airflow.sdk.types import Logger

log = logging.getLogger(__name__)


HURRIED_SECONDS = 1.5  # seconds for each of store and master in a signal handler; the rest is left for a kill
END_SECONDS = 20.0  # seconds that an application may take to end after its kill
LIMIT_SLACK = 15.0  # seconds that YARN waits longer than we do, so that our kill states the reason
_LONGEST_END = 21_600.0  # seconds; longer times from a master are ignored
_LONGEST_REASON = 1000  # maximum characters of a stored stop reason
KNOWN_POLL = 0.2  # seconds between two checks whether the cluster knows a submitted application

_OURS = re.compile(r"Killed by Airflow(?: for (try [^:]{1,100}))?: ")  # a job may put its own text before this


@attrs.frozen
class KillOrder:
    """An order to end an application, with the origin and reason that its diagnostics will show."""

    reason: str
    whose: str | None = None  # name of the task's try that ordered the end; None for a command or a sensor
    by: str = "Airflow"  # who ordered it; the job's own task treats any other value as an external kill
    grace: float | None = None  # seconds for user processes; None for the job's setting

    def __str__(self) -> str:
        whose = "" if self.whose is None else f" for {self.whose}"
        return f"Killed by {self.by}{whose}: {self.reason}"


@attrs.frozen
class SensorKillOrder(KillOrder):
    """A sensor's order to end an application.

    A sensor is not a try of the training's task. To that task, the end looks like an external kill.
    """

    def __str__(self) -> str:
        return f"Ended by a sensor of Airflow: {self.reason}"


def killed_by_airflow(application: Application | None) -> bool:
    """Whether the application's diagnostics state that a task in Airflow ended it."""
    return application is not None and _OURS.search(application.diagnostics) is not None


def killed_for(application: Application | None) -> str | None:
    """Return the name of the try that had the application killed, or None if the diagnostics name no such try."""
    found = _OURS.search(application.diagnostics) if application is not None else None
    return found[1] if found else None


def end_job(job: TonyJob, kill: KillOrder) -> bool:
    """Stop the application, kill it if it does not end in time, and remove files that it no longer needs. Idempotent.

    Return whether it has ended. Blocks for the job's grace and last copies, and at most END_SECONDS more. Raises
    ClusterError.
    """
    ends_within = stop_job(job, kill, seconds=CONTROL_SECONDS)
    if ends_within is not None and not _has_ended(job, ends_within):
        log.warning("%s has not ended within %.0f s: killing it", job, ends_within)
        job.kill(str(kill))
    if not _has_ended(job, END_SECONDS):
        log.warning("%s was killed, and has not ended within %.0f s", job, END_SECONDS)
        return False
    clean_up(job, log.warning)
    return True


def stop_job(job: TonyJob, kill: KillOrder, *, seconds: float) -> float | None:
    """Send a stop order to the application's master, or kill the application if no master answers.

    The order is also recorded on the store. If YARN cannot be reached, the master and the next try find the order
    there. Return the seconds within which the application will end, or None if it was killed immediately. A second call
    does not speed up the end.

    ``seconds`` limits the wait for the master. Raises ClusterError if the kill failed as well, and TakenOverError if a
    later try waits for the application.
    """
    _record(job, kill, seconds)
    return _order_stop(job, kill, seconds)


def _order_stop(job: TonyJob, kill: KillOrder, seconds: float) -> float | None:
    """Send the stop order, or kill the application, as ``stop_job`` does after recording the order."""
    diagnostics = str(kill)
    try:
        answer = job.stop(diagnostics, grace=kill.grace, seconds=seconds)
    except Exception as error:  # the master belongs to the job, so its answer may be anything
        level = logging.DEBUG if isinstance(error, MasterOutOfReach) else logging.WARNING
        log.log(level, "Killing %s without a grace period: %s", job, error, exc_info=is_unforeseen(error))
        job.kill(diagnostics)
        return None
    ends_within = answer.get("ends_within", 0.0)
    if (
        isinstance(ends_within, bool)
        or not isinstance(ends_within, int | float)
        or not 0 <= ends_within <= _LONGEST_END
    ):
        log.warning(
            "Killing %s without a grace period, because its master reports an invalid time until its end: %s",
            job,
            shown(ends_within),
        )
        job.kill(diagnostics)
        return None
    log.info("%s ends within %.0f s", job, ends_within)
    without_limit = "%s ends by itself, but YARN did not accept a time limit that would end it if it hangs"
    with logging_errors(log.warning, without_limit, job):
        job.limit(ends_within + LIMIT_SLACK, diagnostics)
    return ends_within


def _record(job: TonyJob, kill: KillOrder, seconds: float) -> None:
    """Record the stop order on the store within ``seconds``. Raises TakenOverError."""
    log.info("Stopping %s: %s", job, kill.reason)
    stop = Stop(str(kill)[:_LONGEST_REASON], kill.grace)
    try:
        # The owners are opened in this thread, because other threads must not query Airflow.
        record = partial(job.hook.owners(job.training).stop, job.application_id, stop, kill.whose)
        [recording] = run_in_threads([record], seconds, "tony-record")
        recording.result(timeout=0)
    except TakenOverError:
        raise
    except Exception as error:  # the store is not needed if YARN answers
        said = "Cannot record the stop order for %s on the store: %s"
        log.warning(said, job, str(error) or "the store does not answer", exc_info=is_unforeseen(error))


def _has_ended(job: TonyJob, seconds: float) -> bool:
    """Return whether the application ends within ``seconds``."""
    return wait_for_end(job.application, seconds) is None


def stop_when_submitted(job: TonyJob, kill: KillOrder, within: float) -> bool:
    """Stop the application for the kill switch, as soon as the cluster knows it: a kill has no effect before.

    Return False if that takes longer than ``within`` seconds.
    """
    deadline = time.monotonic() + within
    with logging_end_errors(job, log):
        _record(job, kill, HURRIED_SECONDS)
        while job.application() is None:
            if time.monotonic() >= deadline:
                return False
            time.sleep(KNOWN_POLL)
        _order_stop(job, kill, HURRIED_SECONDS)
    return True


def logging_end_errors(job: TonyJob, to: logging.Logger | Logger) -> AbstractContextManager[None]:
    """Return a context manager around the end of an application, which logs any exception of the block.

    Files of an application and answers of a cluster are untrusted, so they may cause any exception. Such an exception
    must neither hide the error for which the application ends, nor prevent the steps after the block.
    """
    return logging_errors(to.error, "%s could not be ended", job)


_stopping = ThreadPoolExecutor(16, thread_name_prefix="tony-stop")
_ending = ThreadPoolExecutor(16, thread_name_prefix="tony-end")


async def end_from_triggerer(job: TonyJob, kill: KillOrder, run: OpenMlflowRun | None = None) -> None:
    """Stop the application from an event loop, wait for its end, and then close its MLflow ``run``.

    Closes the job's hook. If the call is cancelled, the work continues in its threads.
    """

    def stop() -> None:
        with logging_end_errors(job, log), job.hook:
            stop_job(job, kill, seconds=CONTROL_SECONDS)

    def end() -> None:
        with logging_end_errors(job, log), job.hook:
            end_job(job, kill)
        if run is not None:
            run.close_later(job.application_id, kill.reason)

    for act, pool in ((stop, _stopping), (end, _ending)):
        await asyncio.shield(in_thread(act, pool))


def clean_up(job: TonyJob, warn: Callable[..., object]) -> None:
    """Remove files that an ended job no longer needs, see ``TonyJob.clean_up``.

    If a file cannot be removed, for example for lack of write permission, log the error with ``warn``.
    """
    with logging_errors(warn, "Some unneeded files of %s could not be removed", job):
        job.clean_up()
