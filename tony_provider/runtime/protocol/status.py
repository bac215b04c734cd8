"""For how long the token holds by which an application reaches its store."""

from __future__ import annotations

from enum import Enum
from typing import ClassVar, Optional

import attrs

from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.common import clock, quantities


@attrs.frozen
class TokenLife:
    """From when until when the token that an application has holds. Epoch milliseconds, by the NameNode's clock."""

    issued_ms: int
    until_ms: int

    @property
    def half_ms(self) -> int:
        """When half of it is over: there is time enough to bring a newer one, and as much again to try."""
        return (self.issued_ms + self.until_ms) // 2

    @property
    def last_quarter_ms(self) -> int:
        """When a quarter of it is left, and nobody has brought a newer one: people are to know."""
        return self.until_ms - (self.until_ms - self.issued_ms) // 4


@attrs.frozen
class ExportedModel:
    """An export that is on the store."""

    step: int
    uri: str  # of its directory
    exported_ms: int = 0  # epoch, when the program had it whole, by its node's clock
    asked_ms: int = 0  # of the newest ExportRequest that came before it; 0: the program made it by itself

    @property
    def label(self) -> str:
        """For people: ``step 120, 14:03:12 UTC``."""
        return f"step {self.step}, {clock.time_of_day(self.exported_ms)}"


@attrs.frozen
class ExportRequest:
    """A request for an export that is not answered yet."""

    asked_ms: int  # epoch, by the master's clock: which request it is
    reason: str
    since_ms: int  # when the first one was made that is not answered
    problem: str = ""  # why the export that it led to is not on the store; empty: none has failed


@attrs.frozen(kw_only=True)
class TimeUse:
    """Where an application's time went, in seconds: each moment counts once, but for the last two.

    None: not known, such as the queue's part to a master that was not told when it was submitted.
    """

    WRITER_MAY_BE_NEWER: ClassVar[bool] = True  # see ``codec``

    queue: Optional[float] = None  # from the submission until an application master ran
    allocation: float = 0.0  # until the containers of the gang were there; also later ones that were waited for
    localisation: float = 0.0  # until the first user process started: files are copied and unpacked
    start: float = 0.0  # until the first step of the first generation, as far as its reports tell
    training: float = 0.0
    restarts: float = 0.0  # the gang was down, up to its next step; of tasks that start again alone, their part of it
    suspended: float = 0.0  # nothing ran and nothing was asked for: somebody had suspended the job
    end: float = 0.0  # from the verdict until everything was stopped and kept
    checkpoints: float = 0.0  # copying them to the store, in the background: part of the others
    repeated: float = 0.0  # training that was lost to restarts and done again: part of ``training``

    @property
    def waiting(self) -> float:
        """In the queue, and for the containers of the gang."""
        return (self.queue or 0.0) + self.allocation


@attrs.frozen(kw_only=True)
class TypeUse:
    """What the tasks of one type asked for and used, over all their containers."""

    WRITER_MAY_BE_NEWER: ClassVar[bool] = True  # see ``codec``

    type: str
    tasks: int
    container_seconds: float  # that containers were held, of all tasks together
    memory_bytes: int  # asked for, for one container; so the next two
    vcores: int
    gpus: int = 0
    used_seconds: float = 0.0  # of these the user processes ran
    most_rss_bytes: Optional[int] = None  # of any of its tasks, ever
    most_rss_task: Optional[str] = None  # which one that was
    mean_cpu_percent: Optional[float] = None  # while user processes ran, of one task; 100 is one core
    most_cpu_percent: Optional[float] = None  # the highest mean over half a minute, of any of its tasks
    crowded_percent: Optional[float] = None  # of that time the processors of its node were nearly all busy
    mean_gpu_percent: Optional[float] = None  # of one GPU
    most_gpu_bytes: Optional[int] = None  # of one task


class JobState(str, Enum):
    """What a job is doing, or how it has ended."""

    WAITING = "WAITING"  # for the containers of the whole gang
    STARTING = "STARTING"  # containers are there, executors are starting or registering
    RUNNING = "RUNNING"
    RESTARTING = "RESTARTING"  # between two generations: tasks stop, lost containers are replaced, the step is chosen
    SUSPENDED = "SUSPENDED"  # all containers were given back, and are asked for again when somebody says so
    RECOVERING = "RECOVERING"  # a new application master waits for the running tasks to register with it
    FINISHING = "FINISHING"  # the verdict is known, tasks are being stopped and logs kept
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    KILLED = "KILLED"

    @property
    def is_final(self) -> bool:
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.KILLED)


class FinalStatus(str, Enum):
    """How an application ended, as YARN's FinalApplicationStatus has it."""

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    KILLED = "KILLED"


class TaskState(str, Enum):
    """What a task is doing, or how it has ended."""

    REQUESTED = "REQUESTED"
    STARTING = "STARTING"
    REGISTERED = "REGISTERED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    LOST = "LOST"
    STOPPED = "STOPPED"  # ended because the job did

    @property
    def is_final(self) -> bool:
        return self in (TaskState.SUCCEEDED, TaskState.FAILED, TaskState.STOPPED)


class FailureKind(str, Enum):
    """Why a job failed, for code that decides what to do next."""

    USER = "USER"  # a user process failed
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    CONTAINER_LOST = "CONTAINER_LOST"
    LAUNCH = "LAUNCH"  # a container or command could not be started
    NODE = "NODE"  # its node or container lacked something: its disk was full, a port was taken, a GPU was lost
    QUEUE_TIMEOUT = "QUEUE_TIMEOUT"
    REGISTRATION_TIMEOUT = "REGISTRATION_TIMEOUT"
    DEPENDENCY_TIMEOUT = "DEPENDENCY_TIMEOUT"  # a task type has waited too long for others
    PREEMPTED = "PREEMPTED"  # the cluster took the container back, or its node out of service
    STALLED = "STALLED"  # no new step for timeouts.stall
    UPLOAD = "UPLOAD"  # training has ended well, and what it left could not be kept on the store
    INPUT = "INPUT"  # an input of the job could not be listed or dealt
    OUTPUT = "OUTPUT"  # what the tasks have left for an output could not be put at its path
    CHECKPOINT = "CHECKPOINT"  # the resume point could not be restored
    FENCED = "FENCED"  # a newer application owns the checkpoint chain
    KILLED = "KILLED"
    INTERNAL = "INTERNAL"


@attrs.frozen
class Failure:
    """The failure that ended a job: which task failed, and how."""

    kind: FailureKind
    message: str  # names the task, its node, exit code or signal, and ends with the last lines of its stderr
    task: Optional[str] = None  # such as worker:0
    exit_code: Optional[int] = None
    signal: Optional[int] = None
    permanent: bool = False  # the same job would fail again: neither a restart nor another application would mend it


@attrs.frozen
class TaskProgress:
    """What a task's user process has reported of its progress, newest values."""

    step: int = 0
    total_steps: Optional[int] = None
    steps_per_second: Optional[float] = None
    metrics: dict[str, float] = attrs.field(factory=dict)


@attrs.frozen
class ProcessStatus:
    """The status of one of a task's several user processes."""

    local_rank: int  # in its container, from 0
    rank: int
    rss_bytes: Optional[int] = None
    cpu_percent: Optional[float] = None
    progress: Optional[TaskProgress] = None

    @property
    def name(self) -> str:
        """For people, below the name of its task."""
        return f"rank {self.rank} (local rank {self.local_rank})"


@attrs.frozen
class TaskStatus:
    """The status of one task, with its newest container. Where it has several processes, local rank 0 speaks for it."""

    type: str
    index: int
    state: TaskState
    attempt: int = 1  # counts the containers that this task has had
    start: int = 0  # counts the starts of its user process
    container_id: Optional[str] = None
    node: Optional[str] = None
    heartbeat_ms: Optional[int] = None  # epoch, when the application master last heard of it
    rss_bytes: Optional[int] = None
    cpu_percent: Optional[float] = None
    progress: Optional[TaskProgress] = None
    exit_code: Optional[int] = None
    signal: Optional[int] = None
    activity: str = ""
    further: list[ProcessStatus] = attrs.field(factory=list)  # its other processes, while they run
    unstored: Optional[int] = None  # number of files of its newest process that are not stored; None if unknown

    @property
    def name(self) -> str:
        return f"{self.type}:{self.index}"


@attrs.frozen
class InputStatus:
    """An input of the job: what was listed of it, and how much of it is done."""

    name: str
    deal: str  # an InputDeal; a sensor need not load the specification for it
    shards: int
    size: int  # bytes of all shards
    listing: str  # URI of the file with all shards, by size and time of modification
    committed: Optional[int] = None  # shards; None with a static deal, where nobody counts
    failed: int = 0  # shards that could not be read

    @property
    def label(self) -> str:
        """How much it is, and how much is done, for people."""
        said = f"{quantities.count(self.shards, 'shard')}, {quantities.size(self.size)}"
        if self.committed is not None:
            said += f"; {self.committed} committed"
        return f"{said}, {self.failed} failed" if self.failed else said


@attrs.frozen
class OutputStatus:
    """An output of the job: where it is, and how much is there."""

    name: str
    uri: str
    files: Optional[int] = None  # None: they are not there (yet)
    bytes: Optional[int] = None


@attrs.frozen
class JobStatus:
    """The status of a job and of all its tasks, as its master sees them at one moment."""

    WRITER_MAY_BE_NEWER: ClassVar[bool] = True  # see ``codec``

    application_id: str
    name: str
    state: JobState
    message: str = ""  # one line for people: what it is doing or waiting for
    am_attempt: int = 1
    generation: int = 0
    started_ms: int = 0  # epoch
    updated_ms: int = 0
    finished_ms: Optional[int] = None
    progress: float = 0.0  # 0 to 1
    tasks: list[TaskStatus] = attrs.field(factory=list)
    leader: Optional[str] = None  # the task whose progress is the job's: the chief, or rank 0; one of ``tasks``
    model_dir: Optional[str] = None
    resumed: Optional[ResumePoint] = None  # that the current generation went on from; None: it began at the beginning
    checkpoint: Optional[ResumePoint] = None  # the newest that is committed
    export: Optional[ExportedModel] = None  # the newest export of the model that is on the store
    export_request: Optional[ExportRequest] = None  # that is not answered yet
    restarts: int = 0  # of the gang or of single tasks, whatever they were for
    resizing: dict[str, int] = attrs.field(factory=dict)  # how many tasks there are to be, of types being resized
    failure: Optional[Failure] = None
    warnings: list[str] = attrs.field(factory=list)  # such as a side-car that failed, a checkpoint that is not kept
    troubles: list[str] = attrs.field(factory=list)  # whom the application master cannot reach just now, since when
    inputs: list[InputStatus] = attrs.field(factory=list)
    outputs: list[OutputStatus] = attrs.field(factory=list)
    times: Optional[TimeUse] = None  # None: an older master does not say
    use: list[TypeUse] = attrs.field(factory=list)  # by task type, in the job's order
    store_token: Optional[TokenLife] = None  # None: the store asks for none, or an older master does not say
    version: int = 1  # of this message's form

    @property
    def leading(self) -> Optional[TaskProgress]:
        """What the leader has reported last; None: nothing yet."""
        return next((task.progress for task in self.tasks if task.name == self.leader), None)

    @property
    def step(self) -> Optional[int]:
        return self.leading.step if self.leading else None

    @property
    def total_steps(self) -> Optional[int]:
        return self.leading.total_steps if self.leading else None

    @property
    def steps_per_second(self) -> Optional[float]:
        return self.leading.steps_per_second if self.leading else None

    @property
    def metrics(self) -> dict[str, float]:
        return self.leading.metrics if self.leading else {}

    @property
    def generation_after_restart(self) -> Optional[int]:
        """The generation, for people; None before a restart.

        Job suspensions and lost application masters also begin generations, which would look like restarts.
        """
        return self.generation if self.generation > 1 and self.restarts else None

    @property
    def resumed_step(self) -> Optional[int]:
        """The step that the generation went on from; None also where nothing says a step."""
        return self.resumed.step if self.resumed else None

    @property
    def checkpoint_step(self) -> Optional[int]:
        """The step of the newest committed checkpoint; None also where nothing says a step."""
        return self.checkpoint.step if self.checkpoint else None

    @property
    def checkpoint_dir(self) -> Optional[str]:
        """URI of the newest committed checkpoint; None also where it was removed at the end."""
        return (self.checkpoint.uri or None) if self.checkpoint else None
