"""A task's user process: one start of it, from the order to the last copy of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable, Optional

import attrs

from tony_provider.runtime.am import descriptions
from tony_provider.runtime.am.resource_manager import Container
from tony_provider.runtime.am.session import state_transitions
from tony_provider.runtime.am.session.actions import Action, Note, SendRendezvous, Verdict
from tony_provider.runtime.am.session.state_transitions import ContainerState, Lifecycle
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.common.codec import to_plain
from tony_provider.runtime.frameworks.base import ClusterSpec, Framework, TaskAddress
from tony_provider.runtime.frameworks.task_type_rules import deciding_types
from tony_provider.runtime.jobspec.model import JobSpec, MirrorScope, RestartScope, Role, StartRule, TaskSpec
from tony_provider.runtime.jobspec.task_types import in_cluster, leading_type
from tony_provider.runtime.outputs.output_place import OutputPart
from tony_provider.runtime.protocol.status import (
    ExportedModel,
    ExportRequest,
    Failure,
    JobState,
    ProcessStatus,
    TaskProgress,
    TaskState,
)


@attrs.frozen
class ProcessEnd:
    """How a user process ended, as its executor saw it."""

    start: int
    exit_code: int = 0  # when no signal ended it
    signal: int = 0  # 0: none
    out_of_memory: bool = False
    stopped: bool = False  # the executor was told to stop it
    output_tail: str = ""  # last lines of its stderr
    error: str = ""  # what the executor itself could not do
    not_kept: str = ""  # it ended well, and why what it left could not be kept
    model_dir: str = ""  # URI; empty: it left none
    progress: Optional[TaskProgress] = None
    output_problem: str = ""  # why lines that it printed are lost
    node_problem: str = ""  # what its node or container lacks
    process: str = ""  # which of several processes it was
    outputs: tuple[OutputPart, ...] = ()  # what it left for outputs of the job, on the store

    @property
    def succeeded(self) -> bool:
        problem = self.error or self.not_kept or self.out_of_memory or self.stopped
        return self.exit_code == 0 and self.signal == 0 and not problem

    @property
    def in_words(self) -> str:
        """What became of the user process, to follow the task's name."""
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
    """The place where one Python process hangs."""

    pid: int
    command: str  # the beginning of its command line
    process: str  # the user process that it belongs to, if the container runs several
    frames: tuple[str, ...]  # the innermost first, as Python prints them


@attrs.frozen
class Settlement:
    """The last report of an executor about a start of its user process."""

    start: int
    problem: str = ""  # the reason if the newest checkpoint is not stored
    notices: tuple[str, ...] = ()  # as in ``Heartbeat``
    unstored: Optional[int] = None  # number of its files that are not stored; None if unknown


@attrs.define(eq=False)
class ProcessState:
    """Times are the session's clock, in seconds."""

    start: int
    generation: int
    order: Optional[SendRendezvous] = None  # None: a former application master gave it
    resumed: Optional[ResumePoint] = None  # what its directory was restored from, perhaps for a former process
    started_at: Optional[float] = None
    moved_at: Optional[float] = None  # when it was last seen to take a step, or started
    step: Optional[int] = None  # the newest that it reported
    stepped: bool = False  # this process has reported a step, not only its predecessor
    end: Optional[ProcessEnd] = None
    not_copied: str = ""  # once it is settled: why its newest checkpoint is not on the store
    ready: bool = False  # its readiness probe has succeeded
    settled: bool = False  # nothing more comes of it: it has ended, and so have the copies of its checkpoints
    stacks: Optional[tuple[ProcessStack, ...]] = None  # if they were requested, and have come
    stop_by: Optional[float] = None  # it was told to stop, and is to be settled by then

    @property
    def runs(self) -> bool:
        """As far as is known: it was ordered, and did not end."""
        return self.end is None and not self.settled

    @property
    def succeeded(self) -> bool:
        return self.end is not None and self.end.succeeded

    def moved(self, step: int, now: float) -> None:
        """It reported this step."""
        if step != self.step:
            self.step, self.moved_at = step, now


@attrs.frozen
class Heartbeat:
    """What a heartbeat says."""

    rss_bytes: int = 0
    cpu_percent: float = 0.0
    progress: Optional[TaskProgress] = None
    activity: str = ""
    trouble: str = ""  # what does not get to the store at present, and why
    notices: tuple[str, ...] = ()  # about files of this start that are not stored
    output_problem: str = ""  # why lines that it printed are lost
    ready: bool = False  # its readiness probe has succeeded
    further: list[ProcessStatus] = attrs.field(factory=list)  # its other processes, where it has several
    read_bytes: Optional[int] = None  # from disks, since its executor began; so the next three. None: cannot be told
    written_bytes: Optional[int] = None
    received_bytes: Optional[int] = None  # by network, where the container has one of its own
    sent_bytes: Optional[int] = None
    gpu_percent: Optional[float] = None  # mean over its GPUs; 100 is one of them, busy all the time
    gpu_bytes: Optional[int] = None  # of all its GPUs together
    node_busy_percent: Optional[float] = None  # of all processors of its node; None: cannot be told


@attrs.define(eq=False)
class Task:
    """A task, its container, its executor and its user process, as far as the session counts on them.

    Its states and its container's change as ``lifecycle`` says. Times are the session's clock, in seconds.
    """

    type: str
    index: int
    role: Role
    spec: TaskSpec
    decisive: bool
    scope: RestartScope
    successes: set[str] = attrs.field(factory=set)  # names of those that decide and have succeeded; shared by all tasks
    absent: bool = False  # the gang goes on without it, for now
    vacant: bool = False  # and nothing is asked for it: what the queue had to spare went to others
    failure: Optional[Failure] = None
    trouble_at: Optional[float] = None  # first sign that something is wrong with it
    told_to_stop: bool = False  # for good: the job is ending
    waits: bool = False  # for tasks of other types; no container is asked for
    given_up: bool = False  # it has failed for good, and the job goes on
    recorded: bool = False  # the event log says that it is over
    released: bool = False  # it has succeeded, and its container was given back

    # its container
    attempt: int = 1  # counts its containers
    replaced: int = 0  # containers in a row in which no user process of it has run
    key: Optional[int] = None  # of the outstanding request
    container: Optional[Container] = None
    yields: bool = False  # the cluster has said that it takes this container back
    unfit: bool = False  # it needs another container as soon as nothing more comes of this one
    deadline: Optional[float] = None  # of a replacement's allocation, or of the registration

    # its executor
    connected: bool = False  # its stream is up
    heard_at: Optional[float] = None
    host: str = ""
    ports: dict[str, int] = attrs.field(factory=dict)
    rss_bytes: Optional[int] = None
    cpu_percent: Optional[float] = None
    activity: str = ""
    store_trouble: str = ""  # what does not get to the store at present, and why
    notices: tuple[str, ...] = ()  # about files of its newest start that are not stored
    unstored: Optional[int] = None  # number of files of its newest process that are not stored
    output_problem: str = ""  # why lines that it printed in this container are lost
    last_words: str = ""  # the end of what was printed in it, when it was killed

    # its user process
    start: int = 0  # counts the starts of it, over containers and application masters
    anew: int = 0  # what start was when the job came again: it has begun since then once that is more
    process: Optional[ProcessState] = None  # the newest in this container
    progress: Optional[TaskProgress] = None
    further: list[ProcessStatus] = attrs.field(factory=list)  # the other processes, where it has several

    _lifecycle: Lifecycle[TaskState] = attrs.field(init=False)
    _container_lifecycle: Lifecycle[ContainerState] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._lifecycle = Lifecycle(self.name, state_transitions.TASK, TaskState.REQUESTED)
        self._container_lifecycle = Lifecycle(
            f"the container of {self.name}", state_transitions.CONTAINER, ContainerState.NONE
        )

    @property
    def state(self) -> TaskState:
        return self._lifecycle.state

    def enter(self, state: TaskState) -> None:
        """Raises ImpossibleTransitionError."""
        self._lifecycle.enter(state)
        if self.decisive and state is TaskState.SUCCEEDED:
            self.successes.add(self.name)
        else:
            self.successes.discard(self.name)

    def fail(self, failure: Failure, state: TaskState) -> None:
        """``state``: FAILED, or LOST with its container."""
        self.failure = failure
        self.enter(state)

    @property
    def name(self) -> str:
        return f"{self.type}:{self.index}"

    @property
    def node(self) -> Optional[str]:
        return self.container.node if self.container else None

    @property
    def over(self) -> bool:
        """It needs no container any more, though the job goes on."""
        return self.given_up or self.released

    @property
    def ended(self) -> bool:
        return self.state.is_final or self.state is TaskState.LOST

    # ---- its container -----------------------------------------------------------------------------------------

    @property
    def container_state(self) -> ContainerState:
        return self._container_lifecycle.state

    @property
    def has_container(self) -> bool:
        return self.container_state is ContainerState.LAUNCHED

    @property
    def launched(self) -> bool:
        """An executor was started in the container, which may have ended since."""
        return self.container_state in (ContainerState.LAUNCHED, ContainerState.ENDED)

    @property
    def container_ended(self) -> bool:
        """Or was taken from it."""
        return self.container_state in (ContainerState.UNUSED, ContainerState.ENDED)

    def container_launched(self, container: Container) -> None:
        """It was granted, and an executor starts in it."""
        self.container = container
        self._container_lifecycle.enter(ContainerState.LAUNCHED)
        self.enter(TaskState.STARTING)

    def container_adopted(self, container: Container) -> None:
        """A former application master launched it, and its executor is back."""
        self.container = container
        self._container_lifecycle.enter(ContainerState.LAUNCHED)
        self.enter(TaskState.REGISTERED)

    def container_gone(self) -> None:
        self._container_lifecycle.enter(ContainerState.ENDED if self.launched else ContainerState.UNUSED)

    def without_container(self) -> None:
        """Another one is wanted."""
        self.container = None
        self._container_lifecycle.enter(ContainerState.NONE)
        self.enter(TaskState.REQUESTED)

    # ---- what may be done with it ------------------------------------------------------------------------------

    @property
    def is_up(self) -> bool:
        """Its executor has registered and can be told something."""
        return self.connected and self.has_container and bool(self.host)

    @property
    def silent(self) -> bool:
        """Its executor should be heard of and its stream is down."""
        return self.heard_at is not None and not self.connected and self.has_container and not self.ended

    @property
    def runs(self) -> bool:
        """Its user process runs, and its executor can be told something."""
        process = self.process
        return process is not None and process.started_at is not None and process.runs and self.is_up

    @property
    def has_begun(self) -> bool:
        """Its user process was ordered since the job began, or came again after all containers were given back."""
        return self.start > self.anew

    @property
    def busy(self) -> bool:
        """Something may still come of its user process: its end, or a checkpoint."""
        return self.process is not None and not self.process.settled and self.has_container

    @property
    def is_uploading(self) -> bool:
        """Its user process has ended, and its results are on their way: executors say so by a memory of 0."""
        process = self.process
        return process is not None and process.started_at is not None and process.runs and self.rss_bytes == 0

    @property
    def ready(self) -> bool:
        """Its user process can be started."""
        return self.is_up and not self.busy and not self.unfit

    def back_to_request(self) -> None:
        """Its container is gone and another one is wanted, for the next attempt."""
        self.attempt += 1
        self.without_container()
        self.process = self.deadline = None
        self.connected = self.yields = self.unfit = self.released = False
        self.heard_at = self.trouble_at = None
        self.host, self.ports = "", {}
        self.activity = self.store_trouble = self.output_problem = self.last_words = ""
        self.further, self.notices, self.unstored = [], (), None

    def vacate(self) -> None:
        """It has no container any more, or none yet, and none is wanted until there is room to spare."""
        if self.launched:
            self.back_to_request()
        self.container_gone()
        self.deadline, self.replaced = None, 0
        self.absent = self.vacant = True
        self.enter(TaskState.LOST)

    def occupy(self) -> None:
        """A container is wanted for it again, as for others."""
        if self.vacant:
            self.absent = self.vacant = False
            self.failure = None
            self.without_container()


@attrs.frozen
class TaskOutcome:
    """The end of a task that needs no container any more."""

    failure: Optional[Failure] = None  # None: it has succeeded
    model_dir: str = ""  # URI; empty: it left none
    progress: Optional[TaskProgress] = None
    outputs: list[OutputPart] = attrs.field(factory=list)  # what it left for outputs of the job


def ended_record(task: Task, outcome: TaskOutcome) -> dict[str, Any]:
    """The part of its TaskHistory by which nobody runs it again."""
    task.recorded = True
    return {"outcome": to_plain(outcome)}


def reopened_record(task: Task) -> dict[str, Any]:
    """The part of its TaskHistory by which it runs again after all; empty where nothing says otherwise."""
    was_recorded, task.recorded = task.recorded, False
    return {"outcome": None} if was_recorded else {}


@attrs.define
class Generation:
    """One rendezvous of the gang."""

    number: int = 0  # 0: there was none yet
    resume: Optional[ResumePoint] = None  # None: from the beginning, or not known
    addresses: dict[str, TaskAddress] = attrs.field(factory=dict)  # by task; the newest of those that take part
    without: frozenset[str] = frozenset()  # tasks that do not take part
    _cluster: Optional[ClusterSpec] = attrs.field(default=None, init=False, eq=False)  # until an address changes
    _listed: list[TaskAddress] = attrs.field(factory=list, init=False, eq=False)  # what it is made of
    _places: dict[str, int] = attrs.field(factory=dict, init=False, eq=False)  # of the tasks in there

    def enter(self, name: str, address: TaskAddress) -> None:
        if self.addresses.get(name) == address:
            return
        self.addresses[name] = address
        self._cluster = None
        if name in self._places:
            self._listed[self._places[name]] = address

    def cluster(self, tasks: Callable[[], Sequence[Task]]) -> ClusterSpec:
        """One and the same as long as it is: it is large, and so is what is made of it.

        ``tasks`` gives those that belong to it. It is asked once: where tasks begin by the thousand, each with an
        address of its own, the others' stay the same.
        """
        if not self._listed:
            for place, task in enumerate(tasks()):
                self._places[task.name] = place
                self._listed.append(self.addresses.get(task.name) or _without_address(task))
        if self._cluster is None:
            self._cluster = ClusterSpec(self.number, tuple(self._listed))
        return self._cluster


def _without_address(task: Task) -> TaskAddress:
    return TaskAddress(task.type, task.index, task.role)


class SessionState:
    """``out`` are the actions that were not taken yet."""

    def __init__(self, job: JobSpec, framework: Framework, epoch: float) -> None:
        """``epoch`` + the session's time = seconds since the epoch."""
        decisive = deciding_types(job, framework)
        self.job = job
        self.epoch = epoch
        self.successes: set[str] = set()  # names of the tasks that decide and have succeeded
        self._every = [  # also those that the job may be resized to
            Task(
                name,
                index,
                role,
                spec,
                name in decisive,
                spec.restart or framework.scope(role),
                self.successes,
            )
            for name, spec in job.tasks.items()
            for role in [job.role(name)]
            for index in range(spec.most_instances)
        ]
        self.instances = {name: spec.instances for name, spec in job.tasks.items()}  # as many as there are at present
        self.tasks: list[Task] = []
        self.of_type: dict[str, list[Task]] = {name: [] for name in job.tasks}
        self.first_come = job.start is StartRule.FIRST_COME
        for task in self._every:
            task.waits = bool(job.waits_for(task.type))
        self.by_name = {task.name: task for task in self._every}
        self.resize({})
        self._lifecycle = Lifecycle("the job", state_transitions.JOB, JobState.WAITING)
        self.generation = Generation()
        self.checkpoint: Optional[ResumePoint] = None  # the newest that was committed
        self.checkpoint_problem = ""  # the reason if no checkpoint can be stored
        self.export: Optional[ExportedModel] = None  # the newest that is on the store
        self.export_request: Optional[ExportRequest] = None  # that is not answered
        self.export_problem = ""  # why the newest is not on the store; empty: it is, or there is none
        self.went_back = ""  # URI of an older checkpoint than the newest one, from which the job resumed last
        self.restarts = 0
        self.verdict: Optional[Verdict] = None
        self.parts: tuple[OutputPart, ...] = ()  # of outputs: those that count, once all that decide have succeeded
        self.warnings: list[str] = []
        self.quota_warning = ""  # that a quota may soon prevent checkpoints
        self.out: list[Action] = []

    @property
    def phase(self) -> JobState:
        return self._lifecycle.state

    def enter(self, phase: JobState) -> None:
        """Raises ImpossibleTransitionError."""
        self._lifecycle.enter(phase)

    def resize(self, instances: Mapping[str, int]) -> None:
        """Have so many tasks of these types from now on. Whoever holds ``tasks`` or ``of_type`` sees it."""
        self.instances.update(instances)
        self.tasks[:] = [task for task in self._every if self.has(task)]
        for name, tasks in self.of_type.items():
            tasks[:] = [task for task in self.tasks if task.type == name]

    def beyond(self, task_type: str, instances: int) -> list[Task]:
        """The tasks of a type, also of those that it may be resized to, that it has not with so many."""
        return [task for task in self._every if task.type == task_type and task.index >= instances]

    def has(self, task: Task) -> bool:
        """Whether the job has this task at present, which it may be resized to."""
        return task.index < self.instances[task.type]

    @property
    def finished(self) -> bool:
        return self.phase.is_final

    @property
    def last_copies(self) -> float:
        """Seconds that an executor may take for its last copies of checkpoints."""
        return 0.0 if self.job.checkpoint.mirror is MirrorScope.OFF else self.job.timeouts.checkpoint

    def cluster(self) -> ClusterSpec:
        """The newest generation."""
        return self.generation.cluster(self.members)

    def members(self) -> list[Task]:
        """Of the newest generation, also those that a recovery has no address of yet. Ranks follow."""
        if not self.generation.number:
            return []
        return [task for task in self.tasks if task.name not in self.generation.without]

    @property
    def leader(self) -> Optional[Task]:
        """The task that speaks for the job: rank 0 of the newest generation, or of the first one to come."""
        leading, without = leading_type(self.job.roles), self.generation.without
        return next((task for task in self.tasks if task.type == leading and task.name not in without), None)

    def enter_cluster(self, task: Task) -> None:
        """Others are to look for this task where its executor is now."""
        self.generation.enter(task.name, TaskAddress(task.type, task.index, task.role, task.host, dict(task.ports)))

    @property
    def before_the_gang(self) -> set[str]:
        """The task types that those which begin together wait for, and what these wait for."""
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
        """``data``: see History."""
        self.out.append(Note(event, message, task.name if task else None, dict(data or {})))

    def taken(self) -> list[Action]:
        """Hand the actions over."""
        out, self.out = self.out, []
        return out
