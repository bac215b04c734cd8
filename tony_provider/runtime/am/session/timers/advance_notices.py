"""Advance notices: containers that the cluster takes back soon, nodes that leave, checkpoints that somebody wants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from tony_provider.runtime.am.session.checkpoints.session_checkpoints import SessionCheckpoints
from tony_provider.runtime.am.session.containers.containers import Containers
from tony_provider.runtime.am.session.state.session_state import SessionState
from tony_provider.runtime.am.session.state.task import Task
from tony_provider.runtime.am.session.type_sizes import TypeSizes
from tony_provider.runtime.quantities import some


class AdvanceNotices:
    """The part of the session that handles advance notices, and asks for a checkpoint meanwhile."""

    def __init__(
        self, state: SessionState, sizes: TypeSizes, containers: Containers, checkpoints: SessionCheckpoints
    ) -> None:
        self._state = state
        self._sizes = sizes
        self._containers = containers
        self._checkpoints = checkpoints

    def preempting(self, container_ids: Sequence[str], seconds: Optional[float]) -> None:
        tasks = [self._containers.task_in(container_id) for container_id in container_ids]
        why = "the cluster wants containers back"
        new = self._yield([task for task in tasks if task], "preempting", why, seconds)
        if new and not self._sizes.give_back(new, why):  # that asks for a checkpoint, too
            self._checkpoints.ask(_soon(why, seconds))

    def node_leaving(self, node: str, seconds: Optional[float]) -> None:
        tasks = [task for task in self._state.tasks if task.has_container and task.node == node]
        why = f"{node} is taken out of service"
        if self._yield(tasks, "node_leaving", why, seconds):
            self._checkpoints.ask(_soon(why, seconds))

    def checkpoint_requested(self, reason: str) -> None:
        asked = self._checkpoints.ask(reason)
        self._state.note("checkpoint_requested", reason if asked else f"{reason}; nobody runs who could make one")

    def _yield(self, tasks: Sequence[Task], event: str, why: str, seconds: Optional[float]) -> list[Task]:
        """The containers of these tasks will go, which nobody is to blame for; those of which that is news."""
        new = [task for task in tasks if not task.yields]  # it says so again and again
        for task in new:
            task.yields = True
        if new:
            self._state.note(event, f"{_soon(why, seconds)}: {some(task.name for task in new)}")
        return new


def _soon(why: str, seconds: Optional[float]) -> str:
    return why if seconds is None else f"{why} in {seconds:.0f} s"
