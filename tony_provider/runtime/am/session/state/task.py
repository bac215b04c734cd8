"""One task of the job, as the session knows it."""

from __future__ import annotations

from typing import Optional

import attrs

from tony_provider.runtime.am.resource_manager import Container
from tony_provider.runtime.am.session.state import lifecycle
from tony_provider.runtime.am.session.state.lifecycle import ContainerState, Lifecycle
from tony_provider.runtime.am.session.state.process_state import ProcessState
from tony_provider.runtime.protocol.status import Failure, ProcessStatus, TaskProgress, TaskState
from tony_provider.runtime.spec.model import RestartScope, Role, TaskSpec


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
        self._lifecycle = Lifecycle(self.name, lifecycle.TASK, TaskState.REQUESTED)
        self._container_lifecycle = Lifecycle(f"the container of {self.name}", lifecycle.CONTAINER, ContainerState.NONE)

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
