"""One task of the job, as the session knows it."""

from __future__ import annotations

from typing import Optional

import attrs

from tony_provider.runtime.am.resource_manager import Container
from tony_provider.runtime.protocol.status import Failure, TaskProgress, TaskState
from tony_provider.runtime.spec.model import Role, TaskSpec


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
    model_dir: str = ""  # URI; empty: it left none
    progress: Optional[TaskProgress] = None

    @property
    def succeeded(self) -> bool:
        return self.exit_code == 0 and self.signal == 0 and not (self.error or self.out_of_memory or self.stopped)


@attrs.frozen
class Beat:
    """What a heartbeat says."""

    rss_bytes: int = 0
    cpu_percent: float = 0.0
    progress: Optional[TaskProgress] = None
    activity: str = ""


@attrs.define(eq=False)
class Task:
    """Times are the session's clock, in seconds."""

    type: str
    index: int
    role: Role
    spec: TaskSpec
    decisive: bool
    state: TaskState = TaskState.REQUESTED
    attempt: int = 1  # counts its containers
    replaced: int = 0  # containers lost before the gang started
    key: Optional[int] = None  # of the outstanding request
    container: Optional[Container] = None
    launched: bool = False
    container_ended: bool = False
    connected: bool = False  # its executor's stream is up
    deadline: Optional[float] = None  # of a replacement's allocation, or of the registration
    heard_at: Optional[float] = None
    host: str = ""
    ports: dict[str, int] = attrs.field(factory=dict)
    progress: Optional[TaskProgress] = None
    rss_bytes: Optional[int] = None
    cpu_percent: Optional[float] = None
    activity: str = ""
    end: Optional[ProcessEnd] = None
    failure: Optional[Failure] = None
    trouble_at: Optional[float] = None  # first sign that something is wrong with it
    told_to_stop: bool = False
    released: bool = False
    stop_deadline: Optional[float] = None

    @property
    def name(self) -> str:
        return f"{self.type}:{self.index}"

    @property
    def node(self) -> Optional[str]:
        return self.container.node if self.container else None

    @property
    def ended(self) -> bool:
        return self.state.is_final or self.state is TaskState.LOST

    @property
    def silent(self) -> bool:
        """Its executor should be heard of and its stream is down."""
        return self.heard_at is not None and not self.connected and not self.ended

    def back_to_request(self) -> None:
        """Its container is gone and another one is wanted, for the next attempt."""
        self.attempt += 1
        self.replaced += 1
        self.state = TaskState.REQUESTED
        self.container = None
        self.launched = self.connected = self.released = self.container_ended = False
        self.heard_at = self.trouble_at = None
        self.host, self.ports, self.activity = "", {}, ""
