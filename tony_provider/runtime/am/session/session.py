"""State machine of a job: states of its tasks, next actions, and the job's end.

Inputs are method calls with the time in seconds of a monotonic clock. Outputs are lists of actions. The session
performs no input or output, so tests can try every order of events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Optional

from tony_provider.runtime.am.resource_manager import Container, ContainerExit, Largest, Room
from tony_provider.runtime.am.session.actions import Action, Verdict
from tony_provider.runtime.am.session.checkpoints import SessionCheckpoints, SessionExports
from tony_provider.runtime.am.session.completion import EarlyEnds, FinishedTasks, JobCompletion
from tony_provider.runtime.am.session.containers import Containers
from tony_provider.runtime.am.session.context import SessionContext
from tony_provider.runtime.am.session.recovery import History, Recovery
from tony_provider.runtime.am.session.reports import ContainerFailures, ExecutorReports
from tony_provider.runtime.am.session.resizing import Elastic, Resizing, SpareRoom
from tony_provider.runtime.am.session.restart_policy import CommittedSave, RestartGroups
from tony_provider.runtime.am.session.restarts import ProcessStarts, Restarts
from tony_provider.runtime.am.session.session_state import (
    Heartbeat,
    ProcessEnd,
    ProcessStack,
    SessionState,
    Settlement,
    Task,
)
from tony_provider.runtime.am.session.sizing import AdvanceNotices, TypeSizes
from tony_provider.runtime.am.session.stages import Stages
from tony_provider.runtime.am.session.suspension import OpeningTimes, Suspension
from tony_provider.runtime.am.session.timeouts import Liveness, Timers
from tony_provider.runtime.am.session.usage import TimeLedger, TypeLedger
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.frameworks.base import Framework
from tony_provider.runtime.jobspec.model import JobSpec
from tony_provider.runtime.jobspec.opening_hours import ZoneOffset
from tony_provider.runtime.protocol.status import ExportedModel, Failure, FailureKind, JobState, JobStatus


class Session(SessionContext):
    """The state machine of one job. Each method handles an event and returns the actions to carry out.

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
    ) -> None:
        """``jitter`` returns random numbers from 0 to 1.

        ``epoch`` is the session's time 0 in seconds since the Unix epoch.

        ``zone_offsets`` belong to the time zone of the job's windows.
        """
        self.framework, self.zone_offsets = framework, zone_offsets
        self.state = SessionState(job, framework, epoch)
        self.containers = Containers(self.state, jitter)
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
        self.opening_times = OpeningTimes(self)
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
        """The number of the current generation, which counts the rendezvous of the gang."""
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
    def publishing(self) -> bool:
        """Whether the job only waits for its outputs to be published."""
        return self.completion.publishing

    @property
    def finished(self) -> bool:
        """Whether the job is over: everything is stopped or given up."""
        return self.state.finished

    def task(self, name: str) -> Optional[Task]:
        """Return the task with this name, such as worker:0, or None."""
        return self.state.by_name.get(name)

    @property
    def heartbeat_seconds(self) -> float:
        """Seconds between two heartbeats of an executor, for its Welcome."""
        return self.liveness.heartbeat_seconds

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

    # ---- the cluster -------------------------------------------------------------------------------------------

    def start(self, now: float, largest: Optional[Largest] = None) -> list[Action]:
        """Begin the job and request the gang's containers. ``largest`` is the cluster's largest container, if known."""
        self._begin(now, now, largest)
        self.opening_times.tick(now)
        if self.suspension.reason is None:
            self.containers.ask_for(self.state.tasks, now)
            self.restarts.prepare_start(now)
        return self._checked(now)

    def recover(
        self,
        containers: Sequence[Container],
        history: History,
        now: float,
        largest: Optional[Largest] = None,
        former: Optional[JobStatus] = None,
    ) -> list[Action]:
        """Begin as a later application master, in place of ``start``.

        ``containers`` are those that its cluster listed; ``former`` is the newest status of the former master.
        """
        started = now if history.started is None else history.started - self.state.epoch
        self._begin(min(started, now), now, largest)
        if former:
            self.times.take_over(former, now)
            self.use.take_over(former, now)
        self.suspension.take_over(
            history.suspended,
            by_windows=history.by_windows,
            out_of_hours=history.out_of_hours,
            at_rest=history.at_rest,
        )
        if history.verdict is None:
            self.opening_times.tick(now)
        self.recovery.begin(containers, history, now)
        if history.verdict:
            self.recovery.leave_to_end(now)
            self.completion.take_over(history.verdict, history.parts, now)
        return self._checked(now)

    def _begin(self, started: float, now: float, largest: Optional[Largest]) -> None:
        self.timers.start(started)
        self.times.begin(now)
        self.use.begin(now)
        if largest:
            self.containers.sizes.limit(largest)

    def allocated(self, key: int, container: Container, now: float) -> list[Action]:
        """Handle a container that the cluster grants for the request with this key."""
        self.containers.granted(key, container, now)
        return self._checked(now)

    def not_placed(self, key: int, reason: str, now: float) -> list[Action]:
        """Handle a request with this key for which the cluster found no node. It is requested again."""
        self.containers.not_placed(key, reason)
        return self._checked(now)

    def launch_failed(self, container_id: str, reason: str, now: float) -> list[Action]:
        """Handle a node's refusal to start a container's program."""
        self.container_failures.not_launched(container_id, reason, now)
        return self._checked(now)

    def completed(self, container_id: str, exit: ContainerExit, diagnostics: str, now: float) -> list[Action]:
        """Handle the end of a container, as the cluster reports it."""
        self.recovery.ended(container_id)
        self.container_failures.completed(container_id, exit, diagnostics, now)
        return self._checked(now)

    def preempting(self, container_ids: Sequence[str], seconds: Optional[float], now: float) -> list[Action]:
        """Handle an advance notice that the cluster takes containers back, in about ``seconds`` if known."""
        self.spare_room.disturbed()
        self.notices.preempting(container_ids, seconds)
        return self._checked(now)

    def node_leaving(self, node: str, seconds: Optional[float], now: float) -> list[Action]:
        """Handle an advance notice that a node (host:port) ends its containers, in about ``seconds`` if known."""
        self.spare_room.disturbed()
        self.notices.node_leaving(node, seconds)
        return self._checked(now)

    def nodes_counted(self, nodes: int) -> list[Action]:
        """Record the number of usable nodes of the cluster."""
        self.containers.nodes_counted(nodes)
        return self.state.taken()

    def room(self, room: Room, now: float) -> list[Action]:
        """Handle the cluster's answer about spare capacity."""
        self.spare_room.heard(room, now)
        return self.state.taken()

    def stop_requested(self, reason: str, now: float, *, grace: Optional[float] = None) -> list[Action]:
        """End the job at a user's request. ``grace`` replaces timeouts.grace.

        A second request shortens the grace of running processes. Without a grace, it releases their containers.
        """
        if self.state.verdict:
            self.completion.hurry(now, grace)
        else:
            self.completion.kill(reason, now, grace)
        return self._checked(now)

    def suspend_requested(self, reason: str, now: float) -> list[Action]:
        """Release all containers after a checkpoint, at a user's request. A second request changes nothing."""
        self.suspension.ask(reason)
        return self._checked(now)

    def resume_requested(self, reason: str, now: float) -> list[Action]:
        """Resume a suspended job, or cancel a pending suspension. Otherwise the request changes nothing."""
        self.suspension.resume(reason, now)
        return self._checked(now)

    def resize_requested(self, counts: Mapping[str, int], reason: str, now: float) -> list[Action]:
        """Set the numbers of tasks of these types, at a user's request.

        A repeated request, or one beyond the job's limits, changes nothing.
        """
        self.resizing.ask(counts, reason, now)
        return self._checked(now)

    def fail(self, kind: FailureKind, message: str, now: float) -> list[Action]:
        """End the job for a reason that is not a task's failure."""
        self.completion.fail(Failure(kind, message), now)
        return self._checked(now)

    # ---- checkpoints -------------------------------------------------------------------------------------------

    def resume_chosen(
        self, generation: int, resume: Optional[ResumePoint], now: float, *, not_from: str = ""
    ) -> list[Action]:
        """Receive the answer to ChooseResumePoint. ``resume`` is None if there is no checkpoint.

        ``not_from`` describes a newer checkpoint that was passed over because it is suspect.
        """
        self.checkpoints.chosen(generation, resume, not_from, now)
        return self._checked(now)

    def resume_failed(self, generation: int, reason: str, now: float) -> list[Action]:
        """Handle a store that has not answered ChooseResumePoint in time."""
        self.checkpoints.not_chosen(generation, reason, now)
        return self._checked(now)

    def checkpoint_committed(
        self, point: ResumePoint, save: CommittedSave, now: float, *, copy_seconds: float = 0.0
    ) -> list[Action]:
        """Handle a committed checkpoint. ``copy_seconds`` is the time that its copy to the store took."""
        self.times.copied(copy_seconds)
        before = self.state.checkpoint or self.state.generation.resume
        self.checkpoints.committed(point, save)
        self.suspension.committed(now)
        self.elastic.committed(now)
        self.resizing.committed(now)
        self.exports.committed(point, before, now)
        return self._checked(now)

    def quota_warned(self, warning: str, now: float) -> list[Action]:
        """Handle a warning that a quota may soon prevent checkpoints. An empty ``warning`` ends it."""
        self.state.quota_warning = warning
        if warning:
            self.state.note("quota", warning)
        return self._checked(now)

    def checkpoint_waits(self, problem: str, now: float) -> list[Action]:
        """Handle the reason why no checkpoint can be stored. An empty reason ends the problem."""
        self.state.checkpoint_problem = problem
        return self._checked(now)

    def checkpoint_requested(self, reason: str, now: float) -> list[Action]:
        """Request a checkpoint now, for a user."""
        self.notices.checkpoint_requested(reason)
        return self._checked(now)

    # ---- exports of the model ----------------------------------------------------------------------------------

    def export_requested(self, reason: str, asked_ms: int, now: float) -> list[Action]:
        """Request an export of the model, for a user. ``asked_ms`` (since the epoch) identifies the request."""
        self.exports.ask(reason, asked_ms)
        return self._checked(now)

    def exported(self, name: str, attempt: int, export: ExportedModel, problem: str, now: float) -> list[Action]:
        """Handle a model that a task's program exported. ``problem`` is why it is not on the store; empty if it is."""
        task = self._current(name, attempt)
        if task and problem:
            self.exports.failed(task, export, problem)
        elif task:
            self.exports.exported(task, export)
        return self._checked(now)

    # ---- the executors -----------------------------------------------------------------------------------------

    def registered(
        self,
        name: str,
        attempt: int,
        host: str,
        ports: Mapping[str, int],
        generation: int,
        start: int,
        resumed: Optional[ResumePoint],
        container_id: str,
        now: float,
    ) -> list[Action]:
        """Handle the registration of an executor, whose stream is up.

        ``generation``, ``start`` and ``resumed`` belong to the newest rendezvous that reached it (0, 0 and None without
        one). It reports processes that have ended by then again.
        """
        task = self.task(name)
        if task is None or self.refusal(name, attempt, container_id) is not None:
            return []
        if self.recovery.waits_for(container_id):
            self.recovery.adopt(task, attempt, container_id, host, ports, generation, start, resumed, now)
        self.reports.registered(task, host, ports, start, now)
        self.exports.ask_again(task)
        return self._checked(now)

    def disconnected(self, name: str, attempt: int, now: float) -> list[Action]:
        """Handle the loss of an executor's stream. The executor may reconnect."""
        task = self._current(name, attempt)
        if task:
            self.reports.disconnected(task, now)
        return self._checked(now)

    def left(self, container_id: str, now: float) -> list[Action]:
        """Handle the last message of an executor: its processes have ended, its log is kept, and the container ends."""
        self.containers.shutdowns.left(container_id)
        return self._checked(now)

    def heartbeat(self, name: str, attempt: int, beat: Heartbeat, now: float) -> list[Action]:
        """Handle a heartbeat of an executor."""
        task = self._current(name, attempt)
        if task:
            self.use.heard(task, beat, now)
            self.reports.heartbeat(task, beat, now)
            if beat.progress:
                self.times.reported(task, beat.progress, now)
        return self.state.taken()

    def process_started(self, name: str, attempt: int, start: int, now: float) -> list[Action]:
        """Record that a task's user process runs."""
        task = self._current(name, attempt)
        if task:
            self.reports.process_started(task, start, now)
            self.times.started(task, now)
            self.exports.ask_again(task)
        return self._checked(now)

    def process_ended(self, name: str, attempt: int, end: ProcessEnd, now: float) -> list[Action]:
        """Handle the end of a task's user process, or its failure to start."""
        task = self._current(name, attempt)
        if task:
            if end.progress:
                self.times.reported(task, end.progress, now)
            self.reports.process_ended(task, end, now)
        return self._checked(now)

    def settled(self, name: str, attempt: int, settlement: Settlement, now: float) -> list[Action]:
        """Handle the end of the last uploads after a user process."""
        task = self._current(name, attempt)
        if task:
            self.reports.settled(task, settlement, now)
        return self._checked(now)

    def stacks_written(
        self, name: str, attempt: int, start: int, stacks: tuple[ProcessStack, ...], now: float
    ) -> list[Action]:
        """Record the stacks of a task's processes, which will be stopped now."""
        task = self._current(name, attempt)
        if task and task.process and task.process.start == start:
            task.process.stacks = stacks
        return self._checked(now)

    def last_words(self, name: str, attempt: int, tail: str, now: float) -> list[Action]:
        """Record the end of a user process's output when its container is killed."""
        task = self._current(name, attempt)
        if task:
            task.last_words = tail
        return self._checked(now)

    def restore_failed(
        self, name: str, attempt: int, start: int, uri: str, damaged: bool, reason: str, now: float
    ) -> list[Action]:
        """Handle a failed restore of a task's checkpoint directory.

        ``uri`` is the resume point; empty for another cause.
        """
        task = self._current(name, attempt)
        if task:
            self.checkpoints.not_restored(task, start, uri, damaged, reason, now)
        return self._checked(now)

    def notes_kept(self, name: str, attempt: int, now: float) -> list[Action]:
        """Receive the answer to KeepNotes."""
        task = self._current(name, attempt)
        if task:
            self.finished_tasks.release(task, now)
        return self._checked(now)

    def outputs_published(self, problem: str, now: float) -> list[Action]:
        """Receive the answer to PublishOutputs. ``problem`` is empty if the outputs are at their paths."""
        self.completion.outputs_published(problem)
        return self._checked(now)

    # ---- the clock ---------------------------------------------------------------------------------------------

    def tick(self, now: float) -> list[Action]:
        """Handle the passing of time. The master calls it about twice a second."""
        if self.state.finished:
            return []
        self.use.tick(now)
        self.timers.tick(now)
        return self._checked(now)

    def _current(self, name: str, attempt: int) -> Optional[Task]:
        """Return the task if this attempt of it may report: the session counts on its container."""
        task = self.task(name)
        if task is None or task.attempt != attempt or not task.has_container:
            return None
        return task

    def _checked(self, now: float) -> list[Action]:
        """Apply the consequences of the new state and return the actions."""
        state = self.state
        self.recovery.check(now)
        if state.verdict is None and state.phase is not JobState.RECOVERING:
            self.suspension.check(now)
            self.restarts.decide(now)
        if state.verdict is None and state.phase is not JobState.RECOVERING:
            self.resizing.check(now)
            self.restarts.advance(now)
            self.resizing.look_at_end()
        # Also while a later stage waits for its containers: the deciding tasks may end without that stage.
        if state.verdict is None and state.phase is not JobState.RECOVERING and not self.restarts.undecided:
            self.completion.look_at_success(now)
            self.stages.check(now)
            self.early_ends.check(now)
        self.completion.check()
        self.times.look(now)
        return state.taken()
