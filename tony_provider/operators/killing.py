"""Ending an application from the Airflow side: within seconds from a signal handler, thoroughly from anywhere else.

Its master is asked to stop it: the user processes get their grace, checkpoints and logs their last copies. From then on
it ends by itself, whoever dies meanwhile. Should it not, it is killed when its time is over: by whoever waits for it
here, else by the cluster itself, which is told the time too.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from tony_provider.cluster.base import CONTROL_SECONDS
from tony_provider.cluster.errors import ClusterError, MasterOutOfReach
from tony_provider.cluster.identity import Identity
from tony_provider.hooks.tony import TonyHook

KILLED_BY_AIRFLOW = "Killed by Airflow: "  # how the diagnostics of our own kills begin
SIGNAL_PATIENCE = 4.0  # seconds that a signal handler may take: Airflow ends the task's process after 5
HURRIED_SECONDS = 2.0  # that a master may take to answer meanwhile: a kill is to fit in as well
END_SECONDS = 20.0  # that an application may take to end after its kill
LIMIT_SLACK = 15.0  # seconds that the cluster waits longer than we do: our kill says why
END_POLL = 0.5  # seconds
KNOWN_POLL = 0.2  # seconds between two looks for an application that may just be submitted

log = logging.getLogger(__name__)


def end_application(hook: TonyHook, identity: Identity, application_id: str, reason: str) -> None:
    """Stop the application, kill it when it does not end in time, and remove what it no longer needs. Idempotent.

    Blocks for as long as the job's grace and its last copies take, and END_SECONDS more at most. Raises ClusterError
    and StorageError.
    """
    ends_within = stop_application(hook, application_id, reason, seconds=CONTROL_SECONDS)
    if ends_within is not None and not _has_ended(hook, application_id, ends_within):
        log.warning("%s has not ended within %.0f s: killing it", application_id, ends_within)
        hook.kill(application_id, KILLED_BY_AIRFLOW + reason)
    if not _has_ended(hook, application_id, END_SECONDS):
        log.warning("%s was killed, and has not ended within %.0f s", application_id, END_SECONDS)
        return
    hook.cleanup(identity, application_id)


def stop_application(hook: TonyHook, application_id: str, reason: str, *, seconds: float) -> float | None:
    """Have it end by itself; asked again, it does not hurry. Its master may take ``seconds`` to answer.

    How many seconds it may take from now; None: there is no master to be asked, so that it was killed at once. Raises
    ClusterError when it could not be killed either.
    """
    diagnostics = KILLED_BY_AIRFLOW + reason
    try:
        answer = hook.control(application_id, "stop", {"reason": diagnostics}, seconds=seconds)
    except ClusterError as error:
        level = logging.DEBUG if isinstance(error, MasterOutOfReach) else logging.WARNING
        log.log(level, "%s is killed without grace: %s", application_id, error)
        hook.kill(application_id, diagnostics)
        return None
    ends_within = float(answer.get("ends_within", 0.0))
    log.info("%s ends within %.0f s", application_id, ends_within)
    try:
        hook.limit(application_id, ends_within + LIMIT_SLACK, diagnostics)
    except ClusterError as error:
        log.warning("%s ends by itself, without a limit set by the cluster: %s", application_id, error)
    return ends_within


def _has_ended(hook: TonyHook, application_id: str, seconds: float) -> bool:
    """Whether it has within that time."""
    deadline = time.monotonic() + seconds
    while (application := hook.application(application_id)) is not None and not application.is_final:
        if time.monotonic() >= deadline:
            return False
        time.sleep(END_POLL)
    return True


class KillSwitch:
    """What ``on_kill`` pulls and the waiting task looks at.

    A signal handler runs between any two instructions of the main thread, which may just then hold a lock, of the
    connection pool or of the event below. So the handler leaves the work to a thread and waits for that only a while.
    """

    def __init__(self) -> None:
        self.application_id: str | None = None  # the one to stop, once there is one
        self.pulled = False
        self._woken = threading.Event()

    def remember(self, application_id: str) -> None:
        self.application_id = application_id

    def forget(self) -> None:
        """It will not be submitted."""
        self.application_id = None

    def pull(self, hook: TonyHook, reason: str | None) -> None:
        """Wake the task up, and have its application end unless ``reason`` is None."""
        self.pulled = True
        _in_thread(self._act, hook, reason).join(SIGNAL_PATIENCE)

    def sleep(self, seconds: float) -> None:
        """Until the time is over or the switch is pulled."""
        self._woken.wait(seconds)

    def _act(self, hook: TonyHook, reason: str | None) -> None:
        application_id = self.application_id
        try:
            if application_id is None or reason is None:
                return
            if not _stop_once_known(hook, application_id, reason, within=0.0):
                # The main thread may be submitting it, which stands still until this thread ends.
                _in_thread(_stop_once_known, hook, application_id, reason, SIGNAL_PATIENCE)
        finally:
            self._woken.set()


def _stop_once_known(hook: TonyHook, application_id: str, reason: str, within: float) -> bool:
    """Not before, since a kill of one that the cluster does not know has no effect. False: not within that time."""
    deadline = time.monotonic() + within
    try:
        while hook.application(application_id) is None:
            if time.monotonic() >= deadline:
                return False
            time.sleep(KNOWN_POLL)
        stop_application(hook, application_id, reason, seconds=HURRIED_SECONDS)
    except ClusterError as error:
        log.error("%s could not be ended: %s", application_id, error)  # noqa: TRY400 - the message says it
    return True


def _in_thread(act: Callable[..., object], *arguments: object) -> threading.Thread:
    """One that no process waits for at its end."""
    thread = threading.Thread(target=act, args=arguments, name="tony-kill", daemon=True)
    thread.start()
    return thread
