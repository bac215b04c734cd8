"""Checkpoints and exports of the model.

``SessionCheckpoints`` handles requests, commits, the choice of resume points, and damaged checkpoints.
``SessionExports`` requests exports from the leading task.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

import attrs

from tony_provider.runtime.am.session import failures
from tony_provider.runtime.am.session.actions import AskCheckpoint, AskExport, ExcludeCheckpoint
from tony_provider.runtime.am.session.restart_policy import CommittedSave
from tony_provider.runtime.am.session.session_events import PreparationFailed
from tony_provider.runtime.am.session.session_state import Part, SessionContext, Task
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.common.codec import to_plain
from tony_provider.runtime.jobspec.model import MirrorScope, ranks, saves_checkpoints
from tony_provider.runtime.protocol.status import ExportedModel, ExportRequest, Failure, FailureKind

MOST_DAMAGED = 10  # limit of consecutive damaged resume points
CHECKPOINT_WAIT = 60.0  # seconds to wait for a requested checkpoint before processes are stopped without it


class SessionCheckpoints(Part):
    """Session component that requests checkpoints, records commits, and handles resume points."""

    def __init__(self, context: SessionContext) -> None:
        super().__init__(context)
        self._set_aside: set[str] = set()  # URIs of damaged checkpoints
        self._waits: list[CheckpointWait] = []

    def ranks(self) -> Sequence[tuple[str, int]]:
        """Return names and ranks of the tasks whose checkpoints are stored."""
        return mirror_ranks(self._state.job.checkpoint.stored, self._state.members())

    def group_of(self, task: Task) -> str:
        """Return the name of the task's restart group. The checkpoints of a group's tasks belong together."""
        return self._groups.of(task).name

    def commit_refusal(self, task: Task, generation: int, start: int) -> Optional[str]:
        """Return the reason why this start of the task may not commit, or None if the start may commit."""
        process = task.process
        if process is None or process.start != start or generation != process.generation:
            return f"{task.name} has a newer start than start {start} (generation {generation})"
        preparing = self._groups.preparing(task)
        if preparing and preparing.restart and preparing.restart.choice:
            return f"generation {generation} is over: the resume point of the next generation is being chosen"
        return None

    def ask(self, reason: str) -> bool:
        """Request a checkpoint now. Return False if no task that saves is running."""
        makers = checkpoint_makers(self._state.job.checkpoint.mirror, self._state.members())
        if able := tuple(name for name in makers if self._state.by_name[name].runs):
            self._state.emit(AskCheckpoint(able, reason))
        return bool(able)

    def new_wait(self) -> CheckpointWait:
        """Return a new CheckpointWait. The next committed checkpoint ends the wait."""
        self._waits.append(CheckpointWait(self))
        return self._waits[-1]

    def committed(self, point: ResumePoint, save: CommittedSave, now: float) -> None:
        for wait in self._waits:
            wait.committed(now)
        state = self._state
        if state.checkpoint is None or point.save >= state.checkpoint.save:
            state.checkpoint = point
        savers = [state.by_name[name] for name, _ in self.ranks()]
        data: dict[str, Any] = {"checkpoint": to_plain(state.checkpoint), **self._restarts.saved(save, savers)}
        extent = f": {point.extent}" if point.extent else ""
        state.note("checkpoint", f"{point.label} is on the store{extent}", data=data)

    # ---- resume points -----------------------------------------------------------------------------------------

    def chosen(self, generation: int, resume: Optional[ResumePoint], not_from: str, now: float) -> None:
        """Let a generation resume from this checkpoint. ``not_from`` describes a newer one that was skipped."""
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
        # If the resume point is from an earlier application's directory, this job has committed no usable checkpoint.
        own = resume if resume and _directory(resume) == _directory(known) else None
        self._state.checkpoint = own
        return {"checkpoint": to_plain(own)}

    def not_chosen(self, generation: int, reason: str, now: float) -> None:
        """Fail the job, because the store did not list the job's checkpoints and no resume point could be chosen."""
        if self._starts.waiting_for_choice(generation):
            self._completion.fail(Failure(FailureKind.CHECKPOINT, f"no resume point could be chosen: {reason}"), now)

    def not_prepared(self, task: Task, report: PreparationFailed, now: float) -> None:
        """Handle a task whose start could not be prepared, so that its user process did not start."""
        process = task.process
        if process is None or process.start != report.start or not process.runs:
            return
        process.settled = True
        resume = process.order.resume if process.order else self._state.generation.resume
        resume = resume if resume and resume.uri == report.uri else None
        failure = failures.of_preparation(task, resume, report.reason, unfit=report.unfit)
        if report.damaged and resume:
            self._take_out(resume, report.reason)
        if task.ending or process.stop_by is not None:
            return
        if report.damaged:
            self._choose_another(task, failure, now)
        else:
            if failure.kind is not FailureKind.NODE:  # perhaps the node cannot reach the store
                task.needs_replacement = True
                if task.node:
                    self._containers.blame(task.node)
            self._restarts.record_failure(task, failure, now)

    def _take_out(self, resume: ResumePoint, reason: str) -> None:
        if resume.uri in self._set_aside:
            return
        self._set_aside.add(resume.uri)
        self._state.emit(ExcludeCheckpoint(resume, reason))
        data: dict[str, Any] = {}
        if self._state.checkpoint and self._state.checkpoint.uri == resume.uri:
            self._state.checkpoint = None
            data = {"checkpoint": None}
        self._state.note("set_aside", f"{resume.label} is damaged: {reason}", data=data)

    def _choose_another(self, task: Task, failure: Failure, now: float) -> None:
        group = self._groups.of(task)
        group.damaged += 1
        if group.damaged > MOST_DAMAGED:
            why = f"the {MOST_DAMAGED} newest checkpoints before it are damaged too"
            self._completion.fail(failures.given_up(failure, why), now)
        else:
            self._restarts.restart(group, failure.message, now)


@attrs.define
class CheckpointWait:
    """A wait for a requested checkpoint before the processes are stopped, so that no steps are lost."""

    _checkpoints: SessionCheckpoints
    _until: Optional[float] = None  # end of the wait; None while no checkpoint is awaited

    @property
    def is_on(self) -> bool:
        """Whether a checkpoint was requested and the processes have not been stopped since."""
        return self._until is not None

    def is_over(self, reason: str, now: float, *, patient: bool = False) -> bool:
        """Return whether the processes may be stopped. The first call requests a checkpoint.

        The wait is over at once if no task can save a checkpoint, unless ``patient`` is true.
        """
        if self._until is None:
            asked = self._checkpoints.ask(reason)
            self._until = now + CHECKPOINT_WAIT if asked or patient else now
        return now >= self._until

    def committed(self, now: float) -> None:
        """Record a committed checkpoint."""
        if self._until is not None:
            self._until = min(self._until, now)

    def end(self) -> None:
        """Forget the wait, because the processes are stopped or no longer need to be stopped."""
        self._until = None


def _directory(point: ResumePoint) -> str:
    return point.uri.rpartition("/")[0]


def mirror_ranks(mirror: MirrorScope, members: Sequence[Task]) -> Sequence[tuple[str, int]]:
    """Return names and ranks of the tasks whose checkpoint directories are stored, sorted by rank."""
    if mirror is MirrorScope.OFF:
        return []
    return _ranks(members, all_ranks=mirror is not MirrorScope.LEADER)


def checkpoint_makers(mirror: MirrorScope, members: Sequence[Task]) -> tuple[str, ...]:
    """Return the tasks that receive requests for a checkpoint: rank 0, or all tasks with the scope ``all``."""
    return tuple(name for name, _ in _ranks(members, all_ranks=mirror is MirrorScope.ALL))


def _ranks(members: Sequence[Task], *, all_ranks: bool) -> list[tuple[str, int]]:
    rank_of = ranks(members)
    ranked = [
        (task.name, rank_of[task.type, task.index])
        for task in members
        if (task.type, task.index) in rank_of and saves_checkpoints(task.role)
    ]
    ranked.sort(key=lambda pair: pair[1])
    return ranked if all_ranks else ranked[:1]


class SessionExports(Part):
    """Session component that requests exports of the model from the leading task.

    A request stays open until a later export arrives, and is repeated after each restart. The job continues even if the
    request is never answered.
    """

    def ask(self, reason: str, asked_ms: int) -> None:
        """Request an export. A new request replaces an open one."""
        state, leader = self._state, self._state.leader
        if leader is None:
            state.note("export_requested", f"{reason}; the job has no task that can export a model")
            return
        open_one = state.export_request
        state.export_request = ExportRequest(asked_ms, reason, open_one.since_ms if open_one else asked_ms)
        asked = self.ask_again(leader)
        when = "" if asked else f"; {leader.name} receives the request once it runs"
        state.note("export_requested", f"{reason}{when}", data=self._request_data())

    def ask_again(self, task: Task) -> bool:
        """Repeat the open request to the leading task.

        Return False if no request is open or the leading task is not running.
        """
        request = self._state.export_request
        if request is None or task is not self._state.leader or not task.runs:
            return False
        self._state.emit(AskExport(task.name, request.asked_ms, request.reason))
        return True

    def exported(self, task: Task, export: ExportedModel) -> None:
        """Record an export that is on the store. A repeated report changes nothing."""
        state, request = self._state, self._state.export_request
        answered = _answered(request, export)
        known = state.export is not None and state.export.uri == export.uri
        if task is not self._state.leader or (known and not answered):
            return
        state.export, state.export_problem = export, ""
        if answered:
            state.export_request = None
        data = {"export": to_plain(export), **self._request_data()}
        state.note("exported", f"the model of step {export.step} is in {export.uri}", task, data)

    def failed(self, task: Task, export: ExportedModel, problem: str) -> None:
        """Record an export that could not be stored. A repeated report changes nothing."""
        state, request = self._state, self._state.export_request
        failed = f"the export of step {export.step} could not be stored: {problem}"
        if task is not self._state.leader or state.export_problem == failed:
            return
        state.export_problem = failed
        if request is not None and _answered(request, export):
            state.export_request = attrs.evolve(request, problem=failed)
        state.note("export_failed", failed, task, self._request_data())

    def committed(self, point: ResumePoint, before: Optional[ResumePoint], now: float) -> None:
        """Request an export after a committed checkpoint if it is due according to ``export.every``.

        ``before`` is the newest earlier checkpoint.
        """
        every = self._state.job.export.every
        leader = self._state.leader
        if every is None or leader is None or not leader.runs:
            return
        former = before.save if before else point.save - 1
        if point.save // every > former // every:  # save numbers continue across all applications of a training
            self.ask(f"export.every: {point.label} is on the store", round((self._state.epoch + now) * 1000))

    def _request_data(self) -> dict[str, object]:
        return {"export_request": to_plain(self._state.export_request)}


def _answered(request: Optional[ExportRequest], export: ExportedModel) -> bool:
    """Return whether the export is newer than the request. Return False without a request."""
    return request is not None and export.asked_ms >= request.asked_ms
