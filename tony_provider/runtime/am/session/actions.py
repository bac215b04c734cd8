"""What the session wants done. The master carries these out, in order; the session itself touches nothing."""

from __future__ import annotations

from typing import Optional, Union

import attrs

from tony_provider.runtime.am.resource_manager import Container, ContainerRequest
from tony_provider.runtime.frameworks.base import ClusterSpec
from tony_provider.runtime.protocol.status import Failure, FinalStatus


@attrs.frozen
class Verdict:
    """How the job ended."""

    status: FinalStatus
    message: str  # for the cluster's diagnostics; one line when it succeeded
    failure: Optional[Failure] = None


@attrs.frozen
class Request:
    requests: tuple[ContainerRequest, ...]


@attrs.frozen
class Cancel:
    keys: tuple[int, ...]


@attrs.frozen
class Release:
    """Give containers back, running or not."""

    container_ids: tuple[str, ...]


@attrs.frozen
class LaunchTask:
    """Start an executor in a container."""

    task: str
    attempt: int
    container: Container


@attrs.frozen
class SendRendezvous:
    """Let the user processes of a generation start."""

    cluster: ClusterSpec
    tasks: tuple[str, ...]  # those to tell


@attrs.frozen
class ShutdownTask:
    """Have the executor stop its user process, keep the logs and end."""

    task: str
    grace: float  # seconds between SIGTERM and SIGKILL
    reason: str


@attrs.frozen
class Note:
    """Something for the event log and for people; nothing to do."""

    event: str
    message: str
    task: Optional[str] = None


@attrs.frozen
class Finish:
    """Everything is stopped, or given up: say so and end. The last action, once."""

    verdict: Verdict


Action = Union[Request, Cancel, Release, LaunchTask, SendRendezvous, ShutdownTask, Note, Finish]
