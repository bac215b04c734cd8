"""Restarts of user processes, from a failure to the next start.

``Restarts`` collects failures, and decides and schedules restarts. ``ProcessStarts`` stops and starts user processes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Optional

import attrs

from tony_provider.runtime.am.session import failures
from tony_provider.runtime.am.session.actions import (
    ChooseResumePoint,
    NoteFailedResume,
    NoteSoundResume,
    SendRendezvous,
    StopProcess,
)
from tony_provider.runtime.am.session.restart_policy import (
    FREE_MOVES,
    GANG,
    CommittedSave,
    NoRestart,
    Restart,
    RestartAt,
    RestartGroup,
    ResumeChoice,
    SuspectResume,
    decide,
    recognise,
)
from tony_provider.runtime.am.session.session_state import (
    Generation,
    Part,
    ProcessState,
    SessionContext,
    Task,
    reopened_record,
)
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.common.codec import to_plain
from tony_provider.runtime.common.quantities import count, some
from tony_provider.runtime.common.text import first_line
from tony_provider.runtime.jobspec.model import Preflight, in_cluster, saves_checkpoints
from tony_provider.runtime.protocol.limits import STOP_SLACK
from tony_provider.runtime.protocol.status import Failure, FailureKind, JobState, TaskState


class Restarts(Part):
    """Session component that collects failures, finds their cause, and restarts the affected tasks."""

    def __init__(self, context: SessionContext) -> None:
        super().__init__(context)
        self.held = False  # whether starts are blocked and running processes are being stopped
        self._active = {GANG: self._groups.gang}  # groups to check, by name; always contains the gang, first

    def prepare_start(self, now: float) -> None:
        """Prepare a start of the whole job: the first start, or the first after all containers were released."""
        wanted = self._containers.gang.wanted
        for group in (self._groups.gang, *map(self._groups.of, wanted)):
            group.forget_start()
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
            group.restart = Restart("its container was granted", [task], not_before=now, choice=choice)
            self._active[group.name] = group

    def record_failure(self, task: Task, failure: Failure, now: float, *, doubtful: bool = False) -> None:
        """Record the failure of a running task; see RootCause.failed. ``decide`` handles the consequences."""
        group = self._groups.of(task)
        if not group.progress.reported:  # otherwise the job has had all that it needs
            failures.note_missing(task, failure, self._state, now)
        peers = failures.peers_on_other_nodes(task, self._state) if failures.missing_on_node(failure) else ()
        group.root_cause.failed(task, failure, now, doubtful=doubtful, peers=peers)
        self._active[group.name] = group
        self.log_failure(task, failure)

    def log_failure(self, task: Task, failure: Failure) -> None:
        """Log a failure once its reason is known. If memory or the node is the reason, raise memory or change nodes."""
        self._state.note("failed", failure.message, task)
        if failure.kind is FailureKind.OUT_OF_MEMORY and self._containers.sizes.raise_memory(task.type):
            memory = self._containers.sizes.of(task.type).memory
            data = {"memory": self._containers.sizes.raised}
            self._state.note("memory_raised", f"new containers of {task.type} request {memory} MiB", data=data)
            task.needs_replacement = task.has_container
        if failure.kind is FailureKind.NODE:
            self._leave_node(task, failure)

    def _leave_node(self, task: Task, failure: Failure) -> None:
        """Move the task to another node with its restart, because its present node lacks something."""
        task.needs_replacement = task.has_container
        if task.node:
            self._containers.blame(task.node, lacks=first_line(failure.message))

    def restart(self, group: RestartGroup, reason: str, now: float) -> None:
        """Restart a group for a reason other than a failure."""
        if group.restart is None and not (group.is_gang and self._groups.gang_has_succeeded):
            self._open(group, reason, now)
            self._schedule(group, reason, now)

    def stop_all(self, reason: str, now: float) -> None:
        """Stop all processes, and start none until ``restart_all``, or until ``forget_starts`` and a later start.

        Tasks that have succeeded independently of a gang keep their state.
        """
        self.held = True
        for group in self._groups.every:
            if group.is_gang and self._groups.gang_has_succeeded:
                self._finished.do_without_the_rest(now)
                continue
            members = [task for task in group.members if self._is_to_stop(task)]
            if group.restart is None and any(self._groups.of(task) is group for task in members):
                self._halt(group, members, reason, now)

    def _is_to_stop(self, task: Task) -> bool:
        if task.done or task.waits_for_types or self._groups.preparing(task):
            return False
        return task.state is not TaskState.SUCCEEDED or self._groups.of(task).is_gang

    def restart_all(self, reason: str, now: float) -> None:
        """Restart all processes that ``stop_all`` has stopped."""
        if not self.held:
            return
        self.held = False
        for group in self._groups.every:
            restart = group.restart
            if restart is None or restart.not_before is not None or group.root_cause.pending:
                continue
            if not self._is_ending(restart):
                self._schedule(group, reason, now)

    def forget_starts(self) -> None:
        """Forget all starts that were being prepared, because all containers are released."""
        self.held = False
        for group in self._groups.every:
            group.forget_start()

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
        """Return whether ``advance`` must check this group.

        Skip a group that only waits for containers, until ``registered`` is called for it: large jobs have many
        such groups.
        """
        if group.is_gang or group.root_cause.pending:
            return True
        restart = group.restart
        return restart is not None and (restart.choice is None or any(task.key is None for task in restart.members))

    def registered(self, task: Task) -> None:
        """Have ``advance`` check the task's group, because the task's executor has registered."""
        group = self._groups.of(task)
        if group.restart:
            self._active[group.name] = group

    def _is_ending(self, restart: Restart) -> bool:
        """Return whether a restart is obsolete, because the training has succeeded and its tasks must stop."""
        finishing = self._state.phase is JobState.FINISHING
        return finishing and any(task.ending for task in restart.members)

    def _decide(self, group: RestartGroup, now: float) -> None:
        if group.is_gang and self._groups.gang_has_succeeded:
            self._do_without(group, now)
            return
        if FailureKind.STALLED in group.root_cause.kinds:
            self._open(group, group.root_cause.reason, now)  # stops the processes, which then write their stacks
        cause = group.root_cause.cause(now)
        if cause is None or cause.failure is None:
            if not group.root_cause.compares:
                self._open(group, group.root_cause.reason, now)  # whatever the cause, the other tasks cannot continue
            return
        if cause.failure.kind is FailureKind.STALLED:
            cause.failure = failures.with_stacks(cause.failure, group.members)
            self._state.note("stalled", cause.failure.message, cause)
        problem = failures.suspected_node_problem(cause, cause.failure, self._state)
        if problem and failures.node_problem_kind(problem) not in group.suspicions:
            group.suspicions.add(failures.node_problem_kind(problem))
            cause.failure = failures.as_node_failure(cause.failure, problem)
            self._leave_node(cause, cause.failure)
        if cause.failure.kind is FailureKind.NODE:
            group.moves += 1
        times = group.repeats.add(cause.failure, cause.type, _newest_step(group), now)
        resume = self._note_failed_resume(group, cause, cause.failure) if times else None
        policy, recurs = self._state.job.restart, failures.certain_to_recur(cause.failure, self._state)
        decision = decide(
            cause.failure, cause.scope, policy, group.budget, now, times=times, moves=group.moves, recurs=recurs
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
        self._schedule(group, cause.failure.message, now, decision.delay, cause.failure)

    def _note_failed_resume(self, group: RestartGroup, cause: Task, failure: Failure) -> Optional[ResumePoint]:
        """Record that a task failed without a step or a save after it resumed from a checkpoint.

        Return this checkpoint, or None. Ignore tasks that save no checkpoints: a failing evaluator must not make the
        training resume from an older checkpoint.
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
            if task.state in (TaskState.FAILED, TaskState.LOST, TaskState.REQUESTED) and not task.done:
                self._finished.do_without(task, now)

    def _open(self, group: RestartGroup, reason: str, now: float) -> None:
        """Stop the processes of a group that must restart."""
        if group.restart:
            return
        self._halt(group, group.members, reason, now)
        for task in group.members:
            self._starts.replace_container(task, now, first_line(reason))

    def _halt(self, group: RestartGroup, members: Iterable[Task], reason: str, now: float) -> None:
        """Stop these members of a group, which will restart together."""
        group.restart = Restart(first_line(reason), list(members))
        self._active[group.name] = group
        if group.is_gang and self._state.phase is JobState.RUNNING:
            self._state.enter(JobState.RESTARTING)
        stacks = FailureKind.STALLED in group.root_cause.kinds
        for task in group.restart.members:
            if self._groups.of(task) is not group:
                self._groups.of(task).forget_start()
            self._starts.stop(task, now, reason, stacks=stacks)

    def _schedule(
        self, group: RestartGroup, reason: str, now: float, delay: float = 0.0, failure: Optional[Failure] = None
    ) -> None:
        if group.restart is None:
            return
        group.root_cause.reset()
        group.restart.reason = first_line(reason)
        group.restart.not_before = now + delay
        for task in group.members:
            if task.state in (TaskState.FAILED, TaskState.LOST) and task.has_container:
                task.enter(TaskState.REGISTERED)
        self._state.restarts += 1
        self._state.restarted_after = failure and attrs.evolve(failure, message=group.restart.reason)
        what = "the gang" if group.is_gang else group.name
        wait = f" in {delay:g} s" if delay else ""
        self._state.note("restarting", f"{what} restarts{wait}: {group.restart.reason}", data=self._data(group))

    def _data(self, group: RestartGroup) -> dict[str, Any]:
        group.decided = True
        epoch = self._state.epoch
        seen = [attrs.evolve(each, time=epoch + each.time) for each in group.repeats.seen]
        return {
            "restarts": self._state.restarts,
            "restart_times": {group.name: [epoch + time for time in group.budget.times]},
            "failures": {group.name: to_plain(seen)},
            "moves": {group.name: group.moves},
            "progress": {group.name: to_plain(group.progress)},
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
            self._state.note("stepped", f"the program reported step {step}", task, data=data)

    def saved(self, save: CommittedSave, savers: Iterable[Task]) -> dict[str, Any]:
        """Record a committed checkpoint. Return the failures and restarts that it makes obsolete, for the event log.

        A group that saves its own checkpoints makes no progress by the checkpoint of another group. ``savers`` are all
        tasks whose checkpoints are stored.
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


class ProcessStarts(Part):
    """Session component that stops and starts user processes."""

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

    def repeat_orders(self, task: Task, start: int) -> None:
        """Repeat orders that a reconnected executor may have missed. ``start`` is the newest start that it received."""
        process = task.process
        if process is None or not process.runs:
            return
        if process.stop_by is None:
            if start < process.start and process.order:
                self._state.emit(attrs.evolve(process.order, starts={task.name: process.start}))
        elif start < process.start:
            process.settled = True  # its executor never received the order to start it
        else:
            self._order_stop(task, process, "repeated order")

    # ---- preparing a start -------------------------------------------------------------------------------------

    def replace_container(self, task: Task, now: float, reason: str) -> None:
        """Request another container for a task that needs it, unless the task is stopped or given up."""
        if task.ending or task.given_up:
            return
        if task.needs_replacement and not task.busy:
            self._containers.dismiss(task, now, "its container is released")
        if task.container_ended and not task.left_out:
            self._containers.replace(task, now, reason)

    def advance(self, group: RestartGroup, now: float) -> None:
        """Take the next step of the start that the group prepares."""
        restart = group.restart
        if restart is None or (not group.is_gang and self._waits_for_gang(restart)):
            return
        if restart.choice is None and self._needs_choice(group, restart):
            if _held_up(restart, lambda task: task.busy):
                return
            restart.choice = ResumeChoice(self._next_generation(group))
            names = tuple(task.name for task in restart.members)
            self._state.emit(ChooseResumePoint(restart.choice.generation, self._state.went_back, names))
        due = restart.not_before is not None and now >= restart.not_before
        if due and (restart.choice is None or restart.choice.made) and not self._lacks(restart):
            self._begin(group, restart)

    def _waits_for_gang(self, restart: Restart) -> bool:
        """Return whether a task that starts alone waits for a start of the gang. Tasks of earlier stages do not."""
        if self._groups.gang.restart is None:
            return False
        begun = self._state.generation.number > 0 and self._state.phase is not JobState.RESTARTING
        return not begun or any(self._containers.gang.brings(task) for task in restart.members)

    def _lacks(self, restart: Restart) -> bool:
        """Return whether the start must wait until a task is ready."""
        if self._state.first_come and restart is self._groups.gang.restart:
            return not any(task.ready for task in restart.members)
        return _held_up(restart, lambda task: not task.ready)

    def chosen(self, generation: int, resume: Optional[ResumePoint]) -> None:
        """Give the resume point to every group that requested it for this generation."""
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
        """Return whether a start needs a stored checkpoint. A task that restarts alone may use local checkpoints."""
        if group.is_gang:
            return True
        # All tasks use one resume point, which is not chosen yet while the gang restarts.
        is_kept = _keeps_checkpoints(restart.members) and group.suspect is None
        return self._state.phase is not JobState.RESTARTING and not is_kept

    def _next_generation(self, group: RestartGroup) -> int:
        return self._state.generation.number + (1 if group.is_gang else 0)

    # ---- starting ----------------------------------------------------------------------------------------------

    def _begin(self, group: RestartGroup, restart: Restart) -> None:
        if group.is_gang:
            takes_part = _is_ready if self._state.first_come else _takes_part
            self._begin_generation(restart, [task for task in restart.members if takes_part(task)])
        elif self._state.phase is not JobState.RESTARTING and self._knows_cluster:
            self._begin_alone(group, restart)

    @property
    def _knows_cluster(self) -> bool:
        """Whether the addresses of all members are known. Ranks depend on them, and a recovery may not know all."""
        if self._state.first_come or self._groups.gang_has_succeeded:
            return True
        addresses = self._state.generation.addresses
        begin_later = self._containers.gang.brings if self._groups.gang.restart else None
        return all(
            task.name in addresses or task.ready or (begin_later and begin_later(task))
            for task in self._groups.gang.members
            if not task.left_out and not task.waits_for_types and not task.done
        )

    def _begin_generation(self, restart: Restart, members: Sequence[Task]) -> None:
        state = self._state
        choice = restart.choice
        resume = choice.resume if choice else None
        number = state.generation.number + 1
        state.generation = Generation(number, resume)
        for task in members:
            task.left_out = False
        state.generation.without = frozenset(task.name for task in state.tasks if task.left_out)
        for task in state.members():
            if task.is_up:
                state.enter_cluster(task)
        state.enter(JobState.RUNNING)
        decided = self._begun(self._groups.gang, *map(self._groups.of, members))
        for group in self._groups.every:
            if group.restart:  # the choice belongs to the former generation, unless tasks start independently
                group.restart.choice = choice if self._state.first_come else None
        left_out = [task.name for task in state.tasks if task.left_out]
        data = {
            "generation": number,
            "resume": to_plain(resume),
            "left_out": left_out,
            "restarting": decided,
            **self._order(members, resume, keep=False),
        }
        without = f", without {some(left_out)}" if left_out else ""
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
            "process": task.start,
            "resumed": to_plain(resume) if restart.choice else "kept",
        }
        self._state.note("started_again", f"start {task.start}", task, data)

    @staticmethod
    def _begun(*groups: RestartGroup) -> dict[str, bool]:
        """Reset the groups that start now. Return the entries that end their restarts in the event log."""
        decided = {group.name: False for group in groups if group.decided}
        for group in groups:
            group.forget_start()
            group.decided = False
        return decided

    def _order(self, tasks: Sequence[Task], resume: Optional[ResumePoint], *, keep: bool) -> dict[str, object]:
        """Order the starts of tasks. Return the start numbers for the event log: the lowest, and all higher ones."""
        number = self._state.generation.number
        for task in tasks:
            task.start += 1
        starts = {task.name: task.start for task in tasks}
        order = SendRendezvous(self._state.cluster(), starts, resume, keep, self._preflight(starts))
        for task in tasks:
            resumed = task.process.resumed if keep and task.process else resume
            task.process = ProcessState(task.start, number, order, resumed)
            task.enter(TaskState.REGISTERED)
            task.failure = task.first_symptom_at = None
        self._state.emit(order)
        start = min((task.start for task in self._state.tasks), default=0)
        known: dict[str, dict[str, Any]] = {}
        for task in tasks:
            own = reopened_record(task) if task.start == start else {"start": task.start, **reopened_record(task)}
            if own:
                known[task.name] = own
        return {"start": start, "tasks": known}

    def _preflight(self, starts: Collection[str]) -> Optional[Preflight]:
        """Return what the tasks that start now check first, or None.

        The network is checked if all tasks of the cluster start together. By default, only starts after a lost
        container are checked. After a failed check, the next starts check only nodes. The number of these starts is
        limited, so that a check that fails on all nodes does not fail the job.
        """
        failure, wanted = self._state.restarted_after, self._state.job.preflight
        if wanted is None:
            kind = failure.kind if failure else None
            if kind is FailureKind.NODE:
                moves = max(self._groups.of(self._state.by_name[name]).moves for name in starts)
                return Preflight.NODE if moves < FREE_MOVES else None
            wanted = kind is FailureKind.CONTAINER_LOST
        if not wanted:
            return None
        apart = any(in_cluster(task.role) and task.name not in starts for task in self._state.members())
        return Preflight.NODE if apart else Preflight.NETWORK


def _takes_part(task: Task) -> bool:
    return not task.done and not task.waits_for_types and (task.ready or not task.left_out)


def _is_ready(task: Task) -> bool:
    return task.ready and not task.done


def _held_up(restart: Restart, holds: Callable[[Task], bool]) -> bool:
    """Return whether a member delays the start. To save time, check first the member that delayed it last."""
    for _ in restart.members:
        task = restart.members[restart.checked_from % len(restart.members)]
        if holds(task) and _takes_part(task):
            return True
        restart.checked_from = (restart.checked_from + 1) % len(restart.members)
    return False


def _keeps_checkpoints(tasks: Sequence[Task]) -> bool:
    return all(task.process is not None and task.process.end is not None for task in tasks)
