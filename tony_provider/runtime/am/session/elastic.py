"""Going on with fewer tasks when lost ones cannot be replaced, and with all again when they can.

Ranks are those of the tasks that are there. So where the leader is missing, the next one leads, from the newest
committed checkpoint like all others.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Optional

from tony_provider.runtime.am.session.checkpoints.session_checkpoints import CHECKPOINT_WAIT, SessionCheckpoints
from tony_provider.runtime.am.session.restarts.restart_groups import RestartGroups
from tony_provider.runtime.am.session.restarts.restarts import Restarts
from tony_provider.runtime.am.session.state.session_state import SessionState
from tony_provider.runtime.am.session.state.task import Task
from tony_provider.runtime.am.session.suspension import Suspension
from tony_provider.runtime.frameworks.base import Framework
from tony_provider.runtime.protocol.status import JobState, TaskState
from tony_provider.runtime.quantities import some
from tony_provider.runtime.spec.model import GrowRule


class Elastic:
    """The part of the session that decides when a gang goes on without lost tasks, and when it grows again.

    Times are the session's, in seconds.
    """

    def __init__(
        self,
        state: SessionState,
        framework: Framework,
        groups: RestartGroups,
        restarts: Restarts,
        checkpoints: SessionCheckpoints,
        suspension: Suspension,
    ) -> None:
        self._state = state
        self._framework = framework
        self._groups = groups
        self._restarts = restarts
        self._checkpoints = checkpoints
        self._suspension = suspension
        self._grow_at: Optional[float] = None
        self._first_at: Optional[float] = None  # one that the gang lacks is there, and others are asked for

    # ---- smaller -----------------------------------------------------------------------------------------------

    def may_leave_out(self, tasks: Collection[Task]) -> bool:
        """Whether the gang can go on without these tasks, and those that it lacks already."""
        return all(self._framework.elastic(task.role) and self._enough_left(task.type, tasks) for task in tasks)

    def leave_out(self, tasks: Collection[Task]) -> None:
        """Go on without these tasks. Their containers are still asked for."""
        for task in tasks:
            task.absent, task.deadline = True, None
        names = some(task.name for task in tasks)
        self._state.note("smaller", f"going on without {names}: no container for it was granted in time")

    def _enough_left(self, task_type: str, leaving: Collection[Task]) -> bool:
        of_type = [task for task in self._state.tasks if task.type == task_type]
        left = [task for task in of_type if not task.absent and task not in leaving]
        spec = self._state.job.tasks[task_type]
        least = spec.least_instances if spec.grow is GrowRule.SPARE else spec.min_instances
        return least is not None and len(left) >= least

    # ---- larger ------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        waiting = self._waiting(now)
        if not waiting:
            self._grow_at = None
        elif self._grow_at is None:
            self._grow_at = now + CHECKPOINT_WAIT
            self._checkpoints.ask(f"the gang grows by {some(waiting)}")
        elif now >= self._grow_at:
            self._grow(waiting, now)

    def committed(self, now: float) -> None:
        """Record that a checkpoint is on the store: starting again costs no step."""
        waiting = self._waiting(now)
        if waiting:
            self._grow(waiting, now)

    def _waiting(self, now: float) -> list[str]:
        """Tasks that the gang lacks and could have: all of them, or those that came in the time that a gang has."""
        goes_on = self._state.phase is JobState.RUNNING and self._suspension.reason is None
        absent: list[Task] = []
        if goes_on and not self._groups.gang_has_succeeded:
            absent = [task for task in self._state.tasks if task.absent]
        there = [task.name for task in absent if task.ready]
        if not there:
            self._first_at = None
            return []
        if self._first_at is None:
            self._first_at = now
        late = any(not task.ready and task.state is not TaskState.LOST for task in absent)
        return [] if late and now < self._first_at + self._state.job.timeouts.allocation else there

    def _grow(self, waiting: list[str], now: float) -> None:
        self._restarts.again(self._groups.gang, f"the gang grows by {some(waiting)}", now)
