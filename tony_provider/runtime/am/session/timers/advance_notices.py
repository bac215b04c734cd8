"""Advance notices: containers that the cluster takes back soon, nodes that leave, checkpoints that somebody wants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from tony_provider.runtime.am import words
from tony_provider.runtime.am.session.checkpoints.session_checkpoints import SessionCheckpoints
from tony_provider.runtime.am.session.containers.containers import Containers
from tony_provider.runtime.am.session.state.session_state import SessionState
from tony_provider.runtime.am.session.state.task import Task


class AdvanceNotices:
    """The part of the session that handles advance notices, and asks for a checkpoint meanwhile."""

    def __init__(self, state: SessionState, containers: Containers, checkpoints: SessionCheckpoints) -> None:
        self._state = state
        self._containers = containers
        self._checkpoints = checkpoints

    def preempting(self, container_ids: Sequence[str], seconds: Optional[float]) -> None:
        tasks = [self._containers.task_in(container_id) for container_id in container_ids]
        self._yield([task for task in tasks if task], "preempting", "the cluster wants containers back", seconds)

    def node_leaving(self, node: str, seconds: Optional[float]) -> None:
        tasks = [task for task in self._state.tasks if task.has_container and task.node == node]
        self._yield(tasks, "node_leaving", f"{node} is taken out of service", seconds)

    def checkpoint_requested(self, reason: str) -> None:
        asked = self._checkpoints.ask(reason)
        self._state.note("checkpoint_requested", reason if asked else f"{reason}; nobody runs who could make one")

    def _yield(self, tasks: Sequence[Task], event: str, why: str, seconds: Optional[float]) -> None:
        """The containers of these tasks will go, which nobody is to blame for. Nothing is stopped: the cluster will."""
        new = [task for task in tasks if not task.yields]  # it says so again and again
        if not new:
            return
        for task in new:
            task.yields = True
        when = "" if seconds is None else f" in {seconds:.0f} s"
        self._state.note(event, f"{why}{when}: {words.some(task.name for task in new)}")
        self._checkpoints.ask(f"{why}{when}")
