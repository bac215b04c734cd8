"""The ResourceManager interface: a cluster that grants containers and reports their events.

``yarn`` (Hadoop RPC) and ``local_resource_manager`` (subprocesses) implement it. Only ``lifecycle`` distinguishes them.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Coroutine, Sequence
from enum import Enum
from typing import Any, Callable, Optional, Union

import attrs

from tony_provider.runtime.application import LocalizedResource
from tony_provider.runtime.common.concurrency import failure_of
from tony_provider.runtime.jobspec.placement import Placement
from tony_provider.runtime.protocol.status import FinalStatus


@attrs.frozen
class ContainerRequest:
    """A request for one container. The master chooses its ``key``, and an allocation answers exactly one request."""

    key: int  # unique within the application (YARN's allocation_request_id)
    priority: int  # lower numbers are served first; requests of the same size share a priority
    memory: int  # MiB
    vcores: int
    resources: dict[str, int] = attrs.field(factory=dict)  # countable resources by YARN's names; GPUs are yarn.io/gpu
    units: dict[str, str] = attrs.field(factory=dict)  # YARN's unit by resource, unless counted one by one
    node_label: Optional[str] = None
    placement: Optional[Placement] = None  # None: anywhere
    tags: list[str] = attrs.field(factory=list)  # allocation tags if placement rules apply, otherwise empty


@attrs.frozen
class Container:
    """A container that the cluster has granted."""

    id: str  # in YARN's format: container_e01_…
    node: str  # host:port of its NodeManager


@attrs.frozen
class Launch:
    """The program of a container: command, environment, files, credentials."""

    command: list[str]  # program and arguments without shell syntax; output goes to the container's log directory
    env: dict[str, str]
    files: dict[str, LocalizedResource]  # by name in the container's directory
    credentials: bytes = attrs.field(repr=False)  # a Hadoop token file


@attrs.frozen
class Largest:
    """The maximum size of a container in the cluster."""

    memory: int  # MiB
    vcores: int
    resources: dict[str, int] = attrs.field(factory=dict)  # by YARN's names
    units: dict[str, str] = attrs.field(factory=dict)  # the cluster's units by resource, unless counted one by one


@attrs.frozen
class Registered:
    """The response to ``register``: the cluster's limits, and running containers of the application's former attempt.

    From now on, those containers belong to this attempt: it can release them and receives their events. They do not
    count as answers to its requests. The cluster has forgotten the former attempt's pending requests.
    """

    largest: Optional[Largest]  # None: unknown, because the response was lost
    containers: list[Container] = attrs.field(factory=list)
    access_lists: dict[str, str] = attrs.field(factory=dict)  # YARN's access lists for VIEW_APP and MODIFY_APP


@attrs.frozen
class Allocated:
    """Event: the cluster grants the container of a request."""

    key: int
    container: Container


@attrs.frozen
class NotPlaced:
    """Event: the cluster found no node for the container of a request. The request is repeated."""

    key: int
    reason: str


@attrs.frozen
class LaunchFailed:
    """Event: a node did not start a container's program."""

    container_id: str
    reason: str


class ExitReason(str, Enum):
    """Why a container ended."""

    EXITED = "EXITED"  # its program exited
    NOT_PREPARED = "NOT_PREPARED"  # its files could not be localised on the node
    LOST = "LOST"  # its node was lost, or the reason is unknown
    DISKS_FAILED = "DISKS_FAILED"
    PREEMPTED = "PREEMPTED"  # another queue or application received its share
    MADE_ROOM = "MADE_ROOM"  # its node needed its resources for another container
    EXCEEDED_MEMORY = "EXCEEDED_MEMORY"
    EXCEEDED_VIRTUAL_MEMORY = "EXCEEDED_VIRTUAL_MEMORY"
    EXCESS_LOGS = "EXCESS_LOGS"
    GIVEN_BACK = "GIVEN_BACK"  # released by the application master
    KILLED_BY_CLUSTER = "KILLED_BY_CLUSTER"
    APPLICATION_ENDED = "APPLICATION_ENDED"
    OTHER = "OTHER"  # a reason that this code does not know


@attrs.frozen
class ContainerExit:
    """How a container ended."""

    reason: ExitReason
    status: int = 0  # exit code if reason is EXITED, otherwise the cluster's own number, which is only for diagnostics

    @property
    def exit_code(self) -> Optional[int]:
        """The exit code of the container's program, or None if it did not exit by itself."""
        return self.status if self.reason is ExitReason.EXITED else None


@attrs.frozen
class Completed:
    """Event: a container ended."""

    container_id: str
    exit: ContainerExit
    diagnostics: str = ""


@attrs.frozen
class AttemptOver:
    """Event: the cluster has ended this application master's attempt.

    Either the application was killed, or the cluster considered this master lost and has started another one, which
    owns the containers. No action of this master has an effect any more. It must exit without touching its tasks or the
    job's files.
    """

    reason: str


@attrs.frozen
class ConnectionLost:
    """Event: the cluster is unreachable. Only the event log and the status use this event."""

    reason: str


@attrs.frozen
class ConnectionRestored:
    """Event: the cluster is reachable again."""


@attrs.frozen
class Preempting:
    """Event: the cluster will soon take these containers. There may be time for a checkpoint."""

    container_ids: list[str]
    seconds: Optional[float] = None  # time until the containers are taken; None: unknown


@attrs.frozen
class NodeLeaving:
    """Event: a node is leaving the cluster, so its containers will end soon."""

    node: str  # host:port
    seconds: Optional[float] = None  # time until the containers end; None: unknown


@attrs.frozen
class NodesCounted:
    """Event: the cluster's number of usable nodes has changed."""

    nodes: int


@attrs.frozen
class Room:
    """Event: the number of containers that the cluster has room for, in answer to ``look_for_room``."""

    key: int  # key of the request in ``look_for_room``
    containers: int


Event = Union[
    Allocated,
    NotPlaced,
    LaunchFailed,
    Completed,
    AttemptOver,
    ConnectionLost,
    ConnectionRestored,
    Preempting,
    NodeLeaving,
    NodesCounted,
    Room,
]


class ResourceManager(ABC):
    """The cluster as the application master uses it: grants containers, starts programs in them, reports their end.

    Methods raise subclasses of ResourceManagerError for permanent failures, and retry after temporary ones.
    """

    notice: float
    """Seconds that the application master has between SIGTERM and SIGKILL when the cluster ends it."""

    @abstractmethod
    async def register(self, *, host: str, port: int, tracking_url: str) -> Registered:
        """Register this application master with the cluster. Call it once, before all other methods."""

    @abstractmethod
    def request(self, requests: Sequence[ContainerRequest]) -> None:
        """Request containers. Does not block. The cluster answers with Allocated events."""

    @abstractmethod
    def cancel(self, keys: Sequence[int]) -> None:
        """Withdraw unanswered requests. A container that is already on its way is released without an event."""

    @abstractmethod
    def release(self, container_ids: Sequence[str]) -> None:
        """Release containers. YARN stops the running ones. Their end is still reported as Completed."""

    @abstractmethod
    def avoid(self, nodes: Sequence[str]) -> None:
        """Avoid these nodes (host:port) from now on. The list replaces the former one. Does not block.

        The cluster may ignore the list. If it has no other nodes, call this method again with an empty list.
        """

    @abstractmethod
    def look_for_room(self, request: ContainerRequest, most: int) -> None:
        """Determine for how many containers like this one the cluster has room now, at most ``most``.

        Does not block, and keeps no container. The answer is a Room event, possibly seconds later. Only one search runs
        at a time. A new search replaces a search that waits.
        """

    @abstractmethod
    async def launch(self, container: Container, launch: Launch) -> None:
        """Start a container's program.

        Return after the node has accepted it. A rejection is reported as LaunchFailed.
        """

    @abstractmethod
    def events(self) -> AsyncIterator[Event]:
        """Yield the events in order, until ``close``."""

    @abstractmethod
    def set_progress(self, progress: float) -> None:
        """Report the job's progress, 0 to 1, for the cluster's user interface."""

    @abstractmethod
    async def finish(self, status: FinalStatus, diagnostics: str) -> None:
        """Report the final status to the cluster, which stops the remaining containers. Call it once."""

    @abstractmethod
    async def close(self) -> None:
        """Close connections and background tasks. Idempotent."""


class ResourceManagerError(Exception):
    """The cluster permanently rejects a request. The message contains the request and the reason."""


class EventQueue:
    """The cluster's events in order, for one reader with ``async for``, until it is closed."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Union[Event, BaseException, None]] = asyncio.Queue()

    def put(self, event: Event) -> None:
        self._queue.put_nowait(event)

    def fail(self, error: BaseException) -> None:
        """Raise an error in the reader, after the events that were put before."""
        self._queue.put_nowait(error)

    def close(self) -> None:
        """End the reader's loop, after the events that were put before."""
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
    """Background tasks of an event loop that are cancelled together.

    ``failed`` is called with the exception of a failed task.
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
        if error := failure_of(task):
            self._failed(error)
