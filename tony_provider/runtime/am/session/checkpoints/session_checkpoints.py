"""Effects of checkpoints on the session: requests, commits, the choice of resume points, damage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

import attrs

from tony_provider.runtime.am.session.actions import AskCheckpoint, SetAside
from tony_provider.runtime.am.session.checkpoints import mirroring
from tony_provider.runtime.am.session.containers.containers import Containers
from tony_provider.runtime.am.session.job_completion import JobCompletion
from tony_provider.runtime.am.session.restarts import failures
from tony_provider.runtime.am.session.restarts.process_starts import ProcessStarts
from tony_provider.runtime.am.session.restarts.progress import CommittedSave
from tony_provider.runtime.am.session.restarts.restart_groups import RestartGroups
from tony_provider.runtime.am.session.restarts.restarts import Restarts
from tony_provider.runtime.am.session.state.session_state import SessionState
from tony_provider.runtime.am.session.state.task import Task
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.protocol.status import Failure, FailureKind

MOST_DAMAGED = 10  # resume points in a row
CHECKPOINT_WAIT = 60.0  # seconds for a requested checkpoint, until processes are stopped without it


class SessionCheckpoints:
    """The part of the session that requests checkpoints and handles their commits, choices and damages.

    Times are the session's, in seconds.
    """

    def __init__(
        self,
        state: SessionState,
        containers: Containers,
        completion: JobCompletion,
        groups: RestartGroups,
        starts: ProcessStarts,
        restarts: Restarts,
    ) -> None:
        self._state = state
        self._containers = containers
        self._completion = completion
        self._groups = groups
        self._starts = starts
        self._restarts = restarts
        self._set_aside: set[str] = set()

    def ranks(self) -> Sequence[tuple[str, int]]:
        """Return names and ranks of the tasks whose checkpoints are stored."""
        return mirroring.mirror_ranks(self._state.job.checkpoint.stored, self._state.members())

    def group_of(self, task: Task) -> str:
        """Return the group of tasks whose checkpoints belong together: the gang, or a task that restarts alone."""
        return self._groups.of(task).name

    def commit_refusal(self, task: Task, generation: int, start: int) -> Optional[str]:
        """Return the reason why this start of the task may not commit, or None if it may."""
        process = task.process
        if process is None or process.start != start or generation != process.generation:
            return f"start {start} of {task.name} in generation {generation} is not the newest"
        preparing = self._groups.preparing(task)
        if preparing and preparing.restart and preparing.restart.choice:
            return f"generation {generation} is over: the resume point of the next generation is being chosen"
        return None

    def ask(self, reason: str) -> bool:
        """Request a checkpoint now. Return False if no task that saves is running."""
        makers = mirroring.checkpoint_makers(self._state.job.checkpoint.mirror, self._state.members())
        able = tuple(name for name in makers if self._state.by_name[name].runs)
        if able:
            self._state.emit(AskCheckpoint(able, reason))
        return bool(able)

    def committed(self, point: ResumePoint, save: CommittedSave) -> None:
        state = self._state
        if state.checkpoint is None or point.save >= state.checkpoint.save:
            state.checkpoint = point
        savers = [state.by_name[name] for name, _ in self.ranks()]
        data: dict[str, Any] = {"checkpoint": attrs.asdict(state.checkpoint), **self._restarts.saved(save, savers)}
        extent = f": {point.extent}" if point.extent else ""
        state.note("checkpoint", f"{point.label} is on the store{extent}", data=data)

    # ---- resume points -----------------------------------------------------------------------------------------

    def chosen(self, generation: int, resume: Optional[ResumePoint], not_from: str, now: float) -> None:
        """Let a generation resume from this checkpoint. ``not_from`` describes a suspect one that was passed over."""
        for group in self._starts.waiting_for_choice(generation):
            suspect = group.suspect
            if suspect and (resume is None or suspect.uri == resume.uri):
                self._restarts.give_up(suspect.task, suspect.failure, now)
        if self._state.verdict or not self._starts.waiting_for_choice(generation):
            return
        state = self._state
        before = max((point.save for point in (state.generation.resume, state.checkpoint) if point), default=0)
        data = self._lower(resume)
        what = f"resumes from {resume.label}" if resume else "begins at step 0: there is no checkpoint"
        if resume and not_from:
            what = f"{what}, {not_from}"
            state.warnings.append(f"the job resumed from {resume.label}, {not_from}")
            if resume.save < before:
                state.went_back = data["went_back"] = resume.uri
        state.note("resume_chosen", f"generation {generation} {what}", data=data)
        self._starts.chosen(generation, resume)

    def _lower(self, resume: Optional[ResumePoint]) -> dict[str, Any]:
        """Forget checkpoints that are newer than the resume point. Return the change for the event log."""
        known = self._state.checkpoint
        if known is None or (resume and resume.save >= known.save):
            return {}
        # The resume point may belong to a continued chain. Then this job has committed no usable checkpoint.
        own = resume if resume and _directory(resume) == _directory(known) else None
        self._state.checkpoint = own
        return {"checkpoint": attrs.asdict(own) if own else None}

    def not_chosen(self, generation: int, reason: str, now: float) -> None:
        """Fail the job, because the storage does not list its checkpoints and no resume point could be chosen."""
        if self._starts.waiting_for_choice(generation):
            self._completion.fail(Failure(FailureKind.CHECKPOINT, f"no resume point could be chosen: {reason}"), now)

    def not_restored(self, task: Task, start: int, uri: str, damaged: bool, reason: str, now: float) -> None:
        """Handle a resume point that a task could not restore, so that its process was not started."""
        process = task.process
        if process is None or process.start != start or not process.runs:
            return
        process.settled = True
        resume = process.order.resume if process.order else self._state.generation.resume
        failure = failures.of_restore(task, resume if resume and resume.uri == uri else None, reason)
        if damaged and resume and resume.uri == uri:
            self._take_out(resume, reason)
        if task.told_to_stop or process.stop_by is not None:
            return
        if damaged:
            self._choose_another(task, failure, now)
        else:
            if failure.kind is not FailureKind.NODE:  # the node's connection to the store may be the cause
                task.unfit = True
                if task.node:
                    self._containers.blame(task.node)
            self._restarts.trouble(task, failure, now)

    def _take_out(self, resume: ResumePoint, reason: str) -> None:
        if resume.uri in self._set_aside:
            return
        self._set_aside.add(resume.uri)
        self._state.emit(SetAside(resume, reason))
        data: dict[str, Any] = {}
        if self._state.checkpoint and self._state.checkpoint.uri == resume.uri:
            self._state.checkpoint = None
            data = {"checkpoint": None}
        self._state.note("set_aside", f"{resume.label} is damaged: {reason}", data=data)

    def _choose_another(self, task: Task, failure: Failure, now: float) -> None:
        group = self._groups.of(task)
        group.damaged += 1
        if group.damaged > MOST_DAMAGED:
            why = f"and so were the {MOST_DAMAGED} newer checkpoints: none is left to resume from"
            self._completion.fail(failures.given_up(failure, why), now)
        else:
            self._restarts.again(group, failure.message, now)


def _directory(point: ResumePoint) -> str:
    return point.uri.rpartition("/")[0]
