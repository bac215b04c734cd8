"""Starting user processes, all of a generation or a single one, once everything that they need is there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Optional

import attrs

from tony_provider.runtime.am import words
from tony_provider.runtime.am.session.actions import ChooseResumePoint, SendRendezvous, StopProcess
from tony_provider.runtime.am.session.containers import Containers
from tony_provider.runtime.am.session.course import Course, Generation
from tony_provider.runtime.am.session.process import UserProcess
from tony_provider.runtime.am.session.task import Task
from tony_provider.runtime.am.session.units import Choice, Restart, Unit, Units
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.protocol.status import JobState, TaskState
from tony_provider.runtime.protocol.timing import STOP_SLACK


class Starts:
    """Times are the session's, in seconds."""

    def __init__(self, course: Course, containers: Containers, units: Units) -> None:
        self._course = course
        self._containers = containers
        self._units = units

    # ---- stopping what runs ------------------------------------------------------------------------------------

    def stop(self, task: Task, now: float, reason: str, *, stacks: bool = False) -> None:
        """Have its user process end, and the executor stay for the next one."""
        process = task.process
        if process is None or not task.busy or process.stop_by is not None:
            return
        grace = self._course.job.timeouts.grace if process.runs else 0.0
        process.stop_by = now + grace + self._course.last_copies + STOP_SLACK
        if process.runs and task.connected:
            self._say_stop(task, process, reason, stacks=stacks)

    def _say_stop(self, task: Task, process: UserProcess, reason: str, *, stacks: bool = False) -> None:
        copies, grace = self._course.last_copies, self._course.job.timeouts.grace
        self._course.emit(
            StopProcess(task.name, process.generation, process.start, grace, copies, words.first_line(reason), stacks)
        )

    def say_again(self, task: Task, start: int) -> None:
        """An executor is back whose newest order was ``start``: it may have missed what came later."""
        process = task.process
        if process is None or not process.runs:
            return
        if process.stop_by is None:
            if start < process.start and process.order:
                self._course.emit(attrs.evolve(process.order, starts={task.name: process.start}))
        elif start < process.start:
            process.settled = True  # it never began
        else:
            self._say_stop(task, process, "told so before")

    # ---- getting everything together ---------------------------------------------------------------------------

    def renew(self, task: Task, now: float, reason: str) -> None:
        """Ask for another container where that is due; not for a task that has its last one."""
        if task.told_to_stop:
            return
        if task.unfit and not task.busy:
            self._containers.dismiss(task, now, "its container is given back")
        if task.container_ended and not task.absent:
            self._containers.replace(task, now, reason)

    def advance(self, unit: Unit, now: float) -> None:
        """Take the next step of the start that the unit prepares."""
        restart = unit.restart
        if restart is None:
            return
        if restart.choice is None and self._needs_choice(unit, restart):
            if _held_up(restart, _is_busy):
                return
            restart.choice = Choice(self._next_generation(unit))
            self._course.emit(ChooseResumePoint(restart.choice.generation))
        due = restart.not_before is not None and now >= restart.not_before
        if due and (restart.choice is None or restart.choice.made) and not _held_up(restart, _is_missing):
            self._begin(unit, restart)

    def chosen(self, generation: int, resume: Optional[ResumePoint]) -> None:
        """The answer to every unit that asked for this generation."""
        for choice in self._open_choices(generation):
            choice.made, choice.resume = True, resume

    def waits_for_choice(self, generation: int) -> bool:
        return bool(self._open_choices(generation))

    def _open_choices(self, generation: int) -> list[Choice]:
        choices = [unit.restart.choice for unit in self._units.every if unit.restart and unit.restart.choice]
        return [choice for choice in choices if choice.generation == generation and not choice.made]

    def _needs_choice(self, unit: Unit, restart: Restart) -> bool:
        """A single task that starts again in its container goes on from what lies there."""
        if unit is self._units.gang:
            return True
        # One resume point for all: while the gang starts again there is none to join.
        return self._course.phase is not JobState.RESTARTING and not _keeps_checkpoints(restart.members)

    def _next_generation(self, unit: Unit) -> int:
        return self._course.generation.number + (1 if unit is self._units.gang else 0)

    # ---- starting ----------------------------------------------------------------------------------------------

    def _begin(self, unit: Unit, restart: Restart) -> None:
        if unit is self._units.gang:
            self._begin_generation(restart, [task for task in restart.members if _takes_part(task)])
        elif self._course.phase is not JobState.RESTARTING and self._knows_cluster():
            self._begin_alone(unit, restart)

    def _knows_cluster(self) -> bool:
        """Not after a recovery that lacks some: ranks follow from who is there."""
        addresses = self._course.generation.addresses
        return all(task.absent or task.name in addresses or task.ready for task in self._units.gang.members)

    def _begin_generation(self, restart: Restart, members: Sequence[Task]) -> None:
        course = self._course
        choice = restart.choice
        resume = choice.resume if choice else None
        number = course.generation.number + 1
        course.generation = Generation(number, resume)
        for task in members:
            task.absent = False
        course.generation.without = frozenset(task.name for task in course.tasks if task.absent or task.given_up)
        for task in course.members():
            if task.is_up:
                course.enter_cluster(task)
        course.phase = JobState.RUNNING
        decided = self._begun(self._units.gang, *map(self._units.of, members))
        for unit in self._units.every:
            if unit.restart:
                unit.restart.choice = None  # made for the former generation
        absent = [task.name for task in course.tasks if task.absent]
        data = {
            "generation": number,
            "resume": attrs.asdict(resume) if resume else None,
            "absent": absent,
            "restarting": decided,
            **self._order(members, resume, keep=False),
        }
        without = f", without {words.some(absent)}" if absent else ""
        since = f"from {resume.label}" if resume else "from the beginning"
        tasks = words.count(len(members), "task")
        course.note("rendezvous", f"generation {number} with {tasks}{without}, {since}", data=data)

    def _begin_alone(self, unit: Unit, restart: Restart) -> None:
        (task,) = restart.members
        for each in (task, *self._units.gang.members):
            if each.name not in self._course.generation.addresses and _takes_part(each):
                self._course.enter_cluster(each)
        self._course.enter_cluster(task)
        resume = restart.choice.resume if restart.choice else None
        data = {
            "restarting": self._begun(unit),
            **self._order([task], resume, keep=restart.choice is None),
        }
        self._course.note("started_again", f"start {task.start}", task, data)

    @staticmethod
    def _begun(*units: Unit) -> dict[str, bool]:
        """What they waited for is there; those that the event log says to be waiting."""
        decided = {unit.name: False for unit in units if unit.decided}
        for unit in units:
            unit.rest()
            unit.decided = False
        return decided

    def _order(self, tasks: Sequence[Task], resume: Optional[ResumePoint], *, keep: bool) -> dict[str, object]:
        """Tell them; the numbers for the event log: the count that is everybody's, as a rule, is noted once."""
        number = self._course.generation.number
        for task in tasks:
            task.start += 1
        order = SendRendezvous(self._course.cluster(), {task.name: task.start for task in tasks}, resume, keep)
        for task in tasks:
            task.process = UserProcess(task.start, number, order)
            task.state, task.failure, task.trouble_at = TaskState.REGISTERED, None, None
        self._course.emit(order)
        start = min((task.start for task in self._course.tasks), default=0)
        return {"start": start, "tasks": {task.name: {"start": task.start} for task in tasks if task.start != start}}


def _takes_part(task: Task) -> bool:
    return not task.given_up and (task.ready or not task.absent)


def _is_busy(task: Task) -> bool:
    return task.busy and _takes_part(task)


def _is_missing(task: Task) -> bool:
    return not task.ready and _takes_part(task)


def _held_up(restart: Restart, holds: Callable[[Task], bool]) -> bool:
    """Whether a member holds the start up. Asked after each of the messages of thousands of executors."""
    for _ in restart.members:
        if holds(restart.members[restart.looking_at]):
            return True
        restart.looking_at = (restart.looking_at + 1) % len(restart.members)
    return False


def _keeps_checkpoints(tasks: Sequence[Task]) -> bool:
    return all(task.process is not None and task.process.end is not None for task in tasks)
