"""Resizing: a gang goes on with more tasks of a type, or with fewer, when somebody says so.

Those that are to come are absent until their executors are there, as if they had been lost; then the gang grows. Those
that are to go run until there is a checkpoint, and the gang starts again without them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

from tony_provider.runtime.am import words
from tony_provider.runtime.am.session.checkpoints.session_checkpoints import CHECKPOINT_WAIT, SessionCheckpoints
from tony_provider.runtime.am.session.containers.containers import Containers
from tony_provider.runtime.am.session.restarts.restart_groups import RestartGroups
from tony_provider.runtime.am.session.restarts.restarts import Restarts
from tony_provider.runtime.am.session.state.session_state import SessionState
from tony_provider.runtime.am.session.state.task import Task
from tony_provider.runtime.am.session.suspension import Suspension
from tony_provider.runtime.protocol.status import JobState, TaskState
from tony_provider.runtime.quantities import count
from tony_provider.runtime.spec.task_counts import refusal
from tony_provider.runtime.text import first_line


class Resizing:
    """The part of the session that has more tasks of a type, or fewer. Times are the session's, in seconds."""

    def __init__(
        self,
        state: SessionState,
        containers: Containers,
        groups: RestartGroups,
        restarts: Restarts,
        checkpoints: SessionCheckpoints,
        suspension: Suspension,
    ) -> None:
        self._state = state
        self._containers = containers
        self._groups = groups
        self._restarts = restarts
        self._checkpoints = checkpoints
        self._suspension = suspension
        self.wanted: dict[str, int] = {}  # how many tasks there are to be, of the types that are being resized
        self._halt_at: Optional[float] = None  # a checkpoint was asked for, and is waited for until then

    def take_over(self, wanted: Mapping[str, Optional[int]]) -> None:
        """Go on from what a former application master has noted, see History."""
        self.wanted = {name: number for name, number in wanted.items() if number is not None}

    def refusal(self, counts: Mapping[str, int]) -> Optional[str]:
        """Why the job cannot be resized so; None when it can, unless it ends before."""
        return refusal(self._state.job, counts)

    def number(self, name: str) -> int:
        """How many tasks of a type there are, or are to be."""
        return self.wanted.get(name, self._state.instances[name])

    @property
    def is_too_late(self) -> bool:
        """Whether the gang never starts again: the job is ending, or its gang has succeeded."""
        ending = self._state.verdict is not None or self._state.phase is JobState.FINISHING
        return ending or self._groups.gang_has_succeeded

    def ask(self, counts: Mapping[str, int], reason: str) -> None:
        """Have so many tasks of these types. What is so already, or is to be, stays as it is."""
        if self.is_too_late or self.refusal(counts):
            return
        now = {name: self.number(name) for name in counts}
        new = {name: number for name, number in counts.items() if number != now[name]}
        if not new:
            return
        self.wanted.update(new)
        changes = ", ".join(f"{count(now[name], name)} -> {number}" for name, number in new.items())
        self._state.note("resizing", f"{changes}: {first_line(reason)}", data={"resizing": new})

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
        for name in [name for name, number in self.wanted.items() if number > self._state.instances[name]]:
            if self._can_grow(name):
                self._grow(name, now)
        leaving = [task for task in self._state.tasks if self._is_leaving(task)]
        if not leaving:
            self._halt_at = None
        elif self._may_leave(leaving, now):
            self._shrink(leaving, now)

    # ---- more --------------------------------------------------------------------------------------------------

    def _can_grow(self, name: str) -> bool:
        """Not while a later stage waits for its containers, and this one is at work."""
        first = self._state.of_type[name][0]
        return self._state.phase is not JobState.WAITING or first.waits or self._containers.gang.brings(first)

    def _grow(self, name: str, now: float) -> None:
        state = self._state
        waits = state.of_type[name][0].waits
        before, starts = len(state.of_type[name]), min(task.start for task in state.tasks)
        state.resize({name: self.wanted[name]})
        new = state.of_type[name][before:]
        self._follow(new, [])
        begun = state.phase in (JobState.STARTING, JobState.RUNNING, JobState.RESTARTING)
        for task in new:
            task.waits, task.absent = waits, begun and not waits
            task.start = max(task.start, starts)  # the event log has one count for all, see History
        if state.generation.number:
            state.generation.without |= {task.name for task in new if task.absent}
        state.note("larger", f"there are to be {count(self.wanted[name], name)}", data=self._sizes([name]))
        if not waits and state.phase is not JobState.SUSPENDED:
            self._containers.join(new, now)

    # ---- fewer -------------------------------------------------------------------------------------------------

    def _is_leaving(self, task: Task) -> bool:
        return task.index >= self.wanted.get(task.type, task.index + 1)

    def _may_leave(self, leaving: Sequence[Task], now: float) -> bool:
        """Whether nothing comes of them any more. What works is stopped, once there is a checkpoint."""
        at_work = [task for task in leaving if not task.absent and not task.waits]
        if at_work and self._state.phase is JobState.RUNNING:
            self._halt(at_work, now)
            if self._groups.gang.restart is None:
                return False
        return not any(task.busy for task in at_work)

    def _halt(self, leaving: Sequence[Task], now: float) -> None:
        reason = f"the gang shrinks by {words.some(task.name for task in leaving)}"
        if self._halt_at is None:
            self._halt_at = now + CHECKPOINT_WAIT if self._checkpoints.ask(reason) else now
        if now >= self._halt_at:
            self._restarts.again(self._groups.gang, reason, now)

    def _shrink(self, leaving: Sequence[Task], now: float) -> None:
        state, types = self._state, list(dict.fromkeys(task.type for task in leaving))
        self._halt_at = None
        state.resize({name: self.wanted[name] for name in types})
        self._follow([], leaving)
        self._containers.part(leaving, now, "the job goes on with fewer")
        attempts = {task.name: {"attempt": task.attempt} for task in leaving}
        names = words.some(task.name for task in leaving)
        state.note("smaller", f"going on without {names}", data={**self._sizes(types), "tasks": attempts})

    # ---- both --------------------------------------------------------------------------------------------------

    def _follow(self, new: Sequence[Task], gone: Sequence[Task]) -> None:
        self._groups.follow(self._state.tasks)
        restart = self._groups.gang.restart
        if restart:
            restart.members = [*(task for task in restart.members if task not in gone), *new]

    def _sizes(self, types: Sequence[str]) -> dict[str, Any]:
        absent = [task.name for task in self._state.tasks if task.absent]
        return {"instances": {name: self._state.instances[name] for name in types}, "absent": absent}

    def look_at_end(self) -> None:
        """Note what is as it was to be, once starts have taken their next steps."""
        done = [name for name in self.wanted if self._is_done(name)]
        for name in done:
            there = sum(1 for task in self._state.of_type[name] if not task.absent)
            of = f" of {self.wanted[name]}" if there < self.wanted[name] else ""
            self._over(name, f"{name}: there are {there}{of}")

    def _over(self, name: str, message: str) -> None:
        del self.wanted[name]
        self._halt_at = None
        self._state.note("resized", message, data={"resizing": {name: None}})

    def _is_done(self, name: str) -> bool:
        tasks = self._state.of_type[name]
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
            tasks, there = self._state.of_type[name], self._state.instances[name]
            to_come = [task for task in tasks if _is_to_come(task)]
            requested = [task for task in to_come if task.state is TaskState.REQUESTED]
            if number < there:
                yield f"shrinking to {count(number, name)}, once there is a checkpoint"
            elif requested or number > there:
                missing = len(requested) + number - there
                yield f"growing to {count(number, name)}: waiting for {count(missing, 'container')}"
            elif starting := [task.name for task in to_come if not task.ready]:
                yield f"growing to {count(number, name)}: waiting for {words.some(starting)} to register"
            elif to_come:
                yield f"growing to {count(number, name)}, once there is a checkpoint"


def _is_to_come(task: Task) -> bool:
    """It is not there yet, and no container too many was lost for it."""
    return task.absent and task.state is not TaskState.LOST
