"""Actions that a session requests.

The application master carries them out in order. The session itself has no side effects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable, Optional, Union

import attrs

from tony_provider.runtime.am.resource_manager import Container, ContainerRequest
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.frameworks.base import ClusterSpec
from tony_provider.runtime.jobspec.model import Preflight
from tony_provider.runtime.outputs.publication import OutputPart
from tony_provider.runtime.protocol.status import Failure, FinalStatus


@attrs.frozen
class Verdict:
    """The result of the job."""

    status: FinalStatus
    message: str  # text that YARN shows as diagnostics; a single line if the job has succeeded
    failure: Optional[Failure] = None


@attrs.frozen
class RequestContainers:
    """Request containers from the cluster."""

    requests: tuple[ContainerRequest, ...]


@attrs.frozen
class CancelRequests:
    """Cancel container requests that the cluster has not answered yet."""

    keys: tuple[int, ...]


@attrs.frozen
class ReleaseContainers:
    """Release containers, running or not."""

    container_ids: tuple[str, ...]


@attrs.frozen
class ProbeRoom:
    """Find out how many more containers of this size the cluster has room for. The answer is the event ``Room``."""

    request: ContainerRequest
    most: int  # the answer is at most this number


@attrs.frozen
class LaunchTask:
    """Start an executor in a container."""

    task: str
    attempt: int
    container: Container


@attrs.frozen
class ChooseResumePoint:
    """Find the newest intact checkpoint that is not suspect. The answer is ResumeChosen or ResumeNotChosen."""

    generation: int  # generation that resumes from the checkpoint
    trusted: str = ""  # URI of a checkpoint that may be used although it is suspect; empty if there is none
    tasks: tuple[str, ...] = ()  # tasks that resume from the checkpoint


@attrs.frozen
class SendRendezvous:
    """Start the user processes of a generation."""

    cluster: ClusterSpec
    starts: Mapping[str, int]  # number of the new start, by name of each task that starts
    resume: Optional[ResumePoint] = None
    keep_checkpoints: bool = False  # keep checkpoint directories: only these tasks restart, in the same containers
    preflight: Optional[Preflight] = None  # checks before the processes start


@attrs.frozen
class StopProcess:
    """Stop the user process and keep the executor. The executor then sends ProcessExited and Settled."""

    task: str
    generation: int
    start: int
    grace: float  # seconds between SIGTERM and SIGKILL
    checkpoint_seconds: float  # seconds for the last checkpoint copies after the process has ended
    reason: str
    stacks: bool = False  # before the stop, write the stacks of the process's threads into its log


@attrs.frozen
class AskCheckpoint:
    """Request a checkpoint from the user processes now."""

    tasks: tuple[str, ...]
    reason: str


@attrs.frozen
class AskExport:
    """Request an export of the model from the user process of the leading task."""

    task: str
    asked_ms: int  # time of the request in epoch milliseconds, which identifies the request
    reason: str


@attrs.frozen
class ExcludeCheckpoint:
    """Mark a committed checkpoint as damaged, so that no process resumes from it again."""

    resume: ResumePoint
    reason: str


@attrs.frozen
class NoteFailedResume:
    """Record that a process resumed from a checkpoint, and failed before it reported a step or saved a checkpoint."""

    resume: ResumePoint
    kind: str  # text from ``recognise``, which is the same for equal failures
    message: str


@attrs.frozen
class NoteSoundResume:
    """Forget the failed resumes from this checkpoint, because a process resumed from it and reported a step."""

    resume: ResumePoint


@attrs.frozen
class Disconnect:
    """Close the stream of an executor that was given up. The executor is rejected if it reconnects."""

    task: str


@attrs.frozen
class AvoidNodes:
    """Set the nodes on which the cluster must not allocate containers. This list replaces the former one."""

    nodes: tuple[str, ...]  # host:port


@attrs.frozen
class ShutdownTask:
    """Stop a task's user process, keep its logs, and end its executor."""

    task: str
    grace: float  # seconds between SIGTERM and SIGKILL
    reason: str


@attrs.frozen
class Note:
    """Add a line to the event log."""

    event: str
    message: str
    task: Optional[str] = None
    data: Mapping[str, Any] = attrs.field(factory=dict)  # JSON data for a later application master


AddNote = Callable[[Note], None]
"""Function that adds a line to the event log."""


@attrs.frozen
class FlushEvents:
    """Write the event log. The answer is EventsWritten, once all notes so far are on the store."""

    task: str  # task that waits for the answer
    attempt: int


@attrs.frozen
class PublishOutputs:
    """Publish these parts of the job's outputs at the outputs' paths. The answer is OutputsPublished.

    Files of other starts are deleted unless a committed shard names them. All tasks are stopped at this point.
    """

    parts: tuple[OutputPart, ...]


@attrs.frozen
class Finish:
    """End the application master, because every task is stopped or given up.

    A session requests this action once, as its last action.
    """

    verdict: Verdict


Action = Union[
    RequestContainers,
    CancelRequests,
    ReleaseContainers,
    ProbeRoom,
    LaunchTask,
    ChooseResumePoint,
    SendRendezvous,
    StopProcess,
    ShutdownTask,
    AskCheckpoint,
    AskExport,
    ExcludeCheckpoint,
    NoteFailedResume,
    NoteSoundResume,
    Disconnect,
    AvoidNodes,
    Note,
    FlushEvents,
    PublishOutputs,
    Finish,
]
