"""Events that a session handles. They are immutable, so that ``replay`` rebuilds a state from a list of events.

The events of the cluster are classes of ``resource_manager``. Orders of users are also the bodies of requests to
``web/control``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Optional, Union

import attrs

from tony_provider.runtime.am.resource_manager import (
    Allocated,
    Completed,
    Container,
    Largest,
    LaunchFailed,
    NodeLeaving,
    NodesCounted,
    NotPlaced,
    Preempting,
    Room,
)
from tony_provider.runtime.am.session.recovery import History
from tony_provider.runtime.am.session.restart_policy import CommittedSave
from tony_provider.runtime.am.session.session_state import Heartbeat, ProcessEnd, ProcessStack, Settlement
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.protocol.status import ExportedModel, FailureKind, JobStatus

# ---- the application master ------------------------------------------------------------------------------------------


@attrs.frozen
class Started:
    """The job begins, with its first application master."""

    largest: Optional[Largest] = None  # the cluster's largest container, if known


@attrs.frozen
class Recovered:
    """The job continues under a later application master. This event replaces ``Started``."""

    containers: Sequence[Container]  # running containers that the cluster listed
    history: History
    largest: Optional[Largest] = None
    former: Optional[JobStatus] = None  # newest status of the former master


@attrs.frozen
class Tick:
    """Time has passed. The master reports it about twice a second."""


@attrs.frozen
class JobFailed:
    """The job must end for a reason that is not a task's failure."""

    kind: FailureKind
    message: str


# ---- orders of users -------------------------------------------------------------------------------------------------


@attrs.frozen
class StopOrder:
    """End the job.

    A second order shortens the grace of running processes. A second order with a grace of 0 or None releases all
    containers at once.
    """

    reason: str
    grace: Optional[float] = None  # seconds between SIGTERM and SIGKILL of a user process; default: timeouts.grace


@attrs.frozen
class CheckpointOrder:
    """Request a checkpoint from the tasks now. Programs that do not support such requests ignore them."""

    reason: str


@attrs.frozen
class ExportRequested:
    """A user requests an export of the leading task's model. The task's program may ignore the request."""

    reason: str
    asked_ms: int  # time of the request in milliseconds since the epoch, which identifies the request


@attrs.frozen
class SuspendOrder:
    """Release all containers after a checkpoint, until the job is resumed. A second order changes nothing."""

    reason: str


@attrs.frozen
class ResumeOrder:
    """Resume a suspended job, or cancel a pending suspension. Otherwise the order changes nothing."""

    reason: str


@attrs.frozen
class ResizeOrder:
    """Change the number of tasks. A repeated order, or one beyond the job's limits, changes nothing."""

    tasks: dict[str, int]  # number of tasks, by type
    reason: str


# ---- the store -------------------------------------------------------------------------------------------------------


@attrs.frozen
class ResumeChosen:
    """The answer to ChooseResumePoint."""

    generation: int
    resume: Optional[ResumePoint]  # None if there is no checkpoint
    not_from: str = ""  # describes a newer checkpoint that was passed over because it is suspect


@attrs.frozen
class ResumeNotChosen:
    """The store has not answered ChooseResumePoint in time."""

    generation: int
    reason: str


@attrs.frozen
class CheckpointCommitted:
    """A checkpoint is committed."""

    point: ResumePoint
    save: CommittedSave
    copy_seconds: float = 0.0  # duration of its copy to the store


@attrs.frozen
class CheckpointBlocked:
    """No checkpoint can be stored at present. An empty reason ends the problem."""

    reason: str


@attrs.frozen
class QuotaWarning:
    """A quota may soon prevent checkpoints. An empty text ends the warning."""

    text: str


@attrs.frozen
class OutputsPublished:
    """The answer to PublishOutputs. The problem is empty if the outputs are at their paths."""

    problem: str


# ---- the executors ---------------------------------------------------------------------------------------------------


@attrs.frozen
class ExecutorRegistered:
    """An executor has registered, and its stream is up. The executor then repeats its reports of ended processes.

    ``generation``, ``start`` and ``resumed`` belong to the newest rendezvous that the executor has received. Before the
    first rendezvous, they are 0, 0 and None.
    """

    task: str
    attempt: int
    container_id: str
    host: str
    ports: Mapping[str, int]
    generation: int
    start: int
    resumed: Optional[ResumePoint]


@attrs.frozen
class ExecutorLeft:
    """The last message of an executor: its processes have ended, its log is kept, and the container ends."""

    container_id: str


@attrs.frozen
class Disconnected:
    """The stream of an executor is lost. The executor may reconnect."""


@attrs.frozen
class ProcessStarted:
    """A user process runs."""

    start: int


@attrs.frozen
class ProcessStacks:
    """The stacks of a task's processes, which will be stopped now."""

    start: int
    stacks: tuple[ProcessStack, ...]


@attrs.frozen
class LastOutput:
    """The end of a user process's output when its container is killed."""

    tail: str


@attrs.frozen
class PreparationFailed:
    """A start could not be prepared, for example because a checkpoint could not be restored."""

    start: int
    uri: str  # URI of the resume point; empty if the cause is not a resume point
    damaged: bool  # the files of the resume point are damaged
    reason: str
    unfit: bool = False  # the node has failed the preflight


@attrs.frozen
class ModelExport:
    """A program has exported a model."""

    export: ExportedModel
    problem: str  # reason why it is not on the store; empty if it is


@attrs.frozen
class EventsWritten:
    """The answer to FlushEvents: the event log is on the store."""


Report = Union[
    Heartbeat,
    ProcessStarted,
    ProcessEnd,
    Settlement,
    ProcessStacks,
    LastOutput,
    PreparationFailed,
    ModelExport,
    Disconnected,
    EventsWritten,
]


@attrs.frozen
class FromTask:
    """A report about one container of a task. Reports about a replaced or ended container have no effect."""

    task: str
    attempt: int
    report: Report


Event = Union[
    Allocated,
    NotPlaced,
    LaunchFailed,
    Completed,
    Preempting,
    NodeLeaving,
    NodesCounted,
    Room,
    Started,
    Recovered,
    Tick,
    JobFailed,
    StopOrder,
    CheckpointOrder,
    ExportRequested,
    SuspendOrder,
    ResumeOrder,
    ResizeOrder,
    ResumeChosen,
    ResumeNotChosen,
    CheckpointCommitted,
    CheckpointBlocked,
    QuotaWarning,
    OutputsPublished,
    ExecutorRegistered,
    ExecutorLeft,
    FromTask,
]
