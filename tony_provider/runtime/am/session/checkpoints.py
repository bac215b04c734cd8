"""Checkpoints as far as they steer the job: asked for, committed, chosen, damaged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

import attrs

from tony_provider.runtime.am.session import failures, mirroring
from tony_provider.runtime.am.session.actions import AskCheckpoint, SetAside
from tony_provider.runtime.am.session.course import Course
from tony_provider.runtime.am.session.ending import Ending
from tony_provider.runtime.am.session.restarts import Restarts
from tony_provider.runtime.am.session.starts import Starts
from tony_provider.runtime.am.session.task import Task
from tony_provider.runtime.am.session.units import Units
from tony_provider.runtime.checkpoint.resume_point import ResumePoint, is_later_step
from tony_provider.runtime.protocol.status import Failure, FailureKind

MOST_DAMAGED = 10  # resume points in a row


class Checkpoints:
    """Times are the session's, in seconds."""

    def __init__(self, course: Course, ending: Ending, units: Units, starts: Starts, restarts: Restarts) -> None:
        self._course = course
        self._ending = ending
        self._units = units
        self._starts = starts
        self._restarts = restarts
        self._set_aside: set[str] = set()

    def ranks(self) -> Sequence[tuple[str, int]]:
        """Name and rank of the tasks whose checkpoints are copied to the store."""
        return mirroring.mirror_ranks(self._course.job.checkpoint.mirror, self._course.members())

    def commit_refusal(self, task: Task, generation: int, start: int) -> Optional[str]:
        """Why this start of the task may not commit (any more); None when it may."""
        process = task.process
        if process is None or process.start != start or generation != self._course.generation.number:
            return f"start {start} of {task.name} in generation {generation} is not the newest"
        preparing = self._units.preparing(task)
        if preparing and preparing.restart and preparing.restart.choice:
            return f"generation {generation} is over: the next one's resume point is being chosen"
        return None

    def ask(self, reason: str) -> bool:
        """Ask those that make checkpoints for one now. False when nobody can make one."""
        makers = mirroring.checkpoint_makers(self._course.job.checkpoint.mirror, self._course.members())
        able = tuple(name for name in makers if _runs(self._course.by_name[name]))
        if able:
            self._course.emit(AskCheckpoint(able, reason))
        return bool(able)

    def committed(self, point: ResumePoint) -> None:
        course = self._course
        if course.checkpoint is None or point.save >= course.checkpoint.save:
            course.checkpoint = point
        data: dict[str, Any] = {"checkpoint": attrs.asdict(course.checkpoint)}
        if _is_progress(point, course.generation.resume):
            data.update(self._restarts.progress())
        course.note("checkpoint", f"{point.label} is on the store", data=data)

    # ---- resume points -----------------------------------------------------------------------------------------

    def chosen(self, generation: int, resume: Optional[ResumePoint]) -> None:
        if self._starts.waits_for_choice(generation):
            what = resume.label if resume else "no checkpoint"
            data = self._lower(resume)
            self._course.note("resume_chosen", f"generation {generation} goes on from {what}", data=data)
            self._starts.chosen(generation, resume)

    def _lower(self, resume: Optional[ResumePoint]) -> dict[str, Any]:
        """What was committed after the resume point turned out to be of no use; for the event log."""
        known = self._course.checkpoint
        if known is None or (resume and resume.save >= known.save):
            return {}
        # Of a lineage that is continued, it is not one that this job has committed.
        own = resume if resume and _directory(resume) == _directory(known) else None
        self._course.checkpoint = own
        return {"checkpoint": attrs.asdict(own) if own else None}

    def not_chosen(self, generation: int, reason: str, now: float) -> None:
        """The store does not say what there is."""
        if self._starts.waits_for_choice(generation):
            self._ending.fail(Failure(FailureKind.CHECKPOINT, f"no resume point could be chosen: {reason}"), now)

    def not_restored(self, task: Task, start: int, uri: str, damaged: bool, reason: str, now: float) -> None:
        """The resume point could not be put into a task's directory, so that its process was not started."""
        process = task.process
        if process is None or process.start != start or not process.runs:
            return
        process.settled = True
        resume = process.order.resume if process.order else self._course.generation.resume
        failure = failures.of_restore(task, resume if resume and resume.uri == uri else None, reason)
        if damaged and resume and resume.uri == uri:
            self._take_out(resume, reason)
        if task.told_to_stop or process.stop_by is not None:
            return
        if damaged:
            self._choose_another(task, failure, now)
        else:  # perhaps it is its disk, or the way from its node to the store
            task.unfit = True
            self._restarts.trouble(task, failure, now)

    def _take_out(self, resume: ResumePoint, reason: str) -> None:
        if resume.uri in self._set_aside:
            return
        self._set_aside.add(resume.uri)
        self._course.emit(SetAside(resume, reason))
        data: dict[str, Any] = {}
        if self._course.checkpoint and self._course.checkpoint.uri == resume.uri:
            self._course.checkpoint = None
            data = {"checkpoint": None}
        self._course.note("set_aside", f"the checkpoint of {resume.label} is damaged: {reason}", data=data)

    def _choose_another(self, task: Task, failure: Failure, now: float) -> None:
        unit = self._units.of(task)
        unit.damaged += 1
        if unit.damaged > MOST_DAMAGED:
            why = f"and so were the {MOST_DAMAGED} newer ones: nothing is left to try"
            self._ending.fail(failures.given_up(failure, why), now)
        else:
            self._restarts.again(unit, failure.message, now)


def _directory(point: ResumePoint) -> str:
    return point.uri.rpartition("/")[0]


def _is_progress(point: ResumePoint, resumed: Optional[ResumePoint]) -> bool:
    """Whether it is further than what the generation went on from; where nothing says a step, a newer save is."""
    if resumed is None:
        return True
    if point.step is not None and (point.step, point.reported) == (resumed.step, resumed.reported):
        return False
    return is_later_step(point.step, point.reported, resumed.step, resumed.reported) is not False


def _runs(task: Task) -> bool:
    return task.process is not None and task.process.started_at is not None and task.process.runs and task.is_up
