"""Data model of a job's session: tasks, user processes, generations, and executors' reports.

``SessionState`` contains the tasks and the pending actions. All components of the session share it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Callable, Optional

import attrs

from tony_provider.runtime.am import descriptions
from tony_provider.runtime.am.resource_manager import Container
from tony_provider.runtime.am.session import state_transitions
from tony_provider.runtime.am.session.actions import Action, Note, SendRendezvous, Verdict
from tony_provider.runtime.am.session.state_transitions import ContainerState, Occasion, StateMachine, Story
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.common.codec import to_plain
from tony_provider.runtime.common.text import first_line
from tony_provider.runtime.frameworks.base import ClusterSpec, Framework, TaskAddress
from tony_provider.runtime.frameworks.task_type_rules import deciding_types
from tony_provider.runtime.jobspec.model import (
    JobSpec,
    MirrorScope,
    RestartScope,
    Role,
    StartRule,
    TaskSpec,
    in_cluster,
    leading_type,
)
from tony_provider.runtime.jobspec.opening_hours import ZoneOffset
from tony_provider.runtime.outputs.publication import OutputPart
from tony_provider.runtime.protocol.metrics import MEMORY, MetricValues
from tony_provider.runtime.protocol.status import (
    ExportedModel,
    ExportRequest,
    Failure,
    JobState,
    ProcessStatus,
    TaskProgress,
    TaskState,
)

if TYPE_CHECKING:
    from tony_provider.runtime.am.session.checkpoints import SessionCheckpoints
    from tony_provider.runtime.am.session.completion import EarlyEnds, FinishedTasks, JobCompletion
    from tony_provider.runtime.am.session.containers import Containers
    from tony_provider.runtime.am.session.gang import Stages
    from tony_provider.runtime.am.session.reports import ContainerFailures, ExecutorReports
    from tony_provider.runtime.am.session.resizing import Elastic, SpareRoom
    from tony_provider.runtime.am.session.restart_policy import RestartGroups
    from tony_provider.runtime.am.session.restarts import ProcessStarts, Restarts
    from tony_provider.runtime.am.session.sizing import Suspension, TypeSizes
    from tony_provider.runtime.am.session.timeouts import Liveness


class SessionContext:
    """State and components of one session."""

    framework: Framework
    zone_offsets: Sequence[ZoneOffset]  # UTC offsets of the time zone of the job's windows
    state: SessionState
    containers: Containers
    groups: RestartGroups
    sizes: TypeSizes
    completion: JobCompletion
    early_ends: EarlyEnds
    finished_tasks: FinishedTasks
    starts: ProcessStarts
    restarts: Restarts
    container_failures: ContainerFailures
    reports: ExecutorReports
    checkpoints: SessionCheckpoints
    stages: Stages
    suspension: Suspension
    elastic: Elastic
    spare_room: SpareRoom
    liveness: Liveness


class Part:
    """Base class of the session's components. Times are on the session's clock, in seconds."""

    def __init__(self, context: SessionContext) -> None:
        """Store the context. It lacks components that are created later, so only methods may use other components."""
        self._context = context
        self._state = context.state
        self._containers = context.containers
        self._groups = context.groups

    @property
    def _sizes(self) -> TypeSizes:
        return self._context.sizes

    @property
    def _completion(self) -> JobCompletion:
        return self._context.completion

    @property
    def _finished(self) -> FinishedTasks:
        return self._context.finished_tasks

    @property
    def _starts(self) -> ProcessStarts:
        return self._context.starts

    @property
    def _restarts(self) -> Restarts:
        return self._context.restarts

    @property
    def _checkpoints(self) -> SessionCheckpoints:
        return self._context.checkpoints

    @property
    def _suspension(self) -> Suspension:
        return self._context.suspension


@attrs.frozen
class ProcessEnd:
    """The end of a user process, as its executor reports it."""

    start: int  # number of the start, see ``Task.start``
    exit_code: int = 0  # exit code if no signal ended the process
    signal: int = 0  # 0 if no signal ended it
    out_of_memory: bool = False
    stopped: bool = False  # the executor received an order to stop it
    output_tail: str = ""  # last lines of its stderr
    error: str = ""  # failure of the executor itself
    not_kept: str = ""  # reason why its results could not be stored, although it ended successfully
    model_dir: str = ""  # URI of its model; empty if it left none
    progress: Optional[TaskProgress] = None
    parameters: dict[str, str] = attrs.field(factory=dict)
    output_problem: str = ""  # reason why lines of its output are lost
    node_problem: str = ""  # what its node or container lacks
    process: str = ""  # name of the process; empty if the task has only one process
    outputs: tuple[OutputPart, ...] = ()  # its files for the job's outputs, on the store

    @property
    def succeeded(self) -> bool:
        problem = self.error or self.not_kept or self.out_of_memory or self.stopped
        return self.exit_code == 0 and self.signal == 0 and not problem

    @property
    def in_words(self) -> str:
        """Describe how the process ended, as text that follows the task's name."""
        return f"{self.process} {self._fate}" if self.process else self._fate

    @property
    def _fate(self) -> str:
        killed = (
            f"was killed by {descriptions.signal_name(self.signal)}"
            if self.signal
            else descriptions.exit_code(self.exit_code)
        )
        if self.out_of_memory:
            return f"ran out of memory and {killed}; raise the task type's memory"
        if self.error and self.exit_code == 0 and not self.signal:
            return self.error
        return f"{killed}; {self.error}" if self.error else killed


@attrs.frozen
class ProcessStack:
    """Stack of one Python process, which shows where the process hangs."""

    pid: int
    command: str  # the beginning of its command line
    process: str  # the user process that it belongs to, if the container runs several
    frames: tuple[str, ...]  # the innermost frame first, each as Python prints it


@attrs.frozen
class Settlement:
    """The last report of an executor about a start of its user process."""

    start: int
    problem: str = ""  # reason why the newest checkpoint is not stored; empty if it is stored
    notices: tuple[str, ...] = ()  # notices about files of this start that are not stored
    unstored: Optional[int] = None  # number of files of this start that are not stored; None if unknown


@attrs.define(eq=False)
class ProcessState:
    """One start of a user process. Times are on the session's clock, in seconds."""

    start: int
    generation: int
    order: Optional[SendRendezvous] = None  # order to start it; None if a former application master sent the order
    resumed: Optional[ResumePoint] = None  # checkpoint restored into its directory, for this or an earlier process
    started_at: Optional[float] = None
    moved_at: Optional[float] = None  # time of its start or of its last new step
    step: Optional[int] = None  # newest reported step
    stepped: bool = False  # this process itself has reported a new step
    end: Optional[ProcessEnd] = None
    not_copied: str = ""  # reason why its newest checkpoint is not on the store; known once ``settled``
    ready: bool = False  # its readiness probe has succeeded
    settled: bool = False  # the process and the copies of its checkpoints have ended
    stacks: Optional[tuple[ProcessStack, ...]] = None  # if requested and received
    stop_by: Optional[float] = None  # deadline for ``settled`` after an order to stop; None without an order

    @property
    def runs(self) -> bool:
        """Whether the process was ordered and has not ended, as far as the session knows."""
        return self.end is None and not self.settled

    @property
    def is_running(self) -> bool:
        """Whether the process has started and has not ended, as far as the session knows."""
        return self.started_at is not None and self.runs

    @property
    def succeeded(self) -> bool:
        return self.end is not None and self.end.succeeded

    def moved(self, step: int, now: float) -> None:
        """Record a reported step."""
        if step != self.step:
            self.step, self.moved_at = step, now


@attrs.frozen
class Heartbeat:
    """The content of an executor's heartbeat."""

    values: MetricValues = attrs.field(factory=dict)
    progress: Optional[TaskProgress] = None
    parameters: dict[str, str] = attrs.field(factory=dict)  # logged by the first of its processes that logs any
    activity: str = ""
    upload_problem: str = ""  # what cannot be stored at present, and why
    notices: tuple[str, ...] = ()  # notices about files of this start that are not stored
    output_problem: str = ""  # reason why lines of its output are lost
    ready: bool = False  # its readiness probe has succeeded
    further: list[ProcessStatus] = attrs.field(factory=list)  # its further user processes, if the task has several


@attrs.define(eq=False)
class Task:
    """A task with its container, executor and user process, as the session knows them.

    State machines restrict the changes of the task's and the container's state. Times are on the session's clock, in
    seconds.
    """

    type: str
    index: int
    role: Role
    spec: TaskSpec
    decisive: bool  # its success counts for the success of the job
    scope: RestartScope
    successes: set[str] = attrs.field(factory=set)  # names of succeeded ``decisive`` tasks; shared by all tasks
    occasion: Occasion = attrs.field(factory=Occasion)  # the event being handled; shared by all tasks
    left_out: bool = False  # the gang runs without this task for now
    unrequested: bool = False  # left out and not requested, because other applications have its resources
    failure: Optional[Failure] = None
    first_symptom_at: Optional[float] = None  # time of the first sign of a problem
    ending: bool = False  # stopped permanently, because the job is ending
    waits_for_types: bool = False  # no container is requested until other types have reached their milestones
    given_up: bool = False  # it has failed permanently, and the job continues
    recorded: bool = False  # the event log contains its end
    released: bool = False  # it has succeeded, and its container was released

    # its container
    attempt: int = 1  # number of its newest container
    replaced: int = 0  # number of consecutive containers in which none of its user processes ran
    key: Optional[int] = None  # key of the outstanding request
    container: Optional[Container] = None
    preempted: bool = False  # the cluster has announced that it takes this container back
    needs_replacement: bool = False  # needs another container once ``busy`` is false
    deadline: Optional[float] = None  # time limit for a replacement's allocation, or for the registration

    # its executor
    connected: bool = False  # its stream is up
    heard_at: Optional[float] = None  # time of its newest message
    host: str = ""
    ports: dict[str, int] = attrs.field(factory=dict)
    values: MetricValues = attrs.field(factory=dict)  # metrics of its newest heartbeat
    activity: str = ""
    upload_problem: str = ""  # what cannot be stored at present, and why
    notices: tuple[str, ...] = ()  # notices about files of its newest start that are not stored
    unstored: Optional[int] = None  # number of files of its newest process that are not stored
    output_problem: str = ""  # reason why lines of its output in this container are lost
    last_words: str = ""  # end of its output when the container was killed

    # its user process
    start: int = 0  # number of its starts, across containers and application masters
    start_at_reset: int = 0  # ``start`` when a resumed job reset the task; a higher ``start`` means a start since
    process: Optional[ProcessState] = None  # newest process in this container
    progress: Optional[TaskProgress] = None
    parameters: dict[str, str] = attrs.field(factory=dict)
    further: list[ProcessStatus] = attrs.field(factory=list)  # its further user processes, if the task has several

    story: Story = attrs.field(init=False)
    _machine: StateMachine[TaskState] = attrs.field(init=False)
    _container_machine: StateMachine[ContainerState] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.story = Story(self.occasion)
        self._machine = StateMachine(self.name, state_transitions.TASK, TaskState.REQUESTED, self.story)
        self._container_machine = StateMachine(
            f"the container of {self.name}", state_transitions.CONTAINER, ContainerState.NONE, self.story
        )

    @property
    def state(self) -> TaskState:
        return self._machine.state

    def enter(self, state: TaskState, detail: str = "") -> None:
        """Change the state, see StateMachine. Raises ImpossibleTransitionError."""
        self._machine.enter(state, detail)
        if self.decisive and state is TaskState.SUCCEEDED:
            self.successes.add(self.name)
        else:
            self.successes.discard(self.name)

    def fail(self, failure: Failure, state: TaskState) -> None:
        """Record a failure. ``state`` is FAILED, or LOST if the container is lost."""
        self.failure = failure
        self.enter(state, first_line(failure.message))

    @property
    def name(self) -> str:
        return f"{self.type}:{self.index}"

    @property
    def node(self) -> Optional[str]:
        return self.container.node if self.container else None

    @property
    def end(self) -> Optional[ProcessEnd]:
        """The end of the task's newest user process, or None if this process has not ended."""
        return self.process.end if self.process else None

    @property
    def done(self) -> bool:
        """Whether the task needs no more containers although the job continues."""
        return self.given_up or self.released

    @property
    def ended(self) -> bool:
        return self.state.is_final or self.state is TaskState.LOST

    # ---- its container -----------------------------------------------------------------------------------------

    @property
    def container_state(self) -> ContainerState:
        return self._container_machine.state

    @property
    def has_container(self) -> bool:
        return self.container_state is ContainerState.LAUNCHED

    @property
    def launched(self) -> bool:
        """Whether an executor was started in the container, which may have ended since."""
        return self.container_state in (ContainerState.LAUNCHED, ContainerState.ENDED)

    @property
    def container_ended(self) -> bool:
        """Whether the container has ended or was released."""
        return self.container_state in (ContainerState.UNUSED, ContainerState.ENDED)

    def container_launched(self, container: Container) -> None:
        """Record that the container was granted and that an executor starts in it."""
        self.container = container
        self._container_machine.enter(ContainerState.LAUNCHED)
        self.enter(TaskState.STARTING)

    def container_adopted(self, container: Container) -> None:
        """Record that the executor of a container from a former application master has registered."""
        self.container = container
        self._container_machine.enter(ContainerState.LAUNCHED)
        self.enter(TaskState.REGISTERED)

    def container_gone(self) -> None:
        self._container_machine.enter(ContainerState.ENDED if self.launched else ContainerState.UNUSED)

    def without_container(self) -> None:
        """Forget the container, because another one is needed."""
        self.container = None
        self._container_machine.enter(ContainerState.NONE)
        self.enter(TaskState.REQUESTED)

    # ---- conditions and changes --------------------------------------------------------------------------------

    @property
    def is_up(self) -> bool:
        """Whether its executor is registered and connected."""
        return self.connected and self.has_container and bool(self.host)

    @property
    def silent(self) -> bool:
        """Whether the stream of its executor is down although the executor should report."""
        return self.heard_at is not None and not self.connected and self.has_container and not self.ended

    @property
    def runs(self) -> bool:
        """Whether its user process runs and its executor is connected."""
        return self.process is not None and self.process.is_running and self.is_up

    @property
    def has_begun(self) -> bool:
        """Whether a user process was ordered since the job started, or since it resumed after a suspension."""
        return self.start > self.start_at_reset

    @property
    def busy(self) -> bool:
        """Whether its user process may still report its end or a checkpoint."""
        return self.process is not None and not self.process.settled and self.has_container

    @property
    def is_uploading(self) -> bool:
        """Whether its user process has ended and its results are being stored. The reported memory is then 0."""
        return self.process is not None and self.process.is_running and self.values.get(MEMORY.name) == 0

    @property
    def ready(self) -> bool:
        """Whether a user process can be started."""
        return self.is_up and not self.busy and not self.needs_replacement

    def back_to_request(self) -> None:
        """Forget the container and request another one for the next attempt."""
        self.attempt += 1
        self.without_container()
        self.process = self.deadline = None
        self.connected = self.preempted = self.needs_replacement = self.released = False
        self.heard_at = self.first_symptom_at = None
        self.host, self.ports = "", {}
        self.activity = self.upload_problem = self.output_problem = self.last_words = ""
        self.further, self.notices, self.unstored = [], (), None

    def stop_requesting(self) -> None:
        """Give up the container, or the request for one, until the queue has spare capacity."""
        if self.launched:
            self.back_to_request()
        self.container_gone()
        self.deadline, self.replaced = None, 0
        self.left_out = self.unrequested = True
        self.enter(TaskState.LOST)

    def request_again(self) -> None:
        """Request a container again for this task, if none is requested."""
        if self.unrequested:
            self.left_out = self.unrequested = False
            self.failure = None
            self.without_container()


@attrs.frozen
class TaskOutcome:
    """The end of a task that needs no container any more."""

    failure: Optional[Failure] = None  # None if it has succeeded
    model_dir: str = ""  # URI of its model; empty if it left none
    progress: Optional[TaskProgress] = None
    parameters: dict[str, str] = attrs.field(factory=dict)
    outputs: list[OutputPart] = attrs.field(factory=list)  # its files for the job's outputs


def ended_record(task: Task, outcome: TaskOutcome) -> dict[str, Any]:
    """Mark the task as recorded. Return the part of its TaskHistory that prevents another run."""
    task.recorded = True
    return {"outcome": to_plain(outcome)}


def reopened_record(task: Task) -> dict[str, Any]:
    """Mark the task as not recorded. Return the part of its TaskHistory that permits another run, if any is needed."""
    was_recorded, task.recorded = task.recorded, False
    return {"outcome": None} if was_recorded else {}


class HoldSource(Enum):
    """Who suspends a job."""

    USER = "user"
    WINDOWS = "windows"


@attrs.frozen
class Hold:
    """A suspension of the job. It is pending until ``released``."""

    reason: str
    source: HoldSource
    released: bool = False  # all containers are released


@attrs.frozen
class TypeSize:
    """The number of tasks of one type."""

    instances: int  # present number of tasks, including unrequested tasks
    requested: Optional[int] = None  # target number during a resize; None without a resize
    by_policy: bool = False  # the job's policy chose ``requested``; False if a user did
    spare_limit: Optional[int] = None  # number that the policy may not exceed, set by a user; None without a limit


@attrs.define
class Sizing:
    """Decisions of users, of the windows and of the job's policy about the size of the job."""

    types: dict[str, TypeSize] = attrs.field(factory=dict)  # by task type
    hold: Optional[Hold] = None
    override_until: float = 0.0  # end of a user's override of closed windows; seconds since the epoch
    unrequested: list[str] = attrs.field(factory=list)  # names of unrequested tasks; set only in the event log


@attrs.define
class Generation:
    """One rendezvous of the gang."""

    number: int = 0  # 0 before the first rendezvous
    resume: Optional[ResumePoint] = None  # None if it starts without a checkpoint, or if unknown
    addresses: dict[str, TaskAddress] = attrs.field(factory=dict)  # newest address of each participating task, by name
    without: frozenset[str] = frozenset()  # names of the tasks that do not take part
    _cluster: Optional[ClusterSpec] = attrs.field(default=None, init=False, eq=False)  # cache until an address changes
    _listed: list[TaskAddress] = attrs.field(factory=list, init=False, eq=False)  # the addresses in the cache, in order
    _places: dict[str, int] = attrs.field(factory=dict, init=False, eq=False)  # positions in ``_listed``, by task name

    def enter(self, name: str, address: TaskAddress) -> None:
        if self.addresses.get(name) == address:
            return
        self.addresses[name] = address
        self._cluster = None
        if name in self._places:
            self._listed[self._places[name]] = address

    def cluster(self, tasks: Callable[[], Sequence[Task]]) -> ClusterSpec:
        """Return the cluster specification. It is large, so the same object is returned until an address changes.

        ``tasks`` returns the members. Its result is cached, because thousands of tasks may start one after another.
        """
        if not self._listed:
            for place, task in enumerate(tasks()):
                self._places[task.name] = place
                unknown = TaskAddress(task.type, task.index, task.role)
                self._listed.append(self.addresses.get(task.name, unknown))
        if self._cluster is None:
            self._cluster = ClusterSpec(self.number, tuple(self._listed))
        return self._cluster


class SessionState:
    """State that all components of the session share. ``out`` lists the actions that the master has not yet taken."""

    def __init__(self, job: JobSpec, framework: Framework, epoch: float) -> None:
        """``epoch`` is the session's time 0, in seconds since the Unix epoch."""
        decisive = deciding_types(job, framework)
        self.job = job
        self.epoch = epoch
        self.occasion = Occasion(epoch)
        self.story = Story(self.occasion)  # of the job; see also Task.story
        self.successes: set[str] = set()  # names of the deciding tasks that have succeeded
        self._every = [  # all tasks, including tasks that a resize may add
            Task(
                name,
                index,
                role,
                spec,
                name in decisive,
                spec.restart or framework.scope(role),
                self.successes,
                self.occasion,
            )
            for name, spec in job.tasks.items()
            for role in [job.role(name)]
            for index in range(spec.most_instances)
        ]
        self.sizing = Sizing({name: TypeSize(spec.instances) for name, spec in job.tasks.items()})
        self.tasks: list[Task] = []
        self.of_type: dict[str, list[Task]] = {name: [] for name in job.tasks}
        self.first_come = job.start is StartRule.FIRST_COME
        for task in self._every:
            task.waits_for_types = bool(job.waits_for(task.type))
        self.by_name = {task.name: task for task in self._every}
        self.resize({})
        self._machine = StateMachine("the job", state_transitions.JOB, JobState.WAITING, self.story)
        self.generation = Generation()
        self.checkpoint: Optional[ResumePoint] = None  # newest committed checkpoint
        self.checkpoint_problem = ""  # the reason if no checkpoint can be stored
        self.export: Optional[ExportedModel] = None  # newest export on the store
        self.export_request: Optional[ExportRequest] = None  # open request for an export
        self.export_problem = ""  # reason why the newest export is not on the store; empty if it is, or if none exists
        self.went_back = ""  # URI of the checkpoint of the last resume, if it was not the newest one
        self.restarts = 0
        self.restarted_after: Optional[Failure] = None  # failure that caused the newest restart
        self.nodes_in_cluster = 0  # 0 if unknown
        # Nodes on which processes began and failed, by what they lacked and by the cause of the failure.
        self.nodes_without: dict[tuple[Optional[str], str], set[str]] = {}
        self.verdict: Optional[Verdict] = None
        self.parts: tuple[OutputPart, ...] = ()  # parts of outputs to publish, once all deciding tasks have succeeded
        self.warnings: list[str] = []
        self.quota_warning = ""  # warning that a quota may soon prevent checkpoints
        self.out: list[Action] = []

    @property
    def phase(self) -> JobState:
        return self._machine.state

    def enter(self, phase: JobState) -> None:
        """Change the job's state. Raises ImpossibleTransitionError."""
        self._machine.enter(phase)

    def resize(self, instances: Mapping[str, int]) -> None:
        """Set the number of tasks of these types. The lists ``tasks`` and ``of_type`` change in place."""
        types = self.sizing.types
        types.update({name: attrs.evolve(types[name], instances=number) for name, number in instances.items()})
        self.tasks[:] = [task for task in self._every if self.has(task)]
        for name, tasks in self.of_type.items():
            tasks[:] = [task for task in self.tasks if task.type == name]

    def beyond(self, task_type: str, instances: int) -> list[Task]:
        """Return the tasks of a type whose index is at least ``instances``, including tasks that a resize may add."""
        return [task for task in self._every if task.type == task_type and task.index >= instances]

    def has(self, task: Task) -> bool:
        """Whether the job has this task at present. Other tasks exist only for a later resize."""
        return task.index < self.sizing.types[task.type].instances

    @property
    def is_ending(self) -> bool:
        """Whether the job is ending, or its deciding tasks have succeeded."""
        return self.verdict is not None or self.phase is JobState.FINISHING

    @property
    def finished(self) -> bool:
        return self.phase.is_final

    @property
    def last_copies(self) -> float:
        """Seconds that an executor may take for its last copies of checkpoints."""
        return 0.0 if self.job.checkpoint.mirror is MirrorScope.OFF else self.job.timeouts.checkpoint

    def cluster(self) -> ClusterSpec:
        """Return the cluster specification of the newest generation."""
        return self.generation.cluster(self.members)

    def members(self) -> list[Task]:
        """Return the members of the newest generation in rank order. After a recovery, some may lack an address."""
        if not self.generation.number:
            return []
        return [task for task in self.tasks if task.name not in self.generation.without]

    @property
    def leader(self) -> Optional[Task]:
        """The task that represents the job: rank 0 of the newest generation, or of the first one if none exists."""
        leading, without = leading_type(self.job.roles), self.generation.without
        return next((task for task in self.tasks if task.type == leading and task.name not in without), None)

    def enter_cluster(self, task: Task) -> None:
        """Set the address of this task to that of its present executor."""
        self.generation.enter(task.name, TaskAddress(task.type, task.index, task.role, task.host, dict(task.ports)))

    @property
    def before_the_gang(self) -> set[str]:
        """The task types that must reach a milestone before the gang starts, directly or indirectly."""
        before: set[str] = set()
        left = [name for name, role in self.job.roles.items() if in_cluster(role)]
        while left:
            new = self.job.waits_for(left.pop()).keys() - before
            before |= new
            left += new
        return before

    def emit(self, *actions: Optional[Action]) -> None:
        self.out += [action for action in actions if action is not None]

    def note(
        self, event: str, message: str, task: Optional[Task] = None, data: Optional[Mapping[str, Any]] = None
    ) -> None:
        """Add a line for the event log. For ``data`` see History."""
        self.out.append(Note(event, message, task.name if task else None, dict(data or {})))

    def note_sizing(self, event: str, message: str, data: Optional[Mapping[str, Any]] = None) -> None:
        """Add a line for the event log that also contains all fields of ``sizing``."""
        sizing = attrs.evolve(self.sizing, unrequested=[each.name for each in self.tasks if each.unrequested])
        self.note(event, message, data={**(data or {}), "sizing": to_plain(sizing)})

    def taken(self) -> list[Action]:
        """Return the pending actions and clear the list."""
        out, self.out = self.out, []
        return out
