"""Ending an application from the Airflow side: within seconds from a signal handler, thoroughly from anywhere else.

Its master is asked to stop it: the user processes get their grace, checkpoints and logs their last copies. From then on
it ends by itself, whoever dies meanwhile. Should it not, it is killed when its time is over: by whoever waits for it
here, else by the cluster itself, which is told the time too.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs

from tony_provider.cluster.errors import MasterOutOfReach, is_unforeseen
from tony_provider.cluster.interface import CONTROL_SECONDS, Application, wait_for_end
from tony_provider.cluster.training.checkpoint_chains import TakenOverError
from tony_provider.cluster.training.identity import Identity
from tony_provider.compat import in_thread
from tony_provider.hooks.mlflow_server import OpenMlflowRun
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.checkpoint.training_owner import Stop
from tony_provider.runtime.jobspec.problems import shown

if TYPE_CHECKING:
    from airflow.sdk.types import Logger

HURRIED_SECONDS = 1.5  # that the store and a master may each take in a signal handler: a kill is to fit in as well
END_SECONDS = 20.0  # that an application may take to end after its kill
LIMIT_SLACK = 15.0  # seconds that the cluster waits longer than we do: our kill says why
_LONGEST_END = 21_600.0  # seconds: what a master says beyond that is not believed
_LONGEST_REASON = 1000  # characters of an order to stop that are stored
KNOWN_POLL = 0.2  # seconds between two looks for an application that may just be submitted

_OURS = re.compile(r"Killed by Airflow(?: for (try [^:]{1,100}))?: ")  # a job says in its own words how it ended

log = logging.getLogger(__name__)


@attrs.frozen
class KillOrder:
    """An order to end an application: on whose behalf and why, as its diagnostics will say."""

    reason: str
    whose: str | None = None  # the name of the try of the task, on whose behalf; None: on nobody's
    by: str = "Airflow"  # anybody else's doing is taken by a task that watches the application for what it is
    grace: float | None = None  # seconds that user processes get; None: as the job says

    def __str__(self) -> str:
        whose = "" if self.whose is None else f" for {self.whose}"
        return f"Killed by {self.by}{whose}: {self.reason}"

    @property
    def order(self) -> dict[str, Any]:
        """The order in the form in which the application master takes it."""
        return {"reason": str(self)} if self.grace is None else {"reason": str(self), "grace": self.grace}


@attrs.frozen
class SensorKillOrder(KillOrder):
    """A sensor's order to end an application.

    A sensor is no try of the training's task: to that it is as if somebody else had done it.
    """

    def __str__(self) -> str:
        return f"Ended by a sensor of Airflow: {self.reason}"


def killed_by_airflow(application: Application | None) -> bool:
    """Whether the application's diagnostics say that a task in Airflow has ended it."""
    return application is not None and _OURS.search(application.diagnostics) is not None


def killed_for(application: Application | None) -> str | None:
    """The name of the try that the application was killed for; None when it was not, or nobody said for which."""
    found = _OURS.search(application.diagnostics) if application is not None else None
    return found[1] if found else None


def end_application(hook: TonyHook, identity: Identity, application_id: str, kill: KillOrder) -> bool:
    """Stop the application, kill it when it does not end in time, and remove what it no longer needs. Idempotent.

    Returns whether it has ended by then. Blocks for as long as the job's grace and its last copies take, and
    END_SECONDS more at most. Raises ClusterError.
    """
    ends_within = stop_application(hook, identity, application_id, kill, seconds=CONTROL_SECONDS)
    if ends_within is not None and not _has_ended(hook, application_id, ends_within):
        log.warning("%s has not ended within %.0f s: killing it", application_id, ends_within)
        hook.kill(application_id, str(kill))
    if not _has_ended(hook, application_id, END_SECONDS):
        log.warning("%s was killed, and has not ended within %.0f s", application_id, END_SECONDS)
        return False
    clean_up(hook, identity, application_id, log.warning)
    return True


def stop_application(
    hook: TonyHook, identity: Identity, application_id: str, kill: KillOrder, *, seconds: float
) -> float | None:
    """Ask the application's master to end it, or kill it where there is no master to ask.

    The order is also recorded on the store, where the master and the next try find it if no server of YARN answers.
    Returns how many seconds its end may take from now; None: it was killed at once. Asked again, it does not hurry. Its
    master may take ``seconds`` to answer. Raises ClusterError when it could not be killed either, and TakenOverError
    when a later try waits for the application.
    """
    _record(hook, identity, application_id, kill, seconds)
    return _order_stop(hook, application_id, kill, seconds)


def _order_stop(hook: TonyHook, application_id: str, kill: KillOrder, seconds: float) -> float | None:
    """Do what ``stop_application`` does once the order is recorded."""
    diagnostics = str(kill)
    try:
        answer = hook.control(application_id, "stop", kill.order, seconds=seconds)
    except Exception as error:  # a master is the job's own, and so is what it answers
        level = logging.DEBUG if isinstance(error, MasterOutOfReach) else logging.WARNING
        log.log(level, "%s is killed without grace: %s", application_id, error, exc_info=is_unforeseen(error))
        hook.kill(application_id, diagnostics)
        return None
    ends_within = answer.get("ends_within", 0.0)
    if (
        isinstance(ends_within, bool)
        or not isinstance(ends_within, int | float)
        or not 0 <= ends_within <= _LONGEST_END
    ):
        log.warning(
            "%s is killed without grace: its master says that it ends within %s", application_id, shown(ends_within)
        )
        hook.kill(application_id, diagnostics)
        return None
    log.info("%s ends within %.0f s", application_id, ends_within)
    try:
        hook.limit(application_id, ends_within + LIMIT_SLACK, diagnostics)
    except Exception as error:  # it is told
        said = "%s ends by itself, without a limit set by the cluster: %s"
        log.warning(said, application_id, error, exc_info=is_unforeseen(error))
    return ends_within


def _record(hook: TonyHook, identity: Identity, application_id: str, kill: KillOrder, seconds: float) -> None:
    """Record the order to stop on the store, within so many seconds. Raises TakenOverError."""
    log.info("Stopping %s: %s", application_id, kill.reason)
    stop = Stop(str(kill)[:_LONGEST_REASON], kill.grace)
    try:
        recording = _recording.submit(lambda: hook.owners(identity).stop(application_id, stop, kill.whose))
        recording.result(seconds)
    except TakenOverError:
        raise
    except Exception as error:  # the store is not needed where YARN answers
        said = "The order to stop %s is not on the store yet: %s"
        log.warning(said, application_id, str(error) or "it does not answer", exc_info=is_unforeseen(error))


def _has_ended(hook: TonyHook, application_id: str, seconds: float) -> bool:
    """Whether it has within that time."""
    return wait_for_end(lambda: hook.application(application_id), seconds) is None


def stop_when_submitted(
    hook: TonyHook, identity: Identity, application_id: str, kill: KillOrder, within: float
) -> bool:
    """Not before, since a kill of one that the cluster does not know has no effect. False: not within that time."""
    deadline = time.monotonic() + within
    with logging_end_errors(application_id, log):
        _record(hook, identity, application_id, kill, HURRIED_SECONDS)
        while hook.application(application_id) is None:
            if time.monotonic() >= deadline:
                return False
            time.sleep(KNOWN_POLL)
        _order_stop(hook, application_id, kill, HURRIED_SECONDS)
    return True


@contextmanager
def logging_end_errors(application_id: str, to: logging.Logger | Logger) -> Iterator[None]:
    """Context manager around the last that is done for an application: what fails in it is logged, and no more.

    What an application has left, and what clusters answer, is foreign: it may raise anything, which must neither hide
    the error for which the application is ended, nor keep what comes after from being done.
    """
    try:
        yield
    except Exception as error:  # noqa: BLE001 - it is told
        to.error("%s could not be ended: %s", application_id, error, exc_info=is_unforeseen(error))


_recording = ThreadPoolExecutor(16, thread_name_prefix="tony-record")
_stopping = ThreadPoolExecutor(16, thread_name_prefix="tony-stop")
_ending = ThreadPoolExecutor(16, thread_name_prefix="tony-end")


async def end_from_triggerer(
    tony_conn_id: str,
    proxy_user: str | None,
    identity: Identity,
    application_id: str,
    kill: KillOrder,
    run: OpenMlflowRun | None = None,
) -> None:
    """Stop the application from an event loop and see that it ends; its MLflow ``run`` is closed then.

    Being cancelled stops the waiting, and nothing else.
    """

    def stop() -> None:
        with TonyHook(tony_conn_id, proxy_user) as hook:
            stop_application(hook, identity, application_id, kill, seconds=CONTROL_SECONDS)

    def end() -> None:
        try:
            with TonyHook(tony_conn_id, proxy_user) as hook:
                end_application(hook, identity, application_id, kill)
        finally:
            if run is not None:
                run.close_later(application_id, kill.reason)

    await _in(_stopping, stop, application_id)
    await _in(_ending, end, application_id)


async def _in(pool: ThreadPoolExecutor, act: Callable[[], None], application_id: str) -> None:
    await asyncio.shield(in_thread(partial(_told, act, application_id), pool))


def _told(act: Callable[[], None], application_id: str) -> None:
    with logging_end_errors(application_id, log):
        act()


def clean_up(hook: TonyHook, identity: Identity, application_id: str, warn: Callable[..., object]) -> None:
    """Remove what an application that has ended no longer needs, see ``TonyHook.clean_up``.

    ``warn`` is told what could not be removed, as by somebody who may only read.
    """
    try:
        hook.clean_up(identity, application_id)
    except Exception as error:  # noqa: BLE001 - what a job has left is read for it; it is told
        warn("Not everything of %s could be removed: %s", application_id, error, exc_info=is_unforeseen(error))
