"""The ResourceManager interface: a cluster seen from inside, which gives containers and tells what becomes of them.

``yarn`` (Hadoop RPC) and ``local`` (subprocesses) stand behind it; the master's own code never asks which.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Coroutine, Sequence
from enum import Enum
from typing import Any, Callable, Optional, Union

import attrs

from tony_provider.runtime.application import LocalizedResource
from tony_provider.runtime.jobspec.placement import Placement
from tony_provider.runtime.protocol.status import FinalStatus


@attrs.frozen
class ContainerRequest:
    """A request for one container. ``key`` is the master's own; an allocation answers exactly one."""

    key: int  # unique for the life of the application (YARN's allocation_request_id)
    priority: int  # lower is served first; requests of one size share one
    memory: int  # MiB
    vcores: int
    resources: dict[str, int] = attrs.field(factory=dict)  # countable ones by YARN's names, GPUs as yarn.io/gpu
    units: dict[str, str] = attrs.field(factory=dict)  # YARN's, of resources that are not counted in their own
    node_label: Optional[str] = None
    placement: Optional[Placement] = None  # None: anywhere
    tags: list[str] = attrs.field(factory=list)  # that its container gets where rules place containers; else none


@attrs.frozen
class Container:
    """A container that the cluster has given."""

    id: str  # as YARN writes it: container_e01_…
    node: str  # host:port of its NodeManager


@attrs.frozen
class Launch:
    """How a container's program is started."""

    command: list[str]  # program and plain arguments; output goes to the container's log directory
    env: dict[str, str]
    files: dict[str, LocalizedResource]  # by their names in the container's directory
    credentials: bytes = attrs.field(repr=False)  # a Hadoop token file


@attrs.frozen
class Largest:
    """The largest container that the cluster gives."""

    memory: int  # MiB
    vcores: int
    resources: dict[str, int] = attrs.field(factory=dict)  # by YARN's names
    units: dict[str, str] = attrs.field(factory=dict)  # that the cluster counts them in, where it is not one by one


@attrs.frozen
class Registered:
    """The answer to ``register``: the cluster's limits, and what a former attempt of this application left running.

    Those containers are this attempt's from now on, to release and to hear of; they answer none of its requests, and
    what the former attempt had asked for and not got is forgotten.
    """

    largest: Optional[Largest]  # None: not known, the answer was lost
    containers: list[Container] = attrs.field(factory=list)
    access_lists: dict[str, str] = attrs.field(factory=dict)  # VIEW_APP, MODIFY_APP: who else may, as YARN writes it


@attrs.frozen
class Allocated:
    """Event: the cluster gives the container for a request."""

    key: int
    container: Container


@attrs.frozen
class NotPlaced:
    """Event: the cluster found no place for the container of a request; it is asked for again."""

    key: int
    reason: str


@attrs.frozen
class LaunchFailed:
    """Event: a node did not start a container's program."""

    container_id: str
    reason: str


class ExitReason(str, Enum):
    """Why a container ended."""

    EXITED = "EXITED"  # its program did
    NOT_PREPARED = "NOT_PREPARED"  # its files could not be brought to the node
    LOST = "LOST"  # with its node, or nobody says why
    DISKS_FAILED = "DISKS_FAILED"
    PREEMPTED = "PREEMPTED"  # its share is another queue's or application's now
    MADE_ROOM = "MADE_ROOM"  # its node needed the room for another container
    EXCEEDED_MEMORY = "EXCEEDED_MEMORY"
    EXCEEDED_VIRTUAL_MEMORY = "EXCEEDED_VIRTUAL_MEMORY"
    EXCESS_LOGS = "EXCESS_LOGS"
    GIVEN_BACK = "GIVEN_BACK"  # by the application master
    KILLED_BY_CLUSTER = "KILLED_BY_CLUSTER"
    APPLICATION_ENDED = "APPLICATION_ENDED"
    OTHER = "OTHER"  # a reason of the cluster that is not known here


@attrs.frozen
class ContainerExit:
    """How a container ended."""

    reason: ExitReason
    status: int = 0  # the exit code of a program that EXITED; else the cluster's own number, which means nothing here

    @property
    def exit_code(self) -> Optional[int]:
        """Of its program; None where it did not end by itself."""
        return self.status if self.reason is ExitReason.EXITED else None


@attrs.frozen
class Completed:
    """A container ended."""

    container_id: str
    exit: ContainerExit
    diagnostics: str = ""


@attrs.frozen
class StopRequested:
    """Event: the cluster wants the application to end now."""

    reason: str


@attrs.frozen
class AttemptOver(StopRequested):
    """Event: the cluster has ended this application master's attempt.

    The application was killed, or the cluster gave this master up and has started another one, whose the containers are
    now. Nothing that this one does counts any more. It is to end without touching its tasks or the job's files.
    """


@attrs.frozen
class ConnectionLost:
    """Event: the cluster cannot be reached at present; nothing else changed. For the event log and people."""

    reason: str


@attrs.frozen
class ConnectionRestored:
    """Event: the cluster answers again."""


@attrs.frozen
class Preempting:
    """Event: the cluster wants these containers back, and takes them soon: a moment for a checkpoint."""

    container_ids: list[str]
    seconds: Optional[float] = None  # until then; None: not known


@attrs.frozen
class NodeLeaving:
    """Event: a node is being taken out of service; its containers end soon."""

    node: str  # host:port
    seconds: Optional[float] = None  # until then; None: not known


@attrs.frozen
class NodesCounted:
    """Event: the cluster's number of usable nodes, when it changes."""

    nodes: int


@attrs.frozen
class Room:
    """Event: for how many containers there was room, the answer to ``look_for_room``."""

    key: int  # of the request that was looked for
    containers: int


Event = Union[
    Allocated,
    NotPlaced,
    LaunchFailed,
    Completed,
    StopRequested,
    ConnectionLost,
    ConnectionRestored,
    Preempting,
    NodeLeaving,
    NodesCounted,
    Room,
]


class ResourceManager(ABC):
    """The cluster as the application master uses it: gives containers, starts programs in them, tells of their end.

    Methods raise ResourceManagerError subclasses when the cluster refuses for good, and retry by themselves what may
    pass.
    """

    notice: float
    """Seconds that the application master has between SIGTERM and SIGKILL when the cluster ends it."""

    @abstractmethod
    async def register(self, *, host: str, port: int, tracking_url: str) -> Registered:
        """Make this application master known to the cluster. Once, before all else."""

    @abstractmethod
    def request(self, requests: Sequence[ContainerRequest]) -> None:
        """Ask for containers; does not block. What is granted comes as Allocated."""

    @abstractmethod
    def cancel(self, keys: Sequence[int]) -> None:
        """Withdraw requests that were not answered yet; an allocation on its way is released, not reported."""

    @abstractmethod
    def release(self, container_ids: Sequence[str]) -> None:
        """Give containers back; running ones are stopped by YARN. Their completion still comes as Completed."""

    @abstractmethod
    def avoid(self, nodes: Sequence[str]) -> None:
        """Take no containers on these nodes (host:port) from now on; the list replaces the former one. Does not block.

        A wish: a cluster that has nothing else may be asked again with an empty list.
        """

    @abstractmethod
    def look_for_room(self, request: ContainerRequest, most: int) -> None:
        """Find out for how many containers such as this one there is room at once, of at most so many.

        Does not block, and keeps none: the answer comes as Room, seconds later perhaps. One look at a time; of those
        that wait for their turn the newest counts.
        """

    @abstractmethod
    async def launch(self, container: Container, launch: Launch) -> None:
        """Start a container's program; returns when the node has accepted it. A refusal comes as LaunchFailed."""

    @abstractmethod
    def events(self) -> AsyncIterator[Event]:
        """The events, in order, until ``close``."""

    @abstractmethod
    def set_progress(self, progress: float) -> None:
        """Tell the cluster how far the job is, 0 to 1, for it to show."""

    @abstractmethod
    async def finish(self, status: FinalStatus, diagnostics: str, tracking_url: str) -> None:
        """Tell the cluster how the application ended; it stops the containers that are left. Once."""

    @abstractmethod
    async def close(self) -> None:
        """Close connections and end tasks of the event loop. Idempotent."""


class ResourceManagerError(Exception):
    """The cluster refuses for good; the message says what and why."""


class EventQueue:
    """The cluster's events in order, read by ``async for`` until it is closed."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Union[Event, BaseException, None]] = asyncio.Queue()

    def put(self, event: Event) -> None:
        self._queue.put_nowait(event)

    def fail(self, error: BaseException) -> None:
        """Raise this error at the reader, after what was put before."""
        self._queue.put_nowait(error)

    def close(self) -> None:
        """End the reading, after what was put before."""
        self._queue.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[Event]:
        while True:
            event = await self._queue.get()
            if event is None:
                return
            if isinstance(event, BaseException):
                raise event
            yield event


class Background:
    """A set of background tasks: owned, watched for failures, cancelled at the end.

    ``failed`` is called with what a task raised.
    """

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed = failed

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error:
            self._failed(error)
