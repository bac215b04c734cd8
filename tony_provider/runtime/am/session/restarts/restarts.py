"""From a failure to the next start: stop processes, decide, and prepare the restart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Optional

import attrs

from tony_provider.runtime.am.session.actions import NoteFailedResume, NoteSoundResume
from tony_provider.runtime.am.session.containers.containers import Containers
from tony_provider.runtime.am.session.job_completion import JobCompletion
from tony_provider.runtime.am.session.restarts import failures, node_faults
from tony_provider.runtime.am.session.restarts.finished_tasks import FinishedTasks
from tony_provider.runtime.am.session.restarts.process_starts import ProcessStarts
from tony_provider.runtime.am.session.restarts.progress import CommittedSave
from tony_provider.runtime.am.session.restarts.repeated_failures import recognise
from tony_provider.runtime.am.session.restarts.restart_decision import NoRestart, RestartAt, decide
from tony_provider.runtime.am.session.restarts.restart_groups import (
    GANG,
    Restart,
    RestartGroup,
    RestartGroups,
    ResumeChoice,
    SuspectResume,
)
from tony_provider.runtime.am.session.restarts.stall_stacks import with_stacks
from tony_provider.runtime.am.session.state.session_state import SessionState
from tony_provider.runtime.am.session.state.task import Task
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.protocol.status import Failure, FailureKind, JobState, TaskState
from tony_provider.runtime.ranks import saves_checkpoints
from tony_provider.runtime.text import first_line


class Restarts:
    """The part of the session that collects failures, finds their cause, and restarts the affected tasks.

    Times are the session's, in seconds.
    """

    def __init__(
        self,
        state: SessionState,
        containers: Containers,
        completion: JobCompletion,
        groups: RestartGroups,
        starts: ProcessStarts,
        finished: FinishedTasks,
    ) -> None:
        self._state = state
        self._containers = containers
        self._completion = completion
        self._groups = groups
        self._starts = starts
        self._finished = finished
        self.held = False  # no process starts, and running processes are being stopped
        self._active = {GANG: groups.gang}  # and other groups with pending work; the gang goes first

    def prepare_start(self, now: float) -> None:
        """Prepare a start of the whole job: the first start, or the first after all containers were released."""
        wanted = self._containers.gang.wanted
        for group in (self._groups.gang, *map(self._groups.of, wanted)):
            group.rest()
        self._groups.gang.restart = Restart("the job starts", wanted, not_before=now)
        self._active = {GANG: self._groups.gang, **self._active}
        if self._state.first_come:
            self.begin_each(wanted, now)

    def begin_each(self, tasks: Iterable[Task], now: float) -> None:
        """Start each of these tasks for the first time as soon as its container is ready."""
        generation = self._state.generation
        for task in tasks:
            group = self._groups.of(task)
            choice = ResumeChoice(generation.number, made=True, resume=generation.resume)
            group.restart = Restart("its container is there", [task], not_before=now, choice=choice)
            self._active[group.name] = group

    def trouble(self, task: Task, failure: Failure, now: float, *, doubtful: bool = False) -> None:
        """Record the failure of a running task; see RootCause.failed. ``check`` handles the consequences."""
        group = self._groups.of(task)
        peers = node_faults.peers(task, self._state) if node_faults.lacking(failure) else ()
        group.root_cause.failed(task, failure, now, doubtful=doubtful, peers=peers)
        self._active[group.name] = group
        self.know_failure(task, failure)

    def know_failure(self, task: Task, failure: Failure) -> None:
        """Log why a task has failed: at once, or when a doubtful failure is explained."""
        self._state.note("failed", failure.message, task)
        if failure.kind is FailureKind.OUT_OF_MEMORY and self._containers.sizes.raise_memory(task.type):
            memory = self._containers.sizes.of(task.type).memory
            data = {"memory": self._containers.sizes.raised}
            self._state.note("memory_raised", f"containers of {task.type} get {memory} MiB from now on", data=data)
            task.unfit = task.has_container
        if failure.kind is FailureKind.NODE:
            self._leave_node(task, failure)

    def _leave_node(self, task: Task, failure: Failure) -> None:
        """Have the task restart in another container on another node, because its node lacks something."""
        task.unfit = task.has_container
        if task.node:
            self._containers.blame(task.node, lacks=first_line(failure.message))

    def again(self, group: RestartGroup, reason: str, now: float) -> None:
        """Restart a group for a reason other than a failure."""
        if group.restart is None and not (group is self._groups.gang and self._groups.gang_has_succeeded):
            self._open(group, reason, now)
            self._schedule(group, reason, now)

    def hold(self, reason: str, now: float) -> None:
        """Stop all processes, and start none until ``let_go``, or until ``rest`` and a later start.

        Tasks that have succeeded independently of a gang keep their state.
        """
        self.held = True
        for group in self._groups.every:
            if group is self._groups.gang and self._groups.gang_has_succeeded:
                self._finished.do_without_the_rest(now)
                continue
            members = [task for task in group.members if self._is_to_stop(task)]
            if group.restart is None and any(self._groups.of(task) is group for task in members):
                self._halt(group, members, reason, now)

    def _is_to_stop(self, task: Task) -> bool:
        if task.over or task.waits or self._groups.preparing(task):
            return False
        return task.state is not TaskState.SUCCEEDED or self._groups.of(task) is self._groups.gang

    def let_go(self, reason: str, now: float) -> None:
        """Restart all processes that ``hold`` has stopped."""
        if not self.held:
            return
        self.held = False
        for group in self._groups.every:
            restart = group.restart
            if restart is None or restart.not_before is not None or group.root_cause.pending:
                continue
            if not self._is_ending(restart):
                self._schedule(group, reason, now)

    def rest(self) -> None:
        """Forget all starts that were being prepared, because all containers are released."""
        self.held = False
        for group in self._groups.every:
            group.rest()

    def give_up(self, task: Task, failure: Failure, now: float) -> None:
        """Continue without this task, or end the job."""
        if self._finished.tolerates(task):
            self._finished.give_up(task, failure, now)
        else:
            why = self._finished.too_many(task)
            self._completion.fail(failures.given_up(failure, why, permanent=failure.permanent), now)

    @property
    def undecided(self) -> bool:
        """Whether a failure waits for a decision."""
        return any(group.root_cause.pending for group in self._active.values())

    def decide(self, now: float) -> None:
        """Decide about all pending failures."""
        for group in list(self._active.values()):
            if group.root_cause.pending:
                self._decide(group, now)
            if self._state.verdict:
                return

    def advance(self, now: float) -> None:
        """Take the next steps of the starts that are being prepared."""
        for group in list(self._active.values()):
            if group.restart and not self.held and not self._is_ending(group.restart):
                self._starts.advance(group, now)
        self._active = {name: group for name, group in self._active.items() if self._is_under_way(group)}

    def _is_under_way(self, group: RestartGroup) -> bool:
        """Return whether a group may continue before ``has_come``. Most tasks of a large job wait for a container."""
        if group is self._groups.gang or group.root_cause.pending:
            return True
        restart = group.restart
        return restart is not None and (restart.choice is None or any(task.key is None for task in restart.members))

    def has_come(self, task: Task) -> None:
        """Record that the executor of a task has registered, which may be about to start."""
        group = self._groups.of(task)
        if group.restart:
            self._active[group.name] = group

    def _is_ending(self, restart: Restart) -> bool:
        """Return whether a restart is obsolete, because the training has succeeded and its tasks must stop."""
        finishing = self._state.phase is JobState.FINISHING
        return finishing and any(task.told_to_stop for task in restart.members)

    def _decide(self, group: RestartGroup, now: float) -> None:
        if group is self._groups.gang and self._groups.gang_has_succeeded:
            self._do_without(group, now)
            return
        if FailureKind.STALLED in group.root_cause.kinds:
            self._open(group, group.root_cause.reason, now)  # a stopped process writes its stacks
        cause = group.root_cause.cause(now)
        if cause is None or cause.failure is None:
            if not group.root_cause.compares:
                self._open(group, group.root_cause.reason, now)  # the other tasks cannot continue, for any cause
            return
        if cause.failure.kind is FailureKind.STALLED:
            cause.failure = with_stacks(cause.failure, group.members)
            self._state.note("stalled", cause.failure.message, cause)
        problem = node_faults.suspected(cause, cause.failure, self._state)
        if problem and node_faults.kind_of(problem) not in group.suspicions:
            group.suspicions.add(node_faults.kind_of(problem))
            cause.failure = node_faults.of_node(cause.failure, problem)
            self._leave_node(cause, cause.failure)
        if cause.failure.kind is FailureKind.NODE:
            group.moves += 1
        times = group.repeats.add(cause.failure, cause.type, _newest_step(group), now)
        resume = self._note_failed_resume(group, cause, cause.failure) if times else None
        decision = decide(
            cause.failure, cause.scope, self._state.job.restart, group.budget, now, times=times, moves=group.moves
        )
        if isinstance(decision, NoRestart) and decision.repeated and resume and not self._state.went_back:
            delay = group.budget.spend(now)
            if delay is not None:
                group.suspect = SuspectResume(cause, failures.given_up(cause.failure, decision.why), resume.uri)
                decision = RestartAt(delay)
        if isinstance(decision, NoRestart):
            self.give_up(cause, failures.given_up(cause.failure, decision.why, permanent=decision.permanent), now)
            return
        self._open(group, cause.failure.message, now)
        group.damaged = 0
        self._schedule(group, cause.failure.message, now, decision.delay)

    def _note_failed_resume(self, group: RestartGroup, cause: Task, failure: Failure) -> Optional[ResumePoint]:
        """Record the checkpoint from which a process resumed if neither a step nor a save followed, and return it.

        Only tasks that save count: a failing evaluator must not send the training back.
        """
        resume, state = self._resume_of(cause), self._state
        if not saves_checkpoints(cause.role) or resume is None:
            return None
        has_stepped = any(task.process and task.process.stepped for task in group.members)
        has_saved = state.checkpoint is not None and state.checkpoint.save > resume.save
        kind = recognise(failure, cause.type)
        if has_stepped or has_saved or kind is None:
            return None
        state.emit(NoteFailedResume(resume, kind, first_line(failure.message)))
        return resume

    def _resume_of(self, task: Task) -> Optional[ResumePoint]:
        """Return the stored checkpoint from which a task's process resumed, or None."""
        process = task.process
        resume = process.resumed if process and process.order else self._state.generation.resume
        return resume if resume and resume.uri else None

    def _do_without(self, gang: RestartGroup, now: float) -> None:
        """Release failed parameter servers of a gang whose other tasks have succeeded."""
        gang.root_cause.reset()
        for task in gang.members:
            if task.state in (TaskState.FAILED, TaskState.LOST, TaskState.REQUESTED) and not task.over:
                self._finished.do_without(task, now)

    def _open(self, group: RestartGroup, reason: str, now: float) -> None:
        """Stop the processes of a group that must restart."""
        if group.restart:
            return
        self._halt(group, group.members, reason, now)
        for task in group.members:
            self._starts.renew(task, now, first_line(reason))

    def _halt(self, group: RestartGroup, members: Iterable[Task], reason: str, now: float) -> None:
        """Stop these members of a group, which will restart together."""
        group.restart = Restart(first_line(reason), list(members))
        self._active[group.name] = group
        if group is self._groups.gang and self._state.phase is JobState.RUNNING:
            self._state.enter(JobState.RESTARTING)
        stacks = FailureKind.STALLED in group.root_cause.kinds
        for task in group.restart.members:
            if self._groups.of(task) is not group:
                self._groups.of(task).rest()
            self._starts.stop(task, now, reason, stacks=stacks)

    def _schedule(self, group: RestartGroup, reason: str, now: float, delay: float = 0.0) -> None:
        if group.restart is None:
            return
        group.root_cause.reset()
        group.restart.reason = first_line(reason)
        group.restart.not_before = now + delay
        for task in group.members:
            if task.state in (TaskState.FAILED, TaskState.LOST) and task.has_container:
                task.enter(TaskState.REGISTERED)
        self._state.restarts += 1
        what = "the gang" if group.name == GANG else group.name
        wait = f" in {delay:g} s" if delay else ""
        self._state.note("restarting", f"{what} starts again{wait}: {group.restart.reason}", data=self._data(group))

    def _data(self, group: RestartGroup) -> dict[str, Any]:
        group.decided = True
        epoch = self._state.epoch
        seen = [attrs.asdict(attrs.evolve(each, time=epoch + each.time)) for each in group.repeats.seen]
        return {
            "restarts": self._state.restarts,
            "restart_times": {group.name: [epoch + time for time in group.budget.times]},
            "failures": {group.name: seen},
            "moves": {group.name: group.moves},
            "progress": {group.name: group.progress.plain},
            "restarting": {group.name: True},
        }

    # ---- progress ----------------------------------------------------------------------------------------------

    def stepped(self, task: Task, step: int) -> None:
        """Record that a task's process has reported a step."""
        group = self._groups.of(task)
        if task.process and not task.process.stepped:
            task.process.stepped = True
            if (resume := self._resume_of(task)) and saves_checkpoints(task.role):
                self._state.emit(NoteSoundResume(resume))
        if group.progress.has_reported(step) and (data := self._forget([group])):
            self._state.note("stepped", f"it took step {step}", task, data=data)

    def saved(self, save: CommittedSave, savers: Iterable[Task]) -> dict[str, Any]:
        """Record a committed checkpoint. Return the failures and restarts that it makes obsolete, for the event log.

        It is no progress of other groups that save by themselves. ``savers``: the tasks whose checkpoints are stored.
        """
        others = {self._groups.of(task).name for task in savers if task.name not in save.tasks}
        others -= {self._groups.of(self._state.by_name[name]).name for name in save.tasks}
        groups = [group for group in self._groups.every if group.name not in others]
        return self._forget([group for group in groups if group.progress.has_saved(save)])

    def _forget(self, groups: Sequence[RestartGroup]) -> dict[str, Any]:
        """Forget failures and restarts of groups that have made progress. Return the change for the event log."""
        spent = [group for group in groups if group.has_failed]
        if groups:
            self._state.went_back = ""
        for group in spent:
            group.budget.progress()
            group.repeats.forget()
            group.damaged = group.moves = 0
            group.suspicions.clear()
        if not spent:
            return {}
        nothing: dict[str, list[object]] = {group.name: [] for group in spent}
        moves = {group.name: 0 for group in spent}
        return {"restart_times": nothing, "failures": nothing, "moves": moves, "went_back": ""}


def _newest_step(group: RestartGroup) -> Optional[int]:
    """Return the highest step that the present processes of a group have reported, or None."""
    processes = (task.process for task in group.members)
    return max((process.step for process in processes if process and process.stepped and process.step), default=None)
