"""Ending an application from the Airflow side: at once from a signal handler, thoroughly from anywhere else."""

from __future__ import annotations

import logging
import threading
import time

from tony_provider.cluster.errors import ClusterError
from tony_provider.cluster.identity import Identity
from tony_provider.hooks.tony import TonyHook

KILLED_BY_AIRFLOW = "Killed by Airflow: "  # how the diagnostics of our own kills begin
SIGNAL_PATIENCE = 4.0  # seconds that a signal handler may take: Airflow ends the task's process after 5
END_SECONDS = 20.0  # that an application may take to end after its kill
END_POLL = 0.5  # seconds

log = logging.getLogger(__name__)


def end_application(hook: TonyHook, identity: Identity, application_id: str, reason: str) -> None:
    """Kill the application, wait until it has ended, and remove what it no longer needs. Idempotent.

    Blocks for up to END_SECONDS. Raises ClusterError and StorageError.
    """
    hook.kill(application_id, KILLED_BY_AIRFLOW + reason)
    deadline = time.monotonic() + END_SECONDS
    while (application := hook.application(application_id)) is not None and not application.is_final:
        if time.monotonic() > deadline:
            log.warning("%s was killed, but is still %s after %.0f s", application_id, application.state, END_SECONDS)
            return
        time.sleep(END_POLL)
    hook.cleanup(identity, application_id)


class KillSwitch:
    """What ``on_kill`` pulls and the waiting task looks at.

    A signal handler runs between any two instructions of the main thread, which may just then hold a lock, of the
    connection pool or of the event below. So the handler leaves the work to a thread and waits for that only a while.
    """

    def __init__(self) -> None:
        self.application_id: str | None = None  # the one to kill, once there is one
        self.pulled = False
        self._woken = threading.Event()

    def remember(self, application_id: str) -> None:
        self.application_id = application_id

    def pull(self, hook: TonyHook, reason: str | None) -> None:
        """Wake the task up, and kill its application unless ``reason`` is None."""
        self.pulled = True
        thread = threading.Thread(target=self._act, args=(hook, reason), name="tony-kill", daemon=True)
        thread.start()
        thread.join(SIGNAL_PATIENCE)

    def sleep(self, seconds: float) -> None:
        """Until the time is over or the switch is pulled."""
        self._woken.wait(seconds)

    def _act(self, hook: TonyHook, reason: str | None) -> None:
        try:
            if self.application_id is not None and reason is not None:
                hook.kill(self.application_id, KILLED_BY_AIRFLOW + reason)
        except ClusterError as error:
            log.error("%s could not be killed: %s", self.application_id, error)  # noqa: TRY400 - the message says it
        finally:
            self._woken.set()
