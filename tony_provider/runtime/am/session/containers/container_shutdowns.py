"""Containers that are to end: the executor is asked first, then the container is taken away, then it is given up.

A container is here from then on until the cluster says that it has ended, whether its task goes on in another one or
ends with it. Clusters say so with a node's next heartbeat; at the end of the job nobody waits for that where the
executor has taken leave before, with its processes ended and its log kept.
"""

from __future__ import annotations

import attrs

from tony_provider.runtime.am.session.actions import ReleaseContainers, ShutdownTask
from tony_provider.runtime.am.session.state.session_state import SessionState
from tony_provider.runtime.am.session.state.task import Task
from tony_provider.runtime.protocol.timing import KEEP_LOGS, RELEASE_WAIT


@attrs.define
class _Departure:
    deadline: float
    released: bool = False
    left: bool = False  # its executor has taken leave
    given_up: bool = False  # nobody waits for it any more


class ContainerShutdowns:
    """The containers that are to end, and by when each is to have done so.

    Times are the session's, in seconds.
    """

    def __init__(self, state: SessionState) -> None:
        self._state = state
        self._leaving: dict[str, _Departure] = {}

    @property
    def done(self) -> bool:
        """Whether no container is left that somebody could still wait for."""
        return all(departure.left or departure.given_up for departure in self._leaving.values())

    def ask(self, task: Task, now: float, reason: str, grace: float) -> None:
        """Have a task's executor end, its logs kept. Again with a shorter grace, it hurries."""
        if task.container is None or task.container_ended:
            return
        if not task.connected:
            self.take(task.container.id, now)
            return
        departure = self._leaving.setdefault(task.container.id, _Departure(float("inf")))
        departure.deadline = min(departure.deadline, now + self._timeout(task, grace))
        self._state.emit(ShutdownTask(task.name, grace, reason))

    def take(self, container_id: str, now: float) -> None:
        """Give the container back, whatever runs in it."""
        departure = self._leaving.setdefault(container_id, _Departure(now))
        if not departure.released:
            departure.released, departure.deadline = True, now + RELEASE_WAIT
            self._state.emit(ReleaseContainers((container_id,)))

    def wait_for(self, container_id: str, now: float, seconds: float = 0.0) -> None:
        """Wait for a container whose executor was told to end before, or is told so when it asks.

        ``seconds``: that it has before its logs are kept.
        """
        self._leaving.setdefault(container_id, _Departure(now + seconds + KEEP_LOGS))

    def left(self, container_id: str) -> None:
        """Record that the executor in it has taken leave."""
        if departure := self._leaving.get(container_id):
            departure.left = True

    def ended(self, container_id: str) -> bool:
        """Record that the cluster says a container has ended. False when it was not one of these."""
        return self._leaving.pop(container_id, None) is not None

    def hurry(self, now: float) -> None:
        """Take away every one that is still there."""
        for container_id in list(self._leaving):
            self.take(container_id, now)

    def tick(self, now: float) -> None:
        """Take away, or give up, those whose time is over."""
        for container_id, departure in list(self._leaving.items()):
            if now < departure.deadline:
                continue
            if departure.released:
                departure.given_up = True  # the cluster stops it when the application ends, at the latest
            else:
                self.take(container_id, now)

    def _timeout(self, task: Task, grace: float) -> float:
        if task.process is None or not task.busy:
            return KEEP_LOGS
        return (grace if task.process.runs else 0.0) + self._state.last_copies + KEEP_LOGS
