"""The status of a job: states, tasks, failures, inputs, outputs, exports, use of time and resources, store token."""

from __future__ import annotations

from enum import Enum
from typing import ClassVar, Optional

import attrs

from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.common import clock, quantities


@attrs.frozen
class TokenLife:
    """Validity of an application's current store token. Epoch milliseconds, by the NameNode's clock."""

    issued_ms: int
    until_ms: int

    @property
    def half_ms(self) -> int:
        """Time when half of the validity is over. Enough time then remains to fetch a newer token, and to retry."""
        return (self.issued_ms + self.until_ms) // 2

    @property
    def last_quarter_ms(self) -> int:
        """Time when a quarter of the validity remains. Without a newer token, users must then be warned."""
        return self.until_ms - (self.until_ms - self.issued_ms) // 4


@attrs.frozen
class ExportedModel:
    """Export of the model on the store."""

    step: int
    uri: str  # URI of the directory with the export
    exported_ms: int = 0  # epoch time when the export was complete, by its node's clock
    asked_ms: int = 0  # ``asked_ms`` of the newest ExportRequest before this export; 0 if there was none

    @property
    def label(self) -> str:
        """Label for people: ``step 120, 14:03:12 UTC``."""
        return f"step {self.step}, {clock.time_of_day(self.exported_ms)}"


@attrs.frozen
class ExportRequest:
    """Request for an export that is not yet answered."""

    asked_ms: int  # epoch time of the request, by the master's clock; identifies the request
    reason: str
    since_ms: int  # epoch time of the oldest unanswered request
    problem: str = ""  # reason why the resulting export could not be stored; empty if no export has failed


@attrs.frozen(kw_only=True)
class TimeUse:
    """Use of an application's time, in seconds.

    Each moment counts in exactly one field, and may also count in ``checkpoints`` or ``repeated``.
    """

    WRITER_MAY_BE_NEWER: ClassVar[bool] = True  # see ``codec``

    queue: Optional[float] = None  # time from the submission until an application master ran; None if unknown
    allocation: float = 0.0  # time until the gang had its containers, and later waits of the gang
    localisation: float = 0.0  # then until the first user process started: copying and unpacking of files
    start: float = 0.0  # then until the first step of the first generation, as far as known from reports
    training: float = 0.0
    restarts: float = 0.0  # time until the first step after a restart; single tasks count by their share
    suspended: float = 0.0  # time while the job was suspended: no containers and no requests
    end: float = 0.0  # time from the verdict until all tasks were stopped and all files stored
    checkpoints: float = 0.0  # time of copies to the store, concurrently with other fields
    repeated: float = 0.0  # part of ``training`` that repeats steps which a restart has lost

    @property
    def waiting(self) -> float:
        """Time in the queue, and waiting for the gang's containers."""
        return (self.queue or 0.0) + self.allocation


@attrs.frozen(kw_only=True)
class TypeUse:
    """Resources of the tasks of one type, requested and used, over all their containers."""

    WRITER_MAY_BE_NEWER: ClassVar[bool] = True  # see ``codec``

    type: str
    tasks: int
    container_seconds: float  # total time that all tasks' containers were held
    memory_bytes: int  # requested for one container; vcores and gpus are also for one container
    vcores: int
    gpus: int = 0
    used_seconds: float = 0.0  # part of container_seconds in which user processes ran
    most_rss_bytes: Optional[int] = None  # peak memory of any of its tasks
    most_rss_task: Optional[str] = None  # task with this peak memory
    mean_cpu_percent: Optional[float] = None  # mean of one task while user processes ran; 100 is one core
    most_cpu_percent: Optional[float] = None  # highest mean over half a minute, of any of its tasks
    crowded_percent: Optional[float] = None  # share of used_seconds in which nearly all cores of the node were busy
    mean_gpu_percent: Optional[float] = None  # mean of one GPU
    most_gpu_bytes: Optional[int] = None  # peak GPU memory of any of its tasks


class JobState(str, Enum):
    """State of a job."""

    WAITING = "WAITING"  # the job waits for the containers of the whole gang
    STARTING = "STARTING"  # containers are allocated, executors are starting or registering
    RUNNING = "RUNNING"
    RESTARTING = "RESTARTING"  # between two generations: tasks stop, containers are replaced, a checkpoint is chosen
    SUSPENDED = "SUSPENDED"  # all containers are released, until a user resumes the job
    RECOVERING = "RECOVERING"  # a new application master waits for the running tasks to register
    FINISHING = "FINISHING"  # the verdict is known; tasks are stopped and logs stored
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    KILLED = "KILLED"

    @property
    def is_final(self) -> bool:
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.KILLED)


class ApplicationState(str, Enum):
    """State of an application, with YARN's names; the local cluster uses the same names."""

    NEW = "NEW"
    NEW_SAVING = "NEW_SAVING"
    SUBMITTED = "SUBMITTED"
    ACCEPTED = "ACCEPTED"  # waits for the application master's container
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"  # the application master reported the outcome, see final_status
    FAILED = "FAILED"  # the application master died or never started
    KILLED = "KILLED"

    def __str__(self) -> str:
        return self.value

    @property
    def is_final(self) -> bool:
        return self in (ApplicationState.FINISHED, ApplicationState.FAILED, ApplicationState.KILLED)


class FinalStatus(str, Enum):
    """Final status of an application, with the values of YARN's FinalApplicationStatus."""

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    KILLED = "KILLED"


class TaskState(str, Enum):
    """State of a task."""

    REQUESTED = "REQUESTED"
    STARTING = "STARTING"
    REGISTERED = "REGISTERED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    LOST = "LOST"
    STOPPED = "STOPPED"  # ended because the job ended

    @property
    def is_final(self) -> bool:
        return self in (TaskState.SUCCEEDED, TaskState.FAILED, TaskState.STOPPED)


class FailureKind(str, Enum):
    """Cause of a job's failure, for code that chooses the next action."""

    USER = "USER"  # a user process failed
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    CONTAINER_LOST = "CONTAINER_LOST"
    LAUNCH = "LAUNCH"  # a container or command could not be started
    NODE = "NODE"  # fault of the node or container: full disk, occupied port, lost GPU
    QUEUE_TIMEOUT = "QUEUE_TIMEOUT"
    REGISTRATION_TIMEOUT = "REGISTRATION_TIMEOUT"
    DEPENDENCY_TIMEOUT = "DEPENDENCY_TIMEOUT"  # a task type has waited too long for other types
    PREEMPTED = "PREEMPTED"  # the cluster preempted the container, or decommissioned its node
    STALLED = "STALLED"  # a task took no new step for timeouts.stall
    UPLOAD = "UPLOAD"  # training has succeeded, but its results could not be stored
    INPUT = "INPUT"  # an input could not be listed or distributed
    OUTPUT = "OUTPUT"  # the tasks' files for an output could not be moved to its path
    CHECKPOINT = "CHECKPOINT"  # the resume point could not be restored
    FENCED = "FENCED"  # a newer application owns the checkpoint chain
    KILLED = "KILLED"
    INTERNAL = "INTERNAL"


@attrs.frozen
class Failure:
    """Failure that ended a job, with the task that failed."""

    kind: FailureKind
    message: str  # names the task, its node, and its exit code or signal; ends with the last lines of stderr
    task: Optional[str] = None  # such as worker:0
    exit_code: Optional[int] = None
    signal: Optional[int] = None
    permanent: bool = False  # the same job would fail again, so neither a restart nor another application helps
    cause: str = ""  # the program's error, for users who may read its output; empty if unknown

    @property
    def full_message(self) -> str:
        """The cause and the message, for users who may read the program's output."""
        return f"{self.cause}; {self.message}" if self.cause else self.message


@attrs.frozen
class TaskProgress:
    """Newest progress values that a task's user process has reported."""

    step: int = 0
    total_steps: Optional[int] = None
    steps_per_second: Optional[float] = None
    metrics: dict[str, float] = attrs.field(factory=dict)


@attrs.frozen
class ProcessStatus:
    """Status of one user process of a task with several processes."""

    local_rank: int  # rank within its container, from 0
    rank: int
    rss_bytes: Optional[int] = None
    cpu_percent: Optional[float] = None
    progress: Optional[TaskProgress] = None

    @property
    def name(self) -> str:
        """Name for people, shown below the name of its task."""
        return f"rank {self.rank} (local rank {self.local_rank})"


@attrs.frozen
class TaskStatus:
    """Status of one task with its newest container. If the task has several processes, values are of local rank 0."""

    type: str
    index: int
    state: TaskState
    attempt: int = 1  # number of the task's container, counted from 1
    start: int = 0  # number of the start of its user process
    container_id: Optional[str] = None
    node: Optional[str] = None
    heartbeat_ms: Optional[int] = None  # epoch time of the last heartbeat that the application master received
    rss_bytes: Optional[int] = None
    cpu_percent: Optional[float] = None
    progress: Optional[TaskProgress] = None
    exit_code: Optional[int] = None
    signal: Optional[int] = None
    activity: str = ""
    further: list[ProcessStatus] = attrs.field(factory=list)  # its processes with a higher local rank, while they run
    unstored: Optional[int] = None  # number of files of its newest process that are not stored; None if unknown

    @property
    def name(self) -> str:
        return f"{self.type}:{self.index}"


@attrs.frozen
class InputStatus:
    """Input of the job: its listed shards, and its progress."""

    name: str
    deal: str  # value of an InputDeal, so that a sensor need not load the specification
    shards: int
    size: int  # bytes of all shards
    listing: str  # URI of the file that lists all shards, each with its size and modification time
    committed: Optional[int] = None  # number of committed shards; None with a static deal, which has no commits
    failed: int = 0  # number of shards that could not be read

    @property
    def label(self) -> str:
        """Size and progress for people."""
        said = f"{quantities.count(self.shards, 'shard')}, {quantities.size(self.size)}"
        if self.committed is not None:
            said += f"; {self.committed} committed"
        return f"{said}, {self.failed} failed" if self.failed else said


@attrs.frozen
class OutputStatus:
    """Output of the job: its path and its size."""

    name: str
    uri: str
    files: Optional[int] = None  # number of files; None if they are not (yet) at the path
    bytes: Optional[int] = None


@attrs.frozen
class JobStatus:
    """Status of a job and all its tasks at one moment, as its master knows it."""

    WRITER_MAY_BE_NEWER: ClassVar[bool] = True  # see ``codec``

    application_id: str
    name: str
    state: JobState
    message: str = ""  # one line for people: what the job is doing or waiting for
    am_attempt: int = 1
    generation: int = 0
    started_ms: int = 0  # epoch time of the start
    updated_ms: int = 0  # epoch time of this status
    finished_ms: Optional[int] = None  # epoch time of the end; None before the end
    progress: float = 0.0  # 0 to 1
    tasks: list[TaskStatus] = attrs.field(factory=list)
    leader: Optional[str] = None  # task whose progress is the job's: the chief, or rank 0; one of ``tasks``
    model_dir: Optional[str] = None
    resumed: Optional[ResumePoint] = None  # resume point of the current generation; None if it started at step 0
    checkpoint: Optional[ResumePoint] = None  # newest committed checkpoint
    export: Optional[ExportedModel] = None  # newest export of the model on the store
    export_request: Optional[ExportRequest] = None  # request that is not yet answered
    restarts: int = 0  # number of restarts of the gang or of single tasks, for any reason
    restarted_after: Optional[Failure] = None  # failure that caused the newest restart; None if it had another cause
    resizing: dict[str, int] = attrs.field(factory=dict)  # target number of tasks, for types being resized
    failure: Optional[Failure] = None
    warnings: list[str] = attrs.field(factory=list)  # such as a failed sidecar or a checkpoint that is not stored
    parameters: dict[str, str] = attrs.field(factory=dict)  # logged by the program, with secrets masked
    troubles: list[str] = attrs.field(factory=list)  # services that the master cannot reach now, and since when
    inputs: list[InputStatus] = attrs.field(factory=list)
    outputs: list[OutputStatus] = attrs.field(factory=list)
    times: Optional[TimeUse] = None  # None if an older master wrote the status
    use: list[TypeUse] = attrs.field(factory=list)  # by task type, in the job's order
    store_token: Optional[TokenLife] = None  # None if the store needs no token, or if an older master wrote this
    labels: dict[str, str] = attrs.field(factory=dict)  # origin of the job (dag_id, run_id, …), from its submission
    version: int = 1  # version of this message's format

    @property
    def leading(self) -> Optional[TaskProgress]:
        """Progress that the leader last reported; None before its first report."""
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
        """The generation to show to users, or None if nothing has restarted.

        A resumed job or a new application master also begins a generation, which users would mistake for a restart.
        """
        return self.generation if self.generation > 1 and self.restarts else None

    @property
    def resumed_step(self) -> Optional[int]:
        """Step from which the generation resumed; None also if the step is unknown."""
        return self.resumed.step if self.resumed else None

    @property
    def checkpoint_step(self) -> Optional[int]:
        """Step of the newest committed checkpoint; None also if the step is unknown."""
        return self.checkpoint.step if self.checkpoint else None

    @property
    def checkpoint_dir(self) -> Optional[str]:
        """URI of the newest committed checkpoint; None also if it was removed at the end."""
        return (self.checkpoint.uri or None) if self.checkpoint else None


@attrs.frozen
class Transition:
    """A change of the state of the job, a task or a container."""

    time_ms: int  # since the epoch
    subject: str  # such as worker:3, or the container of worker:3
    before: str
    after: str
    why: str
    event: str  # kind of the event that has caused it


@attrs.frozen
class TaskStory:
    """The newest transitions of a task and its containers, oldest first, under the present application master."""

    task: str
    transitions: list[Transition]

    WRITER_MAY_BE_NEWER: ClassVar[bool] = True  # see ``codec``
