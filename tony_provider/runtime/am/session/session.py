"""State machine of a job: states of its tasks, next actions, and the job's end.

The session receives events with the time of a monotonic clock in seconds, and returns lists of actions. It performs no
I/O itself, so tests can try every order of events. ``violations`` checks the invariants that hold between two events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Optional, TypeVar

from tony_provider.runtime.am.resource_manager import (
    Allocated,
    Completed,
    Largest,
    LaunchFailed,
    NodeLeaving,
    NodesCounted,
    NotPlaced,
    Preempting,
    Room,
)
from tony_provider.runtime.am.session.actions import Action, Verdict
from tony_provider.runtime.am.session.checkpoints import SessionCheckpoints, SessionExports
from tony_provider.runtime.am.session.completion import EarlyEnds, FinishedTasks, JobCompletion
from tony_provider.runtime.am.session.containers import Containers
from tony_provider.runtime.am.session.gang import Stages
from tony_provider.runtime.am.session.recovery import Recovery
from tony_provider.runtime.am.session.reports import ContainerFailures, ExecutorReports
from tony_provider.runtime.am.session.resizing import Elastic, Resizing, SpareRoom
from tony_provider.runtime.am.session.resource_usage import TimeLedger, TypeLedger
from tony_provider.runtime.am.session.restart_policy import RestartGroups
from tony_provider.runtime.am.session.restarts import ProcessStarts, Restarts
from tony_provider.runtime.am.session.session_events import (
    CheckpointBlocked,
    CheckpointCommitted,
    CheckpointOrder,
    Disconnected,
    Event,
    EventsWritten,
    ExecutorLeft,
    ExecutorRegistered,
    ExportRequested,
    FromTask,
    JobFailed,
    LastOutput,
    ModelExport,
    OutputsPublished,
    PreparationFailed,
    ProcessStacks,
    ProcessStarted,
    QuotaWarning,
    Recovered,
    ResizeOrder,
    ResumeChosen,
    ResumeNotChosen,
    ResumeOrder,
    Started,
    StopOrder,
    SuspendOrder,
    Tick,
)
from tony_provider.runtime.am.session.session_state import (
    Heartbeat,
    ProcessEnd,
    SessionContext,
    SessionState,
    Settlement,
    Task,
)
from tony_provider.runtime.am.session.sizing import AdvanceNotices, Suspension, TypeSizes
from tony_provider.runtime.am.session.timeouts import Liveness, Timers
from tony_provider.runtime.common.text import printable
from tony_provider.runtime.frameworks.base import Framework
from tony_provider.runtime.jobspec.model import JobSpec
from tony_provider.runtime.jobspec.opening_hours import ZoneOffset
from tony_provider.runtime.protocol.status import Failure, JobState, TaskState, TaskStory

_HOLDING = (TaskState.STARTING, TaskState.REGISTERED, TaskState.RUNNING)


def violations(session: SessionContext) -> list[str]:
    """Return every invariant that does not hold, as text."""
    found = [problem for problem, exists in _of_job(session).items() if exists]
    for task in session.state.by_name.values():
        found += [f"{task.name} {problem}" for problem, exists in _of_task(session, task).items() if exists]
    return found


def _of_job(session: SessionContext) -> Mapping[str, object]:
    """Return the possible problems of the job. A true value means that the job has the problem."""
    state, containers, groups = session.state, session.containers, session.groups.every
    suspended, requested = state.phase is JobState.SUSPENDED, containers.gang.outstanding
    return {
        "a container belongs to a task that does not hold it": [
            container_id
            for container_id, task in containers.by_id.items()
            if not task.has_container or task.container is None or task.container.id != container_id
        ],
        "no task waits for a requested container": [
            key for key in requested if (task := containers.gang.asked(key)) is None or task.key != key
        ],
        "the number of tasks of a type is out of its limits": [
            name
            for name, tasks in state.of_type.items()
            for spec in [state.job.tasks[name]]
            if not spec.least_instances <= len(session.sizes.present(name)) <= len(tasks) <= spec.most_instances
        ],
        "restart.budget is exceeded": any(len(group.budget.times) > state.job.restart.budget for group in groups),
        "a task is about to start that the job does not have": any(
            not state.has(task) for group in groups if group.restart for task in group.restart.members
        ),
        "the job is suspended without a reason": suspended and session.suspension.reason is None,
        "the job has another state than its verdict": state.finished
        and (state.verdict is None or state.phase.value != state.verdict.status.value),
        "the job requests containers that it does not need": requested and (suspended or state.finished),
        "actions were not taken": state.out,
    }


def _of_task(session: SessionContext, task: Task) -> Mapping[str, object]:
    """Return the possible problems of a task. A true value means that the task has the problem."""
    state, process, containers = session.state, task.process, session.containers
    holds = task.has_container or task.key is not None
    recovering = state.phase is JobState.RECOVERING  # lost containers are handled once all executors are back
    return {
        "has a container that does not belong to it": task.has_container
        and (task.container is None or containers.task_in(task.container.id) is not task),
        "waits for a container that was not requested for it": task.key is not None
        and (containers.gang.asked(task.key) is not task or task.state is not TaskState.REQUESTED),
        "needs a container and has none": task.state in _HOLDING and not task.has_container and not recovering,
        "is RUNNING without a user process": task.state is TaskState.RUNNING
        and (process is None or process.started_at is None)
        and not recovering,
        "has a start that was not counted": process and process.start > task.start,
        "runs another start than its newest one": process
        and process.order
        and process.runs
        and process.start != task.start,
        "holds or requests a container that it does not need": holds
        and (
            task.done
            or task.waits_for_types
            or task.unrequested
            or not state.has(task)
            or state.phase is JobState.SUSPENDED
        ),
        "is unrequested and counts as present": task.unrequested
        and not (task.left_out and (task.state is TaskState.LOST or state.verdict)),
        "has not ended although the job has": state.finished and not task.ended and state.has(task),
        "is counted wrongly among the successes": (task.state is TaskState.SUCCEEDED and task.decisive)
        != (task.name in state.successes),
    }


class Session(SessionContext):
    """The state machine of one job. ``handle`` processes events, and the other public methods only read the state.

    ``now`` is the session's time, in seconds of a monotonic clock.
    """

    def __init__(
        self,
        job: JobSpec,
        framework: Framework,
        *,
        jitter: Callable[[], float],
        epoch: float = 0.0,
        zone_offsets: Sequence[ZoneOffset] = (),
        avoided_nodes: Sequence[str] = (),
    ) -> None:
        """``jitter`` returns random numbers from 0 to 1.

        ``epoch`` is the session's time 0 in seconds since the Unix epoch.

        ``zone_offsets`` are the UTC offsets of the time zone of the job's windows. ``avoided_nodes`` have lost
        containers of other applications.
        """
        self.framework, self.zone_offsets = framework, zone_offsets
        self.state = SessionState(job, framework, epoch)
        self.containers = Containers(self.state, jitter, avoided_nodes)
        self.groups = RestartGroups(job, self.state.tasks)
        self.times = TimeLedger(self.state)
        self.use = TypeLedger(self.state, self.containers.sizes)
        self.sizes = TypeSizes(self)
        self.completion = JobCompletion(self)
        self.early_ends = EarlyEnds(self)
        self.finished_tasks = FinishedTasks(self)
        self.starts = ProcessStarts(self)
        self.restarts = Restarts(self)
        self.container_failures = ContainerFailures(self)
        self.reports = ExecutorReports(self)
        self.checkpoints = SessionCheckpoints(self)
        self.exports = SessionExports(self)
        self.notices = AdvanceNotices(self)
        self.stages = Stages(self)
        self.suspension = Suspension(self)
        self.elastic = Elastic(self)
        self.resizing = Resizing(self)
        self.spare_room = SpareRoom(self)
        self.liveness = Liveness(self)
        self.timers = Timers(self)
        self.recovery = Recovery(self)

    @property
    def tasks(self) -> Sequence[Task]:
        """All tasks, in the order of the specified types and then by index."""
        return self.state.tasks

    @property
    def phase(self) -> JobState:
        """The present state of the job, or its final state."""
        return self.state.phase

    @property
    def generation(self) -> int:
        """The number of the current generation. Each rendezvous of the gang begins a new generation."""
        return self.state.generation.number

    @property
    def without(self) -> frozenset[str]:
        """Names of the tasks that do not take part in the current generation."""
        return self.state.generation.without

    @property
    def verdict(self) -> Optional[Verdict]:
        """The result of the job once it is known. Tasks may still be ending."""
        return self.state.verdict

    @property
    def finished(self) -> bool:
        """Whether the job is over: every task is stopped or given up."""
        return self.state.finished

    def task(self, name: str) -> Optional[Task]:
        """Return the task with this name, such as worker:0, or None."""
        return self.state.by_name.get(name)

    def refusal(self, name: str, attempt: int, container_id: str) -> Optional[str]:
        """Return the reason why this executor is rejected, or None if it is accepted."""
        task = self.task(name)
        if task is None:
            return f"the job has no task {name}"
        current = self._current(name, attempt)
        if current and current.container and current.container.id == container_id:
            return None
        if self.phase is JobState.RECOVERING:
            return self.recovery.refusal(task, attempt, container_id)
        return f"attempt {attempt} of {name} in {container_id} was replaced or ended"

    def commit_refusal(self, name: str, attempt: int, generation: int, start: int) -> Optional[str]:
        """Return the reason why this start of this task may not commit a checkpoint, or None if it may."""
        task = self._current(name, attempt)
        if task is None:
            return f"attempt {attempt} of {name} was replaced or ended"
        return self.checkpoints.commit_refusal(task, generation, start)

    def process_runs(self, name: str, attempt: int, start: int) -> bool:
        """Return whether this start of the task's user process is its newest and, as far as is known, has not ended."""
        task = self._current(name, attempt)
        process = task.process if task else None
        return process is not None and process.start == start and process.runs

    def mirror_ranks(self) -> Sequence[tuple[str, int]]:
        """Return names and ranks of the tasks of the current generation whose checkpoints are copied to the store."""
        return self.checkpoints.ranks()

    def checkpoint_groups(self) -> dict[str, str]:
        """Return the restart group of each task whose checkpoints are stored. Groups have independent checkpoints."""
        return {name: self.checkpoints.group_of(self.state.by_name[name]) for name, _ in self.mirror_ranks()}

    def still_copies(self, name: str) -> bool:
        """Return whether the newest process of this task may still store a checkpoint."""
        task = self.task(name)
        return task is not None and task.busy

    def validate(self) -> list[str]:
        """Return the violated invariants. Between two events, the list is empty unless the session has a bug."""
        return violations(self)

    def story(self, name: str) -> Optional[TaskStory]:
        """Return the newest transitions of the task with this name, or None if the job has no such task."""
        task = self.task(name)
        return TaskStory(name, list(task.story.transitions)) if task else None

    # ---- events ------------------------------------------------------------------------------------------------

    def handle(self, event: Event, now: float) -> list[Action]:
        """Handle an event, and return the actions to carry out, in their order."""
        kind: type = type(event.report if isinstance(event, FromTask) else event)
        self.state.occasion.now, self.state.occasion.event = now, kind
        if isinstance(event, FromTask):
            if task := self._current(event.task, event.attempt):
                _REPORTS[kind](self, task, event.report, now)
        elif self._is_void(event):
            return []
        else:
            _EVENTS[kind](self, event, now)
        if kind not in _WITHOUT_FOLLOW_UP:
            self._follow_up(now)
        return self.state.taken()

    def _is_void(self, event: Event) -> bool:
        """Return whether the event is a tick of a job that is over, or the registration of a rejected executor."""
        if isinstance(event, ExecutorRegistered):
            return self.refusal(event.task, event.attempt, event.container_id) is not None
        return isinstance(event, Tick) and self.state.finished

    def _start(self, event: Started, now: float) -> None:
        self._begin(now, now, event.largest)
        self.suspension.check_windows(now)
        if self.suspension.reason is None:
            self.containers.ask_for(self.state.tasks, now)
            self.restarts.prepare_start(now)

    def _recover(self, event: Recovered, now: float) -> None:
        history = event.history
        started = now if history.started is None else history.started - self.state.epoch
        self._begin(min(started, now), now, event.largest)
        if event.former:
            self.times.take_over(event.former, now)
            self.use.take_over(event.former, now)
        self.recovery.begin(event.containers, history, now)
        if history.verdict is None:
            self.suspension.check_windows(now)
        else:
            self.recovery.leave_to_end(now)
            self.completion.take_over(history.verdict, history.parts, now)

    def _begin(self, started: float, now: float, largest: Optional[Largest]) -> None:
        self.timers.start(started)
        self.times.begin(now)
        self.use.begin(now)
        if largest:
            self.containers.sizes.limit(largest)

    def _tick(self, _: Tick, now: float) -> None:
        self.use.tick(now)
        self.timers.tick(now)

    def _completed(self, event: Completed, now: float) -> None:
        self.recovery.ended(event.container_id)
        self.container_failures.completed(event.container_id, event.exit, printable(event.diagnostics), now)

    def _preempting(self, event: Preempting, now: float) -> None:
        self.spare_room.disturbed()
        self.notices.preempting(event.container_ids, event.seconds)

    def _node_leaving(self, event: NodeLeaving, now: float) -> None:
        self.spare_room.disturbed()
        self.notices.node_leaving(event.node, event.seconds)

    def _stop(self, event: StopOrder, now: float) -> None:
        if self.state.verdict:
            self.completion.hurry(now, event.grace)
        else:
            self.completion.kill(event.reason, now, event.grace)

    def _committed(self, event: CheckpointCommitted, now: float) -> None:
        self.times.copied(event.copy_seconds)
        before = self.state.checkpoint or self.state.generation.resume
        self.checkpoints.committed(event.point, event.save, now)
        self.elastic.check(now, committed=True)
        self.exports.committed(event.point, before, now)

    def _warn_of_quota(self, event: QuotaWarning, now: float) -> None:
        self.state.quota_warning = event.text
        if event.text:
            self.state.note("quota", event.text)

    def _block_checkpoints(self, event: CheckpointBlocked, now: float) -> None:
        self.state.checkpoint_problem = event.reason

    def _register(self, event: ExecutorRegistered, now: float) -> None:
        task = self.state.by_name[event.task]
        if self.recovery.waits_for(event.container_id):
            self.recovery.adopt(
                task,
                event.attempt,
                event.container_id,
                event.host,
                event.ports,
                event.generation,
                event.start,
                event.resumed,
                now,
            )
        self.reports.registered(task, event.host, event.ports, event.start, now)
        self.exports.ask_again(task)

    # ---- reports of tasks --------------------------------------------------------------------------------------

    def _heartbeat(self, task: Task, beat: Heartbeat, now: float) -> None:
        self.use.heard(task, beat, now)
        self.reports.heartbeat(task, beat, now)
        if beat.progress:
            self.times.reported(task, beat.progress, now)

    def _process_started(self, task: Task, report: ProcessStarted, now: float) -> None:
        self.reports.process_started(task, report.start, now)
        self.times.started(task, now)
        self.exports.ask_again(task)

    def _process_ended(self, task: Task, end: ProcessEnd, now: float) -> None:
        if end.progress:
            self.times.reported(task, end.progress, now)
        self.reports.process_ended(task, end, now)

    def _keep_stacks(self, task: Task, report: ProcessStacks, now: float) -> None:
        if task.process and task.process.start == report.start:
            task.process.stacks = report.stacks

    def _keep_last_output(self, task: Task, report: LastOutput, now: float) -> None:
        task.last_words = report.tail

    def _exported(self, task: Task, report: ModelExport, now: float) -> None:
        if report.problem:
            self.exports.failed(task, report.export, report.problem)
        else:
            self.exports.exported(task, report.export)

    def _current(self, name: str, attempt: int) -> Optional[Task]:
        """Return the task if ``attempt`` is its newest one and the container has not ended, or None."""
        task = self.task(name)
        if task is None or task.attempt != attempt or not task.has_container:
            return None
        return task

    def _follow_up(self, now: float) -> None:
        """Apply the consequences of the new state. The order of these steps is part of the session's behaviour."""
        state = self.state
        self.recovery.check(now)
        if state.verdict is None and state.phase is not JobState.RECOVERING:
            self.suspension.check(now)
            self.restarts.decide(now)
        if state.verdict is None and state.phase is not JobState.RECOVERING:
            self.resizing.check(now)
            self.restarts.advance(now)
            self.resizing.note_finished()
        # Not only in RUNNING: while a later stage waits for containers, the deciding tasks may end without it.
        if state.verdict is None and state.phase is not JobState.RECOVERING and not self.restarts.undecided:
            self.completion.conclude_if_decided(now)
            self.stages.check(now)
            self.early_ends.check(now)
        self.completion.finish_if_stopped()
        self.times.update(now)


def replay(session: Session, events: Iterable[tuple[Event, float]]) -> Session:
    """Have a new session handle recorded events with their times, and return the session.

    The new session reaches the state of the recorded session if job, framework, epoch, zone offsets, and the numbers
    of ``jitter`` are equal.
    """
    for event, now in events:
        session.handle(event, now)
    return session


E = TypeVar("E")


def _on(kind: type[E], handle: Callable[[Session, E, float], object]) -> tuple[type, Callable[..., object]]:
    return kind, handle


def _of(kind: type[E], handle: Callable[[Session, Task, E, float], object]) -> tuple[type, Callable[..., object]]:
    return kind, handle


_EVENTS: Mapping[type, Callable[..., object]] = dict(
    [
        _on(Started, Session._start),
        _on(Recovered, Session._recover),
        _on(Tick, Session._tick),
        _on(JobFailed, lambda session, event, now: session.completion.fail(Failure(event.kind, event.message), now)),
        _on(Allocated, lambda session, event, now: session.containers.granted(event.key, event.container, now)),
        _on(NotPlaced, lambda session, event, now: session.containers.not_placed(event.key, event.reason)),
        _on(
            LaunchFailed,
            lambda session, event, now: session.container_failures.not_launched(
                event.container_id, printable(event.reason), now
            ),
        ),
        _on(Completed, Session._completed),
        _on(Preempting, Session._preempting),
        _on(NodeLeaving, Session._node_leaving),
        _on(NodesCounted, lambda session, event, now: session.containers.nodes_counted(event.nodes)),
        _on(Room, lambda session, event, now: session.spare_room.probed(event, now)),
        _on(StopOrder, Session._stop),
        _on(CheckpointOrder, lambda session, event, now: session.notices.checkpoint_requested(event.reason)),
        _on(ExportRequested, lambda session, event, now: session.exports.ask(event.reason, event.asked_ms)),
        _on(SuspendOrder, lambda session, event, now: session.suspension.ask(event.reason)),
        _on(ResumeOrder, lambda session, event, now: session.suspension.resume(event.reason, now)),
        _on(ResizeOrder, lambda session, event, now: session.resizing.ask(event.tasks, event.reason, now)),
        _on(
            ResumeChosen,
            lambda session, event, now: session.checkpoints.chosen(event.generation, event.resume, event.not_from, now),
        ),
        _on(
            ResumeNotChosen,
            lambda session, event, now: session.checkpoints.not_chosen(event.generation, event.reason, now),
        ),
        _on(CheckpointCommitted, Session._committed),
        _on(CheckpointBlocked, Session._block_checkpoints),
        _on(QuotaWarning, Session._warn_of_quota),
        _on(OutputsPublished, lambda session, event, now: session.completion.outputs_published(event.problem)),
        _on(ExecutorRegistered, Session._register),
        _on(ExecutorLeft, lambda session, event, now: session.containers.shutdowns.left(event.container_id)),
    ]
)
_REPORTS: Mapping[type, Callable[..., object]] = dict(
    [
        _of(Heartbeat, Session._heartbeat),
        _of(ProcessStarted, Session._process_started),
        _of(ProcessEnd, Session._process_ended),
        _of(Settlement, lambda session, task, report, now: session.reports.settled(task, report, now)),
        _of(ProcessStacks, Session._keep_stacks),
        _of(LastOutput, Session._keep_last_output),
        _of(
            PreparationFailed,
            lambda session, task, report, now: session.checkpoints.not_prepared(task, report, now),
        ),
        _of(ModelExport, Session._exported),
        _of(Disconnected, lambda session, task, report, now: session.reports.disconnected(task, now)),
        _of(EventsWritten, lambda session, task, report, now: session.finished_tasks.release(task, now)),
    ]
)
_WITHOUT_FOLLOW_UP = frozenset({Heartbeat, NodesCounted, Room})
"""Frequent events after which ``_follow_up`` is skipped. The next tick applies their consequences."""
