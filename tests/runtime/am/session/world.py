"""A cluster, its executors and a store as the session sees them: carries actions out in memory and keeps account."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from tony_provider.runtime.am.resource_manager import (
    Allocated,
    Completed,
    Container,
    ContainerExit,
    ContainerRequest,
    ExitReason,
    LaunchFailed,
    NodeLeaving,
    Preempting,
    Room,
)
from tony_provider.runtime.am.session import job_status
from tony_provider.runtime.am.session.actions import (
    Action,
    AskCheckpoint,
    AskExport,
    AvoidNodes,
    CancelRequests,
    ChooseResumePoint,
    Disconnect,
    ExcludeCheckpoint,
    Finish,
    FlushEvents,
    LaunchTask,
    Note,
    NoteFailedResume,
    NoteSoundResume,
    ProbeRoom,
    PublishOutputs,
    ReleaseContainers,
    RequestContainers,
    SendRendezvous,
    ShutdownTask,
    StopProcess,
    Verdict,
)
from tony_provider.runtime.am.session.recovery import REPLAY, History
from tony_provider.runtime.am.session.restart_policy import LONGEST_START, CommittedSave
from tony_provider.runtime.am.session.session import Session
from tony_provider.runtime.am.session.session_events import (
    CheckpointCommitted,
    Disconnected,
    Event,
    EventsWritten,
    ExecutorLeft,
    ExecutorRegistered,
    FromTask,
    OutputsPublished,
    PreparationFailed,
    ProcessStacks,
    ProcessStarted,
    Recovered,
    Report,
    ResizeOrder,
    ResumeChosen,
    ResumeOrder,
    Started,
    StopOrder,
    SuspendOrder,
    Tick,
)
from tony_provider.runtime.am.session.session_state import Heartbeat, ProcessEnd, ProcessStack, Settlement, Task
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.checkpoint.stored_checkpoint import FailedResume, FailedResumes
from tony_provider.runtime.common.codec import to_plain
from tony_provider.runtime.frameworks.base import ClusterSpec, Framework, TaskEnvironment
from tony_provider.runtime.jobspec.model import (
    CheckpointSpec,
    Duration,
    JobSpec,
    MirrorScope,
    RestartPolicy,
    RestartScope,
    Role,
    StartRule,
    TaskSpec,
    Timeouts,
    in_cluster,
)
from tony_provider.runtime.jobspec.problems import Problem
from tony_provider.runtime.outputs.publication import OutputPart, part_name
from tony_provider.runtime.protocol.status import JobStatus, TaskProgress, TaskState


def point(step: int, uri: str) -> ResumePoint:
    """Of a training that saves each step once."""
    return ResumePoint(step, uri, save=step)


EPOCH = 1_000_000.0  # of the session's clock
MOST_VALIDATED = 20  # tasks: all are looked at after every event


@attrs.frozen
class Plan(Framework):
    """A framework whose rules a test chooses."""

    deciders: tuple[str, ...] = ()
    alone: bool = False  # a task that fails starts again alone
    name: str = "standalone"
    first_come: bool = True

    def problems(self, job: JobSpec) -> list[Problem]:
        return []

    def decisive(self, job: JobSpec) -> Sequence[str]:
        return self.deciders

    def scope(self, role: Role) -> RestartScope:
        return RestartScope.TASK if self.alone else super().scope(role)

    def elastic(self, role: Role) -> bool:
        return role is Role.WORKER

    def environment(self, job: JobSpec, cluster: ClusterSpec, task_type: str, index: int) -> TaskEnvironment:
        return TaskEnvironment({})


def job(
    tasks: Mapping[str, int | TaskSpec],
    *,
    policy: RestartPolicy | None = None,
    mirror: MirrorScope = MirrorScope.LEADER,
    **timeouts: float,
) -> JobSpec:
    """Without restarts, unless ``policy`` says otherwise."""
    durations: dict[str, Any] = {name: Duration(value) for name, value in timeouts.items()}
    return JobSpec(
        framework="standalone",
        tasks={name: task_type(each) for name, each in tasks.items()},
        timeouts=Timeouts(**durations),
        restart=policy or RestartPolicy(budget=0),
        checkpoint=CheckpointSpec(mirror=mirror),
    )


def task_type(instances: int | TaskSpec = 1, **how: Any) -> TaskSpec:
    if isinstance(instances, TaskSpec):
        return instances
    return TaskSpec(command="true", instances=instances, **how)


def _has_begun(task: Task) -> bool:
    return task.process is not None and (task.process.runs or task.state is TaskState.SUCCEEDED)


@attrs.define(eq=False)
class Executor:
    """What runs in a container that was launched."""

    container: Container
    task: str
    attempt: int
    host: str = ""
    connected: bool = False
    generation: int = 0
    start: int = 0
    running: bool = False
    started: bool = False
    end: ProcessEnd | None = None
    settled: bool = True
    told_to_stop: StopProcess | None = None
    resume: ResumePoint | None = None
    keep_checkpoints: bool = False
    asked_to_export: int = 0  # when what this start was asked for last was asked for

    def obey(self, rendezvous: SendRendezvous, start: int) -> None:
        if start <= self.start:
            return
        self.generation, self.start = rendezvous.cluster.generation, start
        self.running, self.started, self.settled, self.end, self.told_to_stop = True, False, False, None, None
        self.resume, self.keep_checkpoints = rendezvous.resume, rendezvous.keep_checkpoints
        self.asked_to_export = 0


class World:
    def __init__(
        self,
        spec: JobSpec,
        decisive: Sequence[str],
        *,
        alone: bool = False,
        jitter: float = 0.5,
        nodes: int = 4,
        answers: bool = True,
        keeps: bool = True,
        suspects: Sequence[str] = (),
    ) -> None:
        self.spec = spec
        self.framework = Plan(tuple(decisive), alone)
        self._jitter = jitter
        self._suspects = suspects
        self._validates = spec.size <= MOST_VALIDATED
        self.session = self.new_session()
        self.events: list[tuple[Event, float]] = []  # all that this session has handled
        self.now = 100.0
        self.nodes = nodes
        self.answers = answers  # whether the store says at once which checkpoint is the newest
        self.keeps = keeps  # whether the event log is on the store at once
        self.not_kept: list[FlushEvents] = []
        self.checkpoints: list[ResumePoint] = []
        self.outstanding: dict[int, ContainerRequest] = {}
        self.keys: set[int] = set()
        self.allocated: dict[str, Container] = {}
        self.launched: dict[str, LaunchTask] = {}
        self.executors: dict[str, Executor] = {}  # by container, of those that live
        self.released: set[str] = set()
        self.completed: set[str] = set()
        self.rendezvous: list[SendRendezvous] = []
        self.resumes: dict[int, ResumePoint | None] = {}  # by generation
        self.starts: dict[str, int] = {}
        self.stops: list[StopProcess] = []
        self.choices: list[int] = []
        self.unanswered: list[int] = []
        self.asked: list[AskCheckpoint] = []
        self.asked_to_export: list[AskExport] = []
        self.set_aside: list[ExcludeCheckpoint] = []
        self.failed_resumes = FailedResumes()
        self.trusted = ""
        self.ends: dict[str, ProcessEnd] = {}  # by task, of those that ended well the newest
        self.counted: list[OutputPart] = []  # of outputs: what those have left that had succeeded
        self.publications: list[tuple[OutputPart, ...]] = []
        self.publishing: tuple[OutputPart, ...] | None = None  # what the application master publishes now
        self.avoided: tuple[str, ...] = ()
        self.shutdowns: list[ShutdownTask] = []
        self.streams: dict[str, str] = {}  # by task, the container whose executor registered last
        self.leaving: set[str] = set()  # containers whose executors were told to end
        self.left: set[str] = set()  # and have taken leave
        self.disconnected: list[str] = []
        self.looks: list[ProbeRoom] = []
        self.unseen: list[Room] = []  # answers to looks, that were not told yet
        self.room: int | None = 0  # for so many containers; None: looks are not answered
        self.notes: list[Note] = []
        self.log: list[dict[str, Any]] = []
        self.finished: list[Verdict] = []
        self.handle(Started())

    def new_session(self) -> Session:
        return Session(
            self.spec, self.framework, jitter=lambda: self._jitter, epoch=EPOCH, avoided_nodes=self._suspects
        )

    # ---- events ------------------------------------------------------------------------------------------------

    def handle(self, event: Event) -> None:
        """The session handles it, and what it wants is done."""
        self.carry_out(self._handle(event))

    def report(self, name: str, report: Report) -> None:
        """Of the newest attempt of a task."""
        self.handle(FromTask(name, self.attempt(name), report))

    def _handle(self, event: Event) -> list[Action]:
        self.events.append((event, self.now))
        actions = self.session.handle(event, self.now)
        if self._validates:
            violated = self.session.validate()
            assert not violated, (event, violated)
        return actions

    # ---- what the session wants --------------------------------------------------------------------------------

    def carry_out(self, actions: Sequence[Action]) -> None:
        for action in actions:
            self._carry_out(action)
        while self.answers and self.unanswered:
            self.choose(self.unanswered[0])
        if self.keeps:
            self.keep_notes()
        while self.unseen:
            self.handle(self.unseen.pop(0))

    def _carry_out(self, action: Action) -> None:
        if isinstance(action, RequestContainers):
            for request in action.requests:
                assert request.key not in self.keys, "a key was used twice"
                self.keys.add(request.key)
                self.outstanding[request.key] = request
        elif isinstance(action, CancelRequests):
            for key in action.keys:
                del self.outstanding[key]
        elif isinstance(action, ReleaseContainers):
            for container_id in action.container_ids:
                assert container_id in self.allocated
                assert container_id not in self.released, "released twice"
                self.released.add(container_id)
        elif isinstance(action, LaunchTask):
            self._launch(action)
        elif isinstance(action, SendRendezvous):
            self._send_rendezvous(action)
        elif isinstance(action, StopProcess):
            self.stops.append(action)
            executor = self._executor(action.task)
            if executor and executor.connected and executor.start == action.start:
                executor.told_to_stop = action
        elif isinstance(action, ChooseResumePoint):
            self.choices.append(action.generation)
            self.unanswered.append(action.generation)
            self.trusted = action.trusted
        elif isinstance(action, FlushEvents):
            self.not_kept.append(action)
        elif isinstance(action, AskCheckpoint):
            self.asked.append(action)
        elif isinstance(action, AskExport):
            self.asked_to_export.append(action)
            self.executor(action.task).asked_to_export = action.asked_ms
        elif isinstance(action, NoteFailedResume):
            self.failed_resumes = self.failed_resumes.added(
                action.resume.uri, FailedResume(action.kind, action.message, "application_1_1", 0)
            )
        elif isinstance(action, NoteSoundResume):
            self.failed_resumes = self.failed_resumes.without(action.resume.uri)
        elif isinstance(action, ExcludeCheckpoint):
            self.set_aside.append(action)
            self.checkpoints = [each for each in self.checkpoints if each.uri != action.resume.uri]
        elif isinstance(action, ProbeRoom):
            self.looks.append(action)
            if self.room is not None:
                self.unseen.append(Room(action.request.key, min(self.room, action.most)))
        elif isinstance(action, Disconnect):
            self.disconnected.append(action.task)
        elif isinstance(action, PublishOutputs):
            assert self.publishing is None, "published twice"
            assert self.held <= self.left, "somebody may still write"
            assert list(action.parts) == self.counted, "other parts than had counted"
            self.publishing = action.parts
            self.publications.append(action.parts)
        elif isinstance(action, AvoidNodes):
            self.avoided = action.nodes
        elif isinstance(action, ShutdownTask):
            self.shutdowns.append(action)
            self.leaving.add(self.streams[action.task])
        elif isinstance(action, Note):
            self.notes.append(action)
            fields = {"time_ms": int((EPOCH + self.now) * 1000), "event": action.event, "data": action.data}
            self.log.append(fields)
            if "parts" in action.data:
                self._count_parts(action.data["parts"])
        else:
            assert isinstance(action, Finish)
            self.finished.append(action.verdict)

    def _count_parts(self, noted: list[Any]) -> None:
        """What counts is what the newest start of each task has left that has succeeded."""
        succeeded = [task for task in self.session.tasks if task.state is TaskState.SUCCEEDED]
        newest = [end for task in succeeded if (end := self.ends[task.name]).start == self.starts[task.name]]
        assert len(newest) == len(succeeded), "it has not succeeded with its newest start"
        self.counted = [part for end in newest for part in end.outputs]
        assert noted == to_plain(self.counted)

    def _launch(self, action: LaunchTask) -> None:
        container_id = action.container.id
        assert container_id in self.allocated, "launched a container that is not ours"
        assert container_id not in self.released | self.completed, "launched a container that was given back"
        assert container_id not in self.launched, "launched twice"
        self.launched[container_id] = action
        self.executors[container_id] = Executor(action.container, action.task, action.attempt)

    def _send_rendezvous(self, action: SendRendezvous) -> None:
        generation = action.cluster.generation
        again = all(self.starts.get(name) == start for name, start in action.starts.items())
        if not again:
            self._check_rendezvous(action)
            self.starts.update(action.starts)
        if generation not in self.resumes:
            self.resumes[generation] = action.resume
        self.rendezvous.append(action)
        for name, start in action.starts.items():
            executor = self._executor(name)
            if executor and executor.connected:
                executor.obey(action, start)

    def _check_rendezvous(self, action: SendRendezvous) -> None:
        """What holds for every start, whatever led to it."""
        names = {f"{task.type}:{task.index}" for task in action.cluster.tasks}
        for name, start in action.starts.items():
            assert start > self.starts.get(name, 0), "starts grow"
            executor = self._executor(name)
            assert executor, f"{name} is missing"
            assert executor.connected
            assert not executor.running, f"{name} still runs"
            assert not self.task(name).done, f"{name} is over"
            assert name in names
        if action.cluster.generation in self.resumes:
            assert len(action.starts) == 1, "a second rendezvous of one generation"
            return
        assert action.cluster.generation > max(self.resumes, default=0)
        if self.spec.start is StartRule.FIRST_COME:
            return
        for task in self.session.tasks:
            own = self.session.groups.of(task)
            if own is not self.session.groups.gang and (own.restart or _has_begun(task)):
                continue  # in an earlier stage
            if self.session.groups.is_needless(task):
                continue
            if in_cluster(task.role) and not task.left_out and not task.done and not task.waits_for_types:
                assert task.name in action.starts, f"a rendezvous without {task.name}"

    # ---- what can be asked -------------------------------------------------------------------------------------

    @property
    def held(self) -> set[str]:
        """Containers that are ours now."""
        return set(self.allocated) - self.released - self.completed

    @property
    def verdict(self) -> Verdict:
        assert len(self.finished) == 1
        return self.finished[0]

    @property
    def states(self) -> dict[str, TaskState]:
        return {task.name: task.state for task in self.session.tasks}

    @property
    def generation(self) -> int:
        return self.session.generation

    def shut_down(self) -> list[str]:
        """The tasks that were told to end."""
        return [shutdown.task for shutdown in self.shutdowns]

    def stopped(self) -> list[str]:
        """The tasks whose user processes were told to stop."""
        return [stop.task for stop in self.stops]

    def noted(self, event: str) -> list[str]:
        return [note.message for note in self.notes if note.event == event]

    def task(self, name: str) -> Task:
        task = self.session.task(name)
        assert task
        return task

    def container(self, name: str) -> str:
        container = self.task(name).container
        assert container
        return container.id

    def attempt(self, name: str) -> int:
        return self.task(name).attempt

    def _executor(self, name: str) -> Executor | None:
        container = self.task(name).container
        return self.executors.get(container.id) if container else None

    def executor(self, name: str) -> Executor:
        executor = self._executor(name)
        assert executor, f"{name} has no executor"
        return executor

    # ---- containers --------------------------------------------------------------------------------------------

    def grant(self, key: int | None = None, node: str | None = None) -> str:
        key = min(self.outstanding) if key is None else key
        del self.outstanding[key]
        number = len(self.allocated) + 1
        container = Container(f"container_1_0001_01_{number:06d}", node or f"node{number % self.nodes}:1")
        self.allocated[container.id] = container
        self.handle(Allocated(key, container))
        return container.id

    def grant_all(self) -> None:
        while self.outstanding:
            for key in sorted(self.outstanding):
                if key in self.outstanding:  # not withdrawn because of those that came before
                    self.grant(key)

    def complete(self, container_id: str, how: int | ExitReason = 0, diagnostics: str = "") -> None:
        """``how``: the exit code of its program, or why it ended otherwise."""
        ended = ContainerExit(how) if isinstance(how, ExitReason) else ContainerExit(ExitReason.EXITED, how)
        self.completed.add(container_id)
        self.executors.pop(container_id, None)
        self.handle(Completed(container_id, ended, diagnostics))

    def lose(self, name: str, how: int | ExitReason = ExitReason.LOST) -> None:
        """Its container ends, as the cluster says."""
        self.complete(self.container(name), how)

    def complete_all(self, exit_status: int = 0) -> None:
        """Everything that was told to stop ends."""
        for container_id in sorted((set(self.launched) | self.released) - self.completed):
            self.complete(container_id, exit_status)

    def launch_fails(self, container_id: str) -> None:
        self.executors.pop(container_id, None)
        self.handle(LaunchFailed(container_id, "no disk left"))

    # ---- executors ---------------------------------------------------------------------------------------------

    def register(self, name: str, executor: Executor | None = None) -> bool:
        """As executors do: who they are, and again what the master may have missed. Whether they were welcome."""
        executor = executor or self._executor(name)
        if executor is None or self.session.refusal(name, executor.attempt, executor.container.id) is not None:
            return False
        executor.connected = True
        self.streams[name] = executor.container.id
        executor.host = executor.container.node.partition(":")[0]
        self.handle(
            ExecutorRegistered(
                name,
                executor.attempt,
                executor.container.id,
                executor.host,
                {"main": 2000},
                executor.generation,
                executor.start,
                executor.resume,
            )
        )
        start, end, settled = executor.start, executor.end, executor.settled
        if executor.started:
            self.handle(FromTask(name, executor.attempt, ProcessStarted(start)))
        if end:
            self.handle(FromTask(name, executor.attempt, end))
            if settled and executor.start == start:
                self.settle(name)
        return True

    def register_all(self) -> None:
        for task in self.session.tasks:
            if task.state is TaskState.STARTING:
                self.register(task.name)

    def disconnect(self, name: str) -> None:
        executor = self._executor(name)
        if executor:
            executor.connected = False
        self.report(name, Disconnected())

    def leave(self, name: str) -> None:
        """Its executor, which was told to end, takes leave; its container is still to end."""
        self.left.add(self.container(name))
        self.handle(ExecutorLeft(self.container(name)))
        self.disconnect(name)

    def beat(self, name: str, step: int | None = None, *, pace: float | None = None, output_problem: str = "") -> None:
        """``pace``: steps per second."""
        progress = None if step is None else TaskProgress(step, steps_per_second=pace)
        beat = Heartbeat({"rss_bytes": self._memory(name)}, progress=progress, output_problem=output_problem)
        self.report(name, beat)

    def serve(self, name: str) -> None:
        """Its readiness probe succeeds."""
        self.report(name, Heartbeat({"rss_bytes": 1000}, ready=True))

    def _memory(self, name: str) -> int:
        """Bytes that its user process holds."""
        executor = self._executor(name)
        return 1000 if executor and executor.running else 0

    # ---- user processes ----------------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        executor = self._executor(name)
        if executor and executor.running:
            executor.started = True
        start = executor.start if executor else self.task(name).start
        self.report(name, ProcessStarted(start))

    def start_all(self) -> None:
        for task in self.session.tasks:
            self.start(task.name)

    def run(self) -> World:
        """The gang gets all it wants and every user process starts."""
        self.grant_all()
        self.register_all()
        self.start_all()
        return self

    def end(self, name: str, *, settles: bool = True, **how: Any) -> None:
        """Its user process ends, and with it the copies of its checkpoints unless they take longer."""
        executor = self._executor(name)
        start = executor.start if executor else self.task(name).start
        end = self.process_ends(executor, **how) if executor else ProcessEnd(start, **how)
        self.report(name, end)
        if settles:
            self.settle(name)

    def process_ends(self, executor: Executor, **how: Any) -> ProcessEnd:
        """A user process ends, and leaves a file for each output where it ends well. Nobody has heard of it yet."""
        end = ProcessEnd(executor.start, **how)
        if end.succeeded:
            part = part_name(executor.task, executor.attempt, executor.start)
            end = attrs.evolve(end, outputs=tuple(OutputPart(name, part, 1, 10) for name in self.spec.outputs))
            self.ends[executor.task] = end
        executor.running, executor.end = False, end
        return end

    def settle(self, name: str, problem: str = "") -> None:
        executor = self._executor(name)
        start = executor.start if executor else self.task(name).start
        if executor:
            executor.settled = True
        self.report(name, Settlement(start, problem))

    def write_stacks(self, name: str, *frames: str, process: str = "") -> None:
        """Before it stops, one process of a task has written its stack, the innermost frame first."""
        executor = self.executor(name)
        assert executor.told_to_stop
        assert executor.told_to_stop.stacks
        stack = ProcessStack(4711, "python train.py", process, frames)
        self.report(name, ProcessStacks(executor.start, (stack,)))

    def obey(self, name: str, *, settles: bool = True) -> None:
        """It stops as it was told."""
        assert self.executor(name).told_to_stop
        self.end(name, signal=15, stopped=True, settles=settles)

    def obey_all(self) -> None:
        """Everybody who was told to stop a user process does."""
        for executor in list(self.executors.values()):
            if executor.told_to_stop and executor.running and self._executor(executor.task) is executor:
                self.obey(executor.task)

    def restarted(self) -> World:
        """Whatever is needed for everything to run again happens."""
        self.obey_all()
        return self.run()

    # ---- checkpoints -------------------------------------------------------------------------------------------

    def choose(self, generation: int) -> None:
        """The store says which checkpoint is the newest."""
        self.unanswered.remove(generation)
        newest_first = sorted(self.checkpoints, key=lambda each: -each.save)
        suspicion = self.failed_resumes.suspicion
        good = [each for each in newest_first if each.uri == self.trusted or not suspicion(each.uri)]
        chosen = next(iter(good or newest_first), None)
        not_from = suspicion(newest_first[0].uri) if chosen is not None and chosen is not newest_first[0] else ""
        self.handle(ResumeChosen(generation, chosen, not_from))

    @property
    def status(self) -> JobStatus:
        return job_status.job_status(
            self.session, application_id="application_1_1", am_attempt=1, started_ms=0, now=self.now, now_ms=0
        )

    def commit(self, step: int, name: str | None = None, *, reported: bool = False) -> str | None:
        """Rank 0, or another task, asks for the commit of a checkpoint. Why it was refused; None when it was not."""
        if name is None:
            name = self.session.mirror_ranks()[0][0]
        executor = self.executor(name)
        return self.commit_of(executor, step, reported=reported)

    def commit_of(self, executor: Executor, step: int, *, reported: bool = False) -> str | None:
        refusal = self.session.commit_refusal(executor.task, executor.attempt, executor.generation, executor.start)
        if refusal is None:
            saved = point(step, f"store/step-{step}-{executor.generation}")
            self.checkpoints.append(attrs.evolve(saved, reported=reported))
            save = CommittedSave(
                tasks=[executor.task],
                content_step=None if reported else step,
                is_new=True,
                process_seconds=LONGEST_START,
            )
            self.handle(CheckpointCommitted(self.checkpoints[-1], save))
        return refusal

    def restore_fails(self, name: str, *, damaged: bool) -> None:
        executor = self.executor(name)
        executor.running, executor.settled = False, True
        uri = executor.resume.uri if executor.resume else ""
        self.report(name, PreparationFailed(executor.start, uri, damaged, "bad checksum"))

    def keep_notes(self) -> None:
        """The event log gets to the store, with all that was noted so far."""
        while self.not_kept:
            kept = self.not_kept.pop(0)
            self.handle(FromTask(kept.task, kept.attempt, EventsWritten()))

    def published(self, problem: str = "") -> None:
        """The outputs are at their paths, or will never be."""
        self.publishing = None
        self.handle(OutputsPublished(problem))

    # ---- the rest ----------------------------------------------------------------------------------------------

    def stop(self, reason: str = "killed by somebody") -> None:
        self.handle(StopOrder(reason))

    def suspend(self, reason: str = "somebody needs the cluster") -> None:
        self.handle(SuspendOrder(reason))

    def resume(self, reason: str = "nobody needs the cluster") -> None:
        self.handle(ResumeOrder(reason))

    def resize(self, reason: str = "there is room", **counts: int) -> None:
        self.handle(ResizeOrder(counts, reason))

    def preempt(self, *names: str) -> None:
        containers = [self.container(name) for name in names]
        self.handle(Preempting(containers, 15.0))

    def node_leaves(self, node: str) -> None:
        self.handle(NodeLeaving(node))

    def tick(self, seconds: float = 1.0) -> None:
        self.now += seconds
        self.handle(Tick())

    def wait(self, seconds: float) -> None:
        """Time passes in small steps; executors that are up send their heartbeats."""
        until = self.now + seconds
        while self.now < until:
            for task in self.session.tasks:
                if task.connected:
                    self._handle(FromTask(task.name, task.attempt, Heartbeat({"rss_bytes": self._memory(task.name)})))
            self.tick()

    def master_dies(self) -> None:
        """Another one takes over: what runs in the containers goes on, everything else is forgotten."""
        for executor in self.executors.values():
            executor.connected = False
        self.outstanding.clear()
        self.unanswered.clear()
        self.not_kept.clear()
        self.choices.clear()
        self.keys.clear()
        self.publishing = None
        former = attrs.evolve(self.status, updated_ms=int((EPOCH + self.now) * 1000))
        self.session = self.new_session()
        self.events.clear()
        self.now += 5.0
        listed = [self.allocated[container_id] for container_id in sorted(self.held)]
        history = History.read(self.log)
        self.handle(Recovered(listed, history, former=former))

    def executor_of(self, name: str) -> Executor:
        """The one that lives, though the session may not know of it yet."""
        return next(executor for executor in self.executors.values() if executor.task == name)

    def lose_unheard(self, name: str) -> None:
        """Its container ends before it has registered with the new application master."""
        self.complete(self.executor_of(name).container.id, ExitReason.LOST)

    def come_back(self) -> None:
        """Every executor that lives registers with the new application master."""
        for executor in list(self.executors.values()):
            self.register(executor.task, executor)
        self.tick(REPLAY)
