"""Start the user processes of a generation or of a single task, once their containers and checkpoints are ready."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Optional

import attrs

from tony_provider.runtime.am.session.actions import ChooseResumePoint, SendRendezvous, StopProcess
from tony_provider.runtime.am.session.containers.containers import Containers
from tony_provider.runtime.am.session.restarts.restart_groups import Restart, RestartGroup, RestartGroups, ResumeChoice
from tony_provider.runtime.am.session.state.process_state import ProcessState
from tony_provider.runtime.am.session.state.session_state import Generation, SessionState
from tony_provider.runtime.am.session.state.task import Task
from tony_provider.runtime.am.session.state.task_outcome import not_over
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.protocol.status import JobState, TaskState
from tony_provider.runtime.protocol.timing import STOP_SLACK
from tony_provider.runtime.quantities import count, some
from tony_provider.runtime.text import first_line


class ProcessStarts:
    """The part of the session that stops and starts user processes.

    Times are the session's, in seconds.
    """

    def __init__(self, state: SessionState, containers: Containers, groups: RestartGroups) -> None:
        self._state = state
        self._containers = containers
        self._groups = groups

    # ---- stopping processes ------------------------------------------------------------------------------------

    def stop(self, task: Task, now: float, reason: str, *, stacks: bool = False) -> None:
        """Stop a task's user process, and keep its executor for the next process."""
        process = task.process
        if process is None or not task.busy or process.stop_by is not None:
            return
        grace = self._state.job.timeouts.grace if process.runs else 0.0
        process.stop_by = now + grace + self._state.last_copies + STOP_SLACK
        if process.runs and task.connected:
            self._order_stop(task, process, reason, stacks=stacks)

    def _order_stop(self, task: Task, process: ProcessState, reason: str, *, stacks: bool = False) -> None:
        copies, grace = self._state.last_copies, self._state.job.timeouts.grace
        self._state.emit(
            StopProcess(task.name, process.generation, process.start, grace, copies, first_line(reason), stacks)
        )

    def say_again(self, task: Task, start: int) -> None:
        """Repeat orders that a reconnected executor, whose newest order was ``start``, may have missed."""
        process = task.process
        if process is None or not process.runs:
            return
        if process.stop_by is None:
            if start < process.start and process.order:
                self._state.emit(attrs.evolve(process.order, starts={task.name: process.start}))
        elif start < process.start:
            process.settled = True  # it never began
        else:
            self._order_stop(task, process, "repeated order")

    # ---- preparing a start -------------------------------------------------------------------------------------

    def renew(self, task: Task, now: float, reason: str) -> None:
        """Request another container for a task that needs it, unless the task is stopped or given up."""
        if task.told_to_stop or task.given_up:
            return
        if task.unfit and not task.busy:
            self._containers.dismiss(task, now, "its container is given back")
        if task.container_ended and not task.absent:
            self._containers.replace(task, now, reason)

    def advance(self, group: RestartGroup, now: float) -> None:
        """Take the next step of the start that the group prepares."""
        restart = group.restart
        if restart is None or (group is not self._groups.gang and self._waits_for_gang(restart)):
            return
        if restart.choice is None and self._needs_choice(group, restart):
            if _held_up(restart, _is_busy):
                return
            restart.choice = ResumeChoice(self._next_generation(group))
            names = tuple(task.name for task in restart.members)
            self._state.emit(ChooseResumePoint(restart.choice.generation, self._state.went_back, names))
        due = restart.not_before is not None and now >= restart.not_before
        if due and (restart.choice is None or restart.choice.made) and not self._lacks(restart):
            self._begin(group, restart)

    def _waits_for_gang(self, restart: Restart) -> bool:
        """Return whether a single start waits for a start of the gang. Tasks of earlier stages do not."""
        if self._groups.gang.restart is None:
            return False
        begun = self._state.generation.number > 0 and self._state.phase is not JobState.RESTARTING
        return not begun or any(self._containers.gang.brings(task) for task in restart.members)

    def _lacks(self, restart: Restart) -> bool:
        """Whether the start has to wait for a task."""
        if self._state.first_come and restart is self._groups.gang.restart:
            return not any(task.ready for task in restart.members)
        return _held_up(restart, _is_missing)

    def chosen(self, generation: int, resume: Optional[ResumePoint]) -> None:
        """Give the resume point to every group that asked for this generation."""
        for group in self.waiting_for_choice(generation):
            if group.restart and group.restart.choice:
                group.restart.choice.made, group.restart.choice.resume = True, resume

    def waiting_for_choice(self, generation: int) -> list[RestartGroup]:
        """Return the groups that wait for the resume point of this generation."""
        found = []
        for group in self._groups.every:
            choice = group.restart.choice if group.restart else None
            if choice is not None and choice.generation == generation and not choice.made:
                found.append(group)
        return found

    def _needs_choice(self, group: RestartGroup, restart: Restart) -> bool:
        """Return whether a start needs a stored checkpoint. A task alone in its container uses its directory."""
        if group is self._groups.gang:
            return True
        # All tasks use one resume point, which does not exist while the gang restarts.
        is_kept = _keeps_checkpoints(restart.members) and group.suspect is None
        return self._state.phase is not JobState.RESTARTING and not is_kept

    def _next_generation(self, group: RestartGroup) -> int:
        return self._state.generation.number + (1 if group is self._groups.gang else 0)

    # ---- starting ----------------------------------------------------------------------------------------------

    def _begin(self, group: RestartGroup, restart: Restart) -> None:
        if group is self._groups.gang:
            takes_part = _is_ready if self._state.first_come else _takes_part
            self._begin_generation(restart, [task for task in restart.members if takes_part(task)])
        elif self._state.phase is not JobState.RESTARTING and self._knows_cluster:
            self._begin_alone(group, restart)

    @property
    def _knows_cluster(self) -> bool:
        """Whether the addresses of all members are known, on which ranks depend. A recovery may lack some of them."""
        if self._state.first_come:
            return True
        addresses = self._state.generation.addresses
        begin_later = self._containers.gang.brings if self._groups.gang.restart else None
        return all(
            task.name in addresses or task.ready or (begin_later and begin_later(task))
            for task in self._groups.gang.members
            if not task.absent and not task.waits and not task.over
        )

    def _begin_generation(self, restart: Restart, members: Sequence[Task]) -> None:
        state = self._state
        choice = restart.choice
        resume = choice.resume if choice else None
        number = state.generation.number + 1
        state.generation = Generation(number, resume)
        for task in members:
            task.absent = False
        state.generation.without = frozenset(task.name for task in state.tasks if task.absent)
        for task in state.members():
            if task.is_up:
                state.enter_cluster(task)
        state.enter(JobState.RUNNING)
        decided = self._begun(self._groups.gang, *map(self._groups.of, members))
        for group in self._groups.every:
            if group.restart:  # the choice belongs to the former generation, unless tasks start independently
                group.restart.choice = choice if self._state.first_come else None
        absent = [task.name for task in state.tasks if task.absent]
        data = {
            "generation": number,
            "resume": attrs.asdict(resume) if resume else None,
            "absent": absent,
            "restarting": decided,
            **self._order(members, resume, keep=False),
        }
        without = f", without {some(absent)}" if absent else ""
        since = f"from {resume.label}" if resume else "from the beginning"
        tasks = count(len(members), "task")
        state.note("rendezvous", f"generation {number} with {tasks}{without}, {since}", data=data)

    def _begin_alone(self, group: RestartGroup, restart: Restart) -> None:
        (task,) = restart.members
        for each in (task, *self._groups.gang.members):
            if each.is_up and each.name not in self._state.generation.addresses and _takes_part(each):
                self._state.enter_cluster(each)
        self._state.enter_cluster(task)
        resume = restart.choice.resume if restart.choice else None
        data = {
            "restarting": self._begun(group),
            **self._order([task], resume, keep=restart.choice is None),
        }
        self._state.note("started_again", f"start {task.start}", task, data)

    @staticmethod
    def _begun(*groups: RestartGroup) -> dict[str, bool]:
        """Reset the groups that start now. Return the groups that the event log lists as restarting."""
        decided = {group.name: False for group in groups if group.decided}
        for group in groups:
            group.rest()
            group.decided = False
        return decided

    def _order(self, tasks: Sequence[Task], resume: Optional[ResumePoint], *, keep: bool) -> dict[str, object]:
        """Order the starts of tasks. Return the start numbers for the event log, with the most common number once."""
        number = self._state.generation.number
        for task in tasks:
            task.start += 1
        order = SendRendezvous(self._state.cluster(), {task.name: task.start for task in tasks}, resume, keep)
        for task in tasks:
            resumed = task.process.resumed if keep and task.process else resume
            task.process = ProcessState(task.start, number, order, resumed)
            task.enter(TaskState.REGISTERED)
            task.failure = task.trouble_at = None
        self._state.emit(order)
        start = min((task.start for task in self._state.tasks), default=0)
        known: dict[str, dict[str, Any]] = {}
        for task in tasks:
            own = not_over(task) if task.start == start else {"start": task.start, **not_over(task)}
            if own:
                known[task.name] = own
        return {"start": start, "tasks": known}


def _takes_part(task: Task) -> bool:
    return not task.over and not task.waits and (task.ready or not task.absent)


def _is_ready(task: Task) -> bool:
    return task.ready and not task.over


def _is_busy(task: Task) -> bool:
    return task.busy and _takes_part(task)


def _is_missing(task: Task) -> bool:
    return not task.ready and _takes_part(task)


def _held_up(restart: Restart, holds: Callable[[Task], bool]) -> bool:
    """Return whether a member delays the start. Start at the last such member, because jobs are large."""
    for _ in restart.members:
        if holds(restart.members[restart.looking_at % len(restart.members)]):
            return True
        restart.looking_at = (restart.looking_at + 1) % len(restart.members)
    return False


def _keeps_checkpoints(tasks: Sequence[Task]) -> bool:
    return all(task.process is not None and task.process.end is not None for task in tasks)
