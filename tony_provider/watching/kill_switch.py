"""What ends a training when its task is ended. Every DAG file loads it: what it needs in that moment, it loads then."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tony_provider.cluster.training.identity import Identity
    from tony_provider.hooks.tony import TonyHook

KILL_REASON = "the task was ended by a user, or with its worker"
SIGNAL_TIMEOUT = 4.0  # seconds that a signal handler may take: Airflow ends the task's process after 5


class KillSwitch:
    """The switch that ``on_kill`` pulls and the waiting task looks at, to end the application and the wait.

    A signal handler runs between any two instructions of the main thread, which may just then hold a lock, of the
    connection pool or of the event below. So the handler leaves the work to a thread and waits for that only a while.
    """

    def __init__(self) -> None:
        self.application_id: str | None = None  # the one to stop, once there is one
        self.identity: Identity | None = None  # of its training
        self.whose: str | None = None  # the name of the task's try, once it has begun
        self.pulled = False
        self._woken = threading.Event()

    def __deepcopy__(self, memo: dict[int, Any]) -> KillSwitch:
        """A copy of the task is another task, with nothing to stop yet."""
        return KillSwitch()

    def of(self, whose: str) -> KillSwitch:
        """The switch of the try of that name: this one, unless it was an earlier try's of the same process.

        ``airflow dags test`` has all tries of a task in one process. What ended one says nothing of the next.
        """
        switch = self if self.whose in (None, whose) else KillSwitch()
        switch.whose = whose
        return switch

    def remember(self, identity: Identity, application_id: str) -> None:
        self.identity, self.application_id = identity, application_id

    def forget(self) -> None:
        """Forget the application that was set: it will not be submitted."""
        self.application_id = None

    def pull(self, hook: Callable[[], TonyHook], reason: str | None) -> None:
        """Wake the task up, and have its application end unless ``reason`` is None.

        ``hook`` is called where there is an application: before that, the task may still be loading what a hook is.
        """
        self.pulled = True
        _in_thread(self._act, hook, reason).join(SIGNAL_TIMEOUT)

    def sleep(self, seconds: float) -> None:
        """Wait for so many seconds, or until the switch is pulled."""
        self._woken.wait(seconds)

    def _act(self, hook: Callable[[], TonyHook], reason: str | None) -> None:
        identity, application_id = self.identity, self.application_id
        try:
            if identity is None or application_id is None or reason is None:
                return
            from tony_provider.watching.termination import KillOrder, log, logging_end_errors, stop_when_submitted

            kill = KillOrder(reason, self.whose)
            with logging_end_errors(application_id, log):
                if not stop_when_submitted(hook(), identity, application_id, kill, within=0.0):
                    # The main thread may be submitting it, which stands still until this thread ends.
                    _in_thread(stop_when_submitted, hook(), identity, application_id, kill, SIGNAL_TIMEOUT)
        finally:
            self._woken.set()


def _in_thread(act: Callable[..., object], *arguments: object) -> threading.Thread:
    """One that no process waits for at its end."""
    thread = threading.Thread(target=act, args=arguments, name="tony-kill", daemon=True)
    thread.start()
    return thread
