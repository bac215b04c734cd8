"""From a failure to the next start: what is stopped, what is decided, and what the job goes on with."""

from __future__ import annotations

from typing import Any

import attrs

from tony_provider.runtime.am import words
from tony_provider.runtime.am.session import failures
from tony_provider.runtime.am.session.containers import Containers
from tony_provider.runtime.am.session.course import Course
from tony_provider.runtime.am.session.decision import Never, decide
from tony_provider.runtime.am.session.ending import Ending
from tony_provider.runtime.am.session.starts import Starts
from tony_provider.runtime.am.session.task import Task
from tony_provider.runtime.am.session.units import GANG, Restart, Unit, Units
from tony_provider.runtime.protocol.status import Failure, FailureKind, JobState, TaskState
from tony_provider.runtime.spec.model import Role


class Restarts:
    """Times are the session's, in seconds."""

    def __init__(self, course: Course, containers: Containers, ending: Ending, units: Units, starts: Starts) -> None:
        self._course = course
        self._containers = containers
        self._ending = ending
        self._units = units
        self._starts = starts
        self._active = {GANG: units.gang}  # and those of which something is under way, among thousands; it goes first

    def prepare_start(self, now: float) -> None:
        """The first start, or the first after everything was given back: of every task."""
        for unit in self._units.every:
            unit.rest()
        self._units.gang.restart = Restart("the job starts", self._containers.gang.wanted, not_before=now)
        self._active = {GANG: self._units.gang}

    def trouble(self, task: Task, failure: Failure, now: float, *, doubtful: bool = False) -> None:
        """A task that was at work has failed; see Judge.failed. ``check`` does what follows."""
        unit = self._units.of(task)
        unit.judge.failed(task, failure, now, doubtful=doubtful)
        self._active[unit.name] = unit
        self.know_failure(task, failure)

    def know_failure(self, task: Task, failure: Failure) -> None:
        """Why a task has failed is known, at once or, of a failure that was in doubt, at last."""
        self._course.note("failed", failure.message, task)
        if failure.kind is FailureKind.OUT_OF_MEMORY and self._containers.sizes.raise_memory(task.type):
            memory = self._containers.sizes.of(task.type).memory
            data = {"memory": self._containers.sizes.raised}
            self._course.note("memory_raised", f"containers of {task.type} get {memory} MiB from now on", data=data)
            task.unfit = task.has_container

    def again(self, unit: Unit, reason: str, now: float) -> None:
        """Start again for a reason that is no failure."""
        if unit.restart is None:
            self._open(unit, reason, now)
            self._schedule(unit, reason, now)

    def give_up(self, task: Task, failure: Failure, now: float) -> None:
        """Do without this task, or end the job."""
        if task.role is not Role.SIDECAR:
            self._ending.fail(failure, now)
            return
        task.failure, task.state, task.given_up = failure, TaskState.FAILED, True
        self._course.warnings.append(failure.message)
        self._course.note("given_up", words.first_line(failure.message), task)
        self._course.emit(*self._containers.gang.withdraw(task))
        self._units.of(task).rest()

    @property
    def undecided(self) -> bool:
        """Something has failed, and it is not known yet what comes of it."""
        return any(unit.judge.pending for unit in self._active.values())

    def check(self, now: float) -> None:
        """What follows from failures, and the next steps of the starts that are being prepared."""
        for unit in list(self._active.values()):
            if unit.judge.pending:
                self._judge(unit, now)
            if self._course.verdict:
                return
        for unit in list(self._active.values()):
            if unit.restart and not self._is_ending(unit.restart):
                self._starts.advance(unit, now)
        self._active = {
            name: unit
            for name, unit in self._active.items()
            if unit.restart or unit.judge.pending or unit is self._units.gang
        }

    def _is_ending(self, restart: Restart) -> bool:
        """The training has succeeded: evaluators may start again, nobody else."""
        finishing = self._course.phase is JobState.FINISHING
        return finishing and any(task.told_to_stop for task in restart.members)

    def _judge(self, unit: Unit, now: float) -> None:
        cause = unit.judge.cause(now)
        if cause is None or cause.failure is None:
            self._open(unit, unit.judge.reason, now)  # whatever the cause: the others cannot go on
            return
        if cause.failure.kind is FailureKind.STALLED:
            self._open(unit, cause.failure.message, now)  # it writes its stacks, whatever comes of it
        times = unit.repeats.add(cause.failure, cause.type, now)
        decision = decide(cause.failure, cause.scope, self._course.job.restart, unit.budget, now, times=times)
        if isinstance(decision, Never):
            self.give_up(cause, failures.given_up(cause.failure, decision.why), now)
            return
        self._open(unit, cause.failure.message, now)
        unit.damaged = 0
        self._schedule(unit, cause.failure.message, now, decision.delay)

    def _open(self, unit: Unit, reason: str, now: float) -> None:
        """Stop what has to start again."""
        if unit.restart:
            return
        unit.restart = Restart(words.first_line(reason), list(unit.members))
        self._active[unit.name] = unit
        if unit is self._units.gang and self._course.phase is JobState.RUNNING:
            self._course.phase = JobState.RESTARTING
        stacks = FailureKind.STALLED in unit.judge.kinds
        for task in unit.members:
            if self._units.of(task) is not unit:
                self._units.of(task).rest()
            self._starts.stop(task, now, reason, stacks=stacks)
            self._starts.renew(task, now, unit.restart.reason)

    def _schedule(self, unit: Unit, reason: str, now: float, delay: float = 0.0) -> None:
        if unit.restart is None:
            return
        unit.judge.reset()
        unit.restart.reason = words.first_line(reason)
        unit.restart.not_before = now + delay
        for task in unit.members:
            if task.state in (TaskState.FAILED, TaskState.LOST) and task.has_container:
                task.state = TaskState.REGISTERED
        self._course.restarts += 1
        what = "the gang" if unit.name == GANG else unit.name
        wait = f" in {delay:g} s" if delay else ""
        self._course.note("restarting", f"{what} starts again{wait}: {unit.restart.reason}", data=self._data(unit))

    def _data(self, unit: Unit) -> dict[str, Any]:
        unit.decided = True
        epoch = self._course.epoch
        seen = [attrs.asdict(attrs.evolve(each, time=epoch + each.time)) for each in unit.repeats.seen]
        return {
            "restarts": self._course.restarts,
            "restart_times": {unit.name: [epoch + time for time in unit.budget.times]},
            "failures": {unit.name: seen},
            "restarting": {unit.name: True},
        }

    # ---- progress ----------------------------------------------------------------------------------------------

    def stepped(self, task: Task, step: int) -> None:
        """Its user process has reported a step: a failure from now on is not the same as one before."""
        unit = self._units.of(task)
        if unit.repeats.seen:
            unit.repeats.forget()
            self._course.note("stepped", f"it took step {step}", task, data={"failures": {unit.name: []}})

    def progress(self) -> dict[str, Any]:
        """A newer checkpoint was committed than the generation went on from; what is forgotten, for the event log."""
        spent = [unit for unit in self._units.every if unit.budget.times or unit.repeats.seen or unit.damaged]
        for unit in spent:
            unit.budget.progress()
            unit.repeats.forget()
            unit.damaged = 0
        nothing: dict[str, list[object]] = {unit.name: [] for unit in spent}
        return {"restart_times": nothing, "failures": nothing} if spent else {}
