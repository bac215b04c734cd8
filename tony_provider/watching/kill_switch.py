"""Switch that ends a training when its task is ended.

Every DAG file imports this module, so it imports heavy modules only on use.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tony_provider.hooks.job import TonyJob

KILL_REASON = "a user ended the task, or its worker shut down"
SIGNAL_TIMEOUT = 4.0  # seconds that a signal handler may take: Airflow ends the task's process after 5


class KillSwitch:
    """The switch that ``on_kill`` pulls and the waiting task polls, to end the application and the wait.

    ``on_kill`` runs in a signal handler, which interrupts the main thread anywhere. At that moment, the main thread may
    hold a lock, such as that of the connection pool or of the event below. So the handler lets another thread do the
    work, and waits for it for a limited time.
    """

    def __init__(self) -> None:
        self.job: TonyJob | None = None  # the job to stop, once there is one
        self.whose: str | None = None  # name of the task's try, once it has begun
        self.pulled = False
        self._woken = threading.Event()

    def __deepcopy__(self, memo: dict[int, Any]) -> KillSwitch:
        """Return a new switch: a copy of the task is another task, with nothing to stop yet."""
        return KillSwitch()

    def of(self, whose: str) -> KillSwitch:
        """Return the switch of the try named ``whose``: this one, unless it belonged to an earlier try of the process.

        ``airflow dags test`` runs all tries of a task in one process. The end of one try must not end the next.
        """
        switch = self if self.whose in (None, whose) else KillSwitch()
        switch.whose = whose
        return switch

    def pull(self, reason: str | None) -> None:
        """Wake the task up, and end its job unless ``reason`` is None."""
        self.pulled = True
        _in_thread(self._act, reason).join(SIGNAL_TIMEOUT)

    def sleep(self, seconds: float) -> None:
        """Wait for ``seconds``, or until the switch is pulled."""
        self._woken.wait(seconds)

    def _act(self, reason: str | None) -> None:
        job = self.job
        try:
            if job is None or reason is None:
                return
            from tony_provider.watching.termination import KillOrder, log, logging_end_errors, stop_when_submitted

            kill = KillOrder(reason, self.whose)
            with logging_end_errors(job, log):
                if not stop_when_submitted(job, kill, within=0.0):
                    # The main thread may be submitting the job, and cannot continue until this thread ends. So another
                    # thread stops the job after the submission.
                    _in_thread(stop_when_submitted, job, kill, SIGNAL_TIMEOUT)
        finally:
            self._woken.set()


def _in_thread(act: Callable[..., object], *arguments: object) -> threading.Thread:
    """Start a daemon thread, so that the process does not wait for it at exit."""
    thread = threading.Thread(target=act, args=arguments, name="tony-kill", daemon=True)
    thread.start()
    return thread
