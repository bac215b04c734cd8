"""The actions that a session wants done. The master carries them out, in order; the session itself touches nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional, Union

import attrs

from tony_provider.runtime.am.resource_manager import Container, ContainerRequest
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.frameworks.base import ClusterSpec
from tony_provider.runtime.outputs.output_place import OutputPart
from tony_provider.runtime.protocol.status import Failure, FinalStatus


@attrs.frozen
class Verdict:
    """How the job ended."""

    status: FinalStatus
    message: str  # for the cluster's diagnostics; one line when it succeeded
    failure: Optional[Failure] = None


@attrs.frozen
class RequestContainers:
    """Ask the cluster for containers."""

    requests: tuple[ContainerRequest, ...]


@attrs.frozen
class CancelRequests:
    """Withdraw requests for containers that were not answered yet."""

    keys: tuple[int, ...]


@attrs.frozen
class ReleaseContainers:
    """Give containers back, running or not."""

    container_ids: tuple[str, ...]


@attrs.frozen
class LookForRoom:
    """Find out for how many containers such as this one there is room; ``Session.room`` comes of it."""

    request: ContainerRequest
    most: int  # there need not be room for more


@attrs.frozen
class LaunchTask:
    """Start an executor in a container."""

    task: str
    attempt: int
    container: Container


@attrs.frozen
class ChooseResumePoint:
    """Find the newest intact checkpoint that is not suspect. ``Session.resume_chosen`` receives the answer."""

    generation: int  # that will resume from it
    trusted: str = ""  # URI of a checkpoint that does not count as suspect
    tasks: tuple[str, ...] = ()  # that resume from it


@attrs.frozen
class SendRendezvous:
    """Let the user processes of a generation start."""

    cluster: ClusterSpec
    starts: Mapping[str, int]  # those to tell, and the count of their process's starts
    resume: Optional[ResumePoint] = None
    keep_checkpoints: bool = False  # only these tasks start again, in their containers: their directories stay


@attrs.frozen
class StopProcess:
    """Have the executor stop its user process and stay; ProcessExited and Settled come of it."""

    task: str
    generation: int
    start: int
    grace: float  # seconds between SIGTERM and SIGKILL
    checkpoint_seconds: float  # for the last copies of checkpoints afterwards
    reason: str
    stacks: bool = False  # have its threads' stacks written into its log first


@attrs.frozen
class AskCheckpoint:
    """Ask the user processes for a checkpoint now."""

    tasks: tuple[str, ...]
    reason: str


@attrs.frozen
class AskExport:
    """Ask the user process of the leading task for an export of its model."""

    task: str
    asked_ms: int  # which request it is
    reason: str


@attrs.frozen
class SetAside:
    """A committed checkpoint is damaged: nobody is to choose it again."""

    resume: ResumePoint
    reason: str


@attrs.frozen
class NoteFailedResume:
    """Record that a process failed that had resumed from a checkpoint, before the process reported a step or saved."""

    resume: ResumePoint
    kind: str  # the same text for the same failure
    message: str


@attrs.frozen
class NoteSoundResume:
    """Forget the failures after this checkpoint, because a process that had resumed from it reported a step."""

    resume: ResumePoint


@attrs.frozen
class Disconnect:
    """End the stream of an executor that was given up, so that it is refused when it comes back."""

    task: str


@attrs.frozen
class AvoidNodes:
    """Ask for containers on other nodes from now on; these are all that are to be avoided."""

    nodes: tuple[str, ...]  # host:port


@attrs.frozen
class ShutdownTask:
    """Have the executor stop its user process, keep the logs and end."""

    task: str
    grace: float  # seconds between SIGTERM and SIGKILL
    reason: str


@attrs.frozen
class Note:
    """A line for the event log and for people; nothing to do."""

    event: str
    message: str
    task: Optional[str] = None
    data: Mapping[str, Any] = attrs.field(factory=dict)  # JSON; what a later application master needs of it


@attrs.frozen
class KeepNotes:
    """Write the event log; ``Session.notes_kept`` comes once everything noted so far is on the store."""

    task: str  # that waits for it
    attempt: int


@attrs.frozen
class PublishOutputs:
    """Have these parts of the job's outputs at their paths; ``Session.outputs_published`` comes of it.

    What other starts have left is dropped, but for what committed shards name. Everything is stopped by now.
    """

    parts: tuple[OutputPart, ...]


@attrs.frozen
class Finish:
    """Everything is stopped, or given up: say so and end. The last action, once."""

    verdict: Verdict


Action = Union[
    RequestContainers,
    CancelRequests,
    ReleaseContainers,
    LookForRoom,
    LaunchTask,
    ChooseResumePoint,
    SendRendezvous,
    StopProcess,
    ShutdownTask,
    AskCheckpoint,
    AskExport,
    SetAside,
    NoteFailedResume,
    NoteSoundResume,
    Disconnect,
    AvoidNodes,
    Note,
    KeepNotes,
    PublishOutputs,
    Finish,
]
