"""Resizing: a gang goes on with more tasks of a type, or with fewer, by somebody's word or by the job's own policy.

Those that are to come are absent until their executors are there, as if they had been lost; then the gang grows. Those
that are to go run until there is a checkpoint, and the gang starts again without them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

from tony_provider.runtime.am.session.checkpoints.session_checkpoints import CHECKPOINT_WAIT, SessionCheckpoints
from tony_provider.runtime.am.session.containers.containers import Containers
from tony_provider.runtime.am.session.restarts.restart_groups import RestartGroups
from tony_provider.runtime.am.session.restarts.restarts import Restarts
from tony_provider.runtime.am.session.state.session_state import SessionState
from tony_provider.runtime.am.session.state.task import Task
from tony_provider.runtime.am.session.suspension import Suspension
from tony_provider.runtime.am.session.type_sizes import TypeSizes
from tony_provider.runtime.protocol.status import JobState, TaskState
from tony_provider.runtime.quantities import count, some
from tony_provider.runtime.spec.task_counts import refusal

_WHY = (", since the queue has room to spare", ", since the cluster wants containers back")  # whether it shrinks


class Resizing:
    """The part of the session that has more tasks of a type, or fewer. Times are the session's, in seconds."""

    def __init__(
        self,
        state: SessionState,
        sizes: TypeSizes,
        containers: Containers,
        groups: RestartGroups,
        restarts: Restarts,
        checkpoints: SessionCheckpoints,
        suspension: Suspension,
    ) -> None:
        self._state = state
        self._sizes = sizes
        self._containers = containers
        self._groups = groups
        self._restarts = restarts
        self._checkpoints = checkpoints
        self._suspension = suspension
        self._halt_at: Optional[float] = None  # a checkpoint was asked for, and is waited for until then

    @property
    def wanted(self) -> Mapping[str, int]:
        """How many tasks there are to be, of the types that are being resized."""
        return self._sizes.wanted

    def refusal(self, counts: Mapping[str, int]) -> Optional[str]:
        """Why the job cannot be resized so; None when it can, unless it ends before."""
        return refusal(self._state.job, counts)

    def number(self, name: str) -> int:
        """How many tasks of a type there are, or are to be."""
        return self._sizes.number(name)

    @property
    def is_too_late(self) -> bool:
        """Whether the gang never starts again: the job is ending, or its gang has succeeded."""
        ending = self._state.verdict is not None or self._state.phase is JobState.FINISHING
        return ending or self._groups.gang_has_succeeded

    def ask(self, counts: Mapping[str, int], reason: str, now: float) -> None:
        """Have so many tasks of these types, by somebody's word. What is so already, or is to be, stays as it is.

        Those that no more containers were asked for get another chance.
        """
        if self.is_too_late or self.refusal(counts):
            return
        self._sizes.want(counts, reason, by_policy=False)
        for task in [task for name in counts for task in self._sizes.there(name)]:
            if task.absent and task.state is TaskState.LOST:
                task.replaced = 0
                self._containers.replace(task, now, reason, counted=False)

    def committed(self, now: float) -> None:
        """Record that a checkpoint is on the store: stopping costs no step."""
        if self._halt_at is not None:
            self._halt_at = min(self._halt_at, now)

    def check(self, now: float) -> None:
        """Take the next step, where there is one."""
        if not self.wanted:
            return
        if self.is_too_late:
            for name in list(self.wanted):
                self._over(name, f"{name}: it stays as it is, since nobody starts again any more")
            return
        suspended = self._state.phase is JobState.SUSPENDED
        if self._restarts.undecided or (self._suspension.reason is not None and not suspended):
            return
        for name, number in self.wanted.items():
            if number > len(self._sizes.there(name)) and self._can_grow(name):
                self._grow(name, now)
        leaving = [task for name in self.wanted for task in self._sizes.excess(name)]
        if not leaving:
            self._halt_at = None
        elif self._may_leave(leaving, now):
            self._shrink(leaving, now)

    # ---- more --------------------------------------------------------------------------------------------------

    def _can_grow(self, name: str) -> bool:
        """Not while a later stage waits for its containers, and this one is at work."""
        first = self._sizes.there(name)[0]
        return self._state.phase is not JobState.WAITING or first.waits or self._containers.gang.brings(first)

    def _grow(self, name: str, now: float) -> None:
        state = self._state
        first = self._sizes.there(name)[0]
        before, starts = len(state.of_type[name]), min(task.start for task in state.tasks)
        more = self.wanted[name] - len(self._sizes.there(name))
        vacant = [task for task in state.of_type[name] if task.vacant][:more]
        for task in vacant:
            task.occupy()
        state.resize({name: before + more - len(vacant)})
        new = [*vacant, *state.of_type[name][before:]]
        self._follow(new, [])
        begun = state.phase in (JobState.STARTING, JobState.RUNNING, JobState.RESTARTING)
        for task in new:
            task.waits, task.absent = first.waits, begun and not first.waits
            # The event log has one count for all, see History.
            task.anew, task.start = first.anew, max(task.start, starts, first.anew)
        if state.generation.number:
            state.generation.without |= {task.name for task in new if task.absent}
        state.note("larger", f"there are to be {count(self.wanted[name], name)}", data=self._noted([name]))
        if not first.waits and state.phase is not JobState.SUSPENDED:
            self._containers.join(new, now)

    # ---- fewer -------------------------------------------------------------------------------------------------

    def _may_leave(self, leaving: Sequence[Task], now: float) -> bool:
        """Whether nothing comes of them any more. What works is stopped, once there is a checkpoint."""
        at_work = [task for task in leaving if not task.absent and not task.waits]
        if at_work and self._state.phase is JobState.RUNNING:
            self._halt(at_work, now)
            if self._groups.gang.restart is None:
                return False
        return not any(task.busy for task in at_work)

    def _halt(self, leaving: Sequence[Task], now: float) -> None:
        reason = f"the gang shrinks by {some(task.name for task in leaving)}"
        if self._halt_at is None:
            self._halt_at = now + CHECKPOINT_WAIT if self._checkpoints.ask(reason) else now
        if now >= self._halt_at:
            self._restarts.again(self._groups.gang, reason, now)

    def _shrink(self, leaving: Sequence[Task], now: float) -> None:
        state, types = self._state, list(dict.fromkeys(task.type for task in leaving))
        self._halt_at = None
        self._drop(types, leaving)
        self._follow([], leaving)
        self._containers.part(leaving, now, "the job goes on with fewer")
        for task in leaving:
            if state.has(task):
                task.vacate()
        attempts = {task.name: {"attempt": task.attempt} for task in leaving}
        names = some(task.name for task in leaving)
        state.note("smaller", f"going on without {names}", data={**self._noted(types), "tasks": attempts})

    def _drop(self, types: Sequence[str], leaving: Sequence[Task]) -> None:
        """Have no place for those that leave, nor for those that are vacant, but where one that stays comes after."""
        for name in types:
            last = max(task.index for task in self._sizes.there(name) if task not in leaving)
            for task in self._state.beyond(name, last + 1):
                task.occupy()
            self._state.resize({name: last + 1})

    # ---- both --------------------------------------------------------------------------------------------------

    def _follow(self, new: Sequence[Task], gone: Sequence[Task]) -> None:
        self._groups.follow(self._state.tasks)
        restart = self._groups.gang.restart
        if restart:
            staying = [task for task in restart.members if self._state.has(task) and task not in gone]
            restart.members = [*staying, *(task for task in new if task not in staying)]

    def _noted(self, types: Sequence[str]) -> dict[str, Any]:
        absent = [task.name for task in self._state.tasks if task.absent]
        instances = {name: self._state.instances[name] for name in types}
        return {"instances": instances, "absent": absent, "vacant": self._sizes.vacant}

    def look_at_end(self) -> None:
        """Note what is as it was to be, once starts have taken their next steps."""
        done = [name for name in self.wanted if self._is_done(name)]
        for name in done:
            there = sum(1 for task in self._state.of_type[name] if not task.absent)
            of = f" of {self.wanted[name]}" if there < self.wanted[name] else ""
            self._over(name, f"{name}: there are {there}{of}")

    def _over(self, name: str, message: str) -> None:
        self._halt_at = None
        self._sizes.over(name, message)

    def _is_done(self, name: str) -> bool:
        tasks = self._sizes.there(name)
        if len(tasks) != self.wanted[name]:
            return False
        if tasks[0].waits or self._state.phase is JobState.SUSPENDED:
            return True
        if self._state.phase is not JobState.RUNNING or self._groups.gang.restart:
            return False
        return not any(_is_to_come(task) for task in tasks)

    # ---- in words ----------------------------------------------------------------------------------------------

    def describe(self) -> Iterator[str]:
        """What is being resized, and what that waits for."""
        for name, number in self.wanted.items():
            tasks = self._sizes.there(name)
            there, why = len(tasks), _WHY[number < len(tasks)] if name in self._sizes.by_policy else ""
            to_come = [task for task in tasks if _is_to_come(task)]
            requested = [task for task in to_come if task.state is TaskState.REQUESTED]
            if number < there:
                yield f"shrinking to {count(number, name)}{why}, once there is a checkpoint"
            elif requested or number > there:
                missing = len(requested) + number - there
                yield f"growing to {count(number, name)}{why}: waiting for {count(missing, 'container')}"
            elif starting := [task.name for task in to_come if not task.ready]:
                yield f"growing to {count(number, name)}{why}: waiting for {some(starting)} to register"
            elif to_come:
                yield f"growing to {count(number, name)}{why}, once there is a checkpoint"


def _is_to_come(task: Task) -> bool:
    """It is not there yet, and no container too many was lost for it."""
    return task.absent and task.state is not TaskState.LOST
