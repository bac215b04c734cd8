"""YARN's ResourceManager for the application master, over Hadoop RPC.

The module also converts YARN's exit statuses, preemption messages and node reports to events.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Sequence
from typing import Optional

import attrs

from tony_provider.runtime.am import descriptions
from tony_provider.runtime.am.resource_manager import (
    Allocated,
    AttemptOver,
    Background,
    Completed,
    ConnectionLost,
    ConnectionRestored,
    Container,
    ContainerExit,
    ContainerRequest,
    Event,
    EventQueue,
    ExitReason,
    Largest,
    Launch,
    LaunchFailed,
    NodeLeaving,
    NodesCounted,
    NotPlaced,
    Preempting,
    Registered,
    ResourceManager,
    ResourceManagerError,
)
from tony_provider.runtime.am.yarn.container_requests import ContainerAsks, RoomFinder
from tony_provider.runtime.am.yarn.yarn_clients import AMRMClient, NMClient
from tony_provider.runtime.application import ApplicationDescription, YarnAccess
from tony_provider.runtime.common.concurrency import loop_time, wait_with_timeout
from tony_provider.runtime.common.network import Address
from tony_provider.runtime.hadoop import sasl, yarn_records
from tony_provider.runtime.hadoop.errors import (
    ApplicationAttemptNotFound,
    InvalidResourceRequest,
    RpcConnectionError,
    RpcError,
    RpcTimeout,
)
from tony_provider.runtime.hadoop.proto import yarn_pb2 as yarn
from tony_provider.runtime.hadoop.proto import yarn_service_pb2 as service
from tony_provider.runtime.hadoop.rpc import ConnectionSettings
from tony_provider.runtime.hadoop.tokens import Credentials
from tony_provider.runtime.hadoop.yarn_records import ContainerId, node_address
from tony_provider.runtime.protocol.status import FinalStatus

log = logging.getLogger(__name__)

_NOTICE = 0.25  # seconds: yarn.nodemanager.sleep-delay-before-sigkill.ms
_BUSY = 0.2  # seconds between heartbeats while an answer is expected soon
_IDLE = 1.0  # seconds between heartbeats otherwise
_BUSY_FOR = 10.0  # seconds after a change during which answers are expected soon
_LEAST = 0.05  # minimum seconds between heartbeats
_NOT_PLACED = {
    yarn.RRP_COULD_NOT_PLACE_ON_NODE: "YARN finds no node that satisfies its placement constraints",
    yarn.RRP_COULD_NOT_SCHEDULE_ON_NODE: "its queue, or the nodes that satisfy its placement constraints, have no room",
}


class YarnResourceManager(ResourceManager):
    """Runs the application master's heartbeat with the active ResourceManager, and retries while none is active."""

    notice = _NOTICE

    def __init__(self, description: ApplicationDescription, access: YarnAccess, credentials: Credentials) -> None:
        """Create the object within a running event loop. Raises CredentialsError, ResourceManagerError."""
        settings = ConnectionSettings(protection=sasl.accepted_protection(access.rpc_protection))
        self._scheduler = AMRMClient(_addresses(access), credentials.application_master_token(), settings)
        self._asks = ContainerAsks()
        self._notices = PreemptionMessages()
        self._room = RoomFinder()
        self._nodes = NMClient(settings)
        self._racks = access.racks
        self._containers: dict[str, yarn.ContainerProto] = {}
        self._tags: dict[str, list[str]] = {}  # allocation tags by container
        self._events = EventQueue()
        self._background = Background(self._events.fail)
        self._wake = asyncio.Event()
        self._counted = 0  # usable nodes of the cluster
        self._progress = 0.0
        self._busy_until = 0.0
        self._reachable = True
        self._ended = False

    async def register(self, *, host: str, port: int, tracking_url: str) -> Registered:
        answer = await self._scheduler.register(host, port, tracking_url)
        self._background.spawn(self._beat())
        if answer is None:
            return Registered(largest=None)
        self._nodes.acls = list(answer.application_ACLs)
        self._nodes.learn(answer.nm_tokens_from_previous_attempts)
        for container in answer.containers_from_previous_attempts:
            self._containers[_id(container)] = container
            self._tags[_id(container)] = list(container.allocation_tags)
        most = answer.maximumCapability
        return Registered(
            largest=Largest(
                most.memory, most.virtual_cores, yarn_records.other_resources(most), yarn_records.resource_units(most)
            ),
            containers=[_container(each) for each in answer.containers_from_previous_attempts],
            access_lists=yarn_records.access_lists(answer.application_ACLs),
        )

    def request(self, requests: Sequence[ContainerRequest]) -> None:
        self._request(requests, loop_time())

    def _request(self, requests: Sequence[ContainerRequest], now: float) -> None:
        held = {tag for tags in self._tags.values() for tag in tags}
        self._asks.request(requests, now, held)
        self._hurry()

    def cancel(self, keys: Sequence[int]) -> None:
        self._asks.cancel(keys)
        self._hurry()

    def release(self, container_ids: Sequence[str]) -> None:
        self._asks.release(map(ContainerId.parse, container_ids))
        self._hurry()

    def avoid(self, nodes: Sequence[str]) -> None:
        self._asks.avoid(nodes)
        self._hurry()

    def look_for_room(self, request: ContainerRequest, most: int) -> None:
        self._room.look(request, most)
        self._wake.set()

    def _look(self, now: float) -> None:
        """End the current search for room if it is over, and begin the next one."""
        if found := self._room.end(now):
            self._asks.cancel(found.keys)
            self._asks.release(found.containers)
            self._events.put(found.room)
        if requests := self._room.begin(now):
            self._request(requests, now)

    async def launch(self, container: Container, launch: Launch) -> None:
        allocated = self._containers.get(container.id)
        if allocated is None:
            return  # the container has already ended, and its end was reported
        if problem := await self._nodes.start(allocated, launch):
            self._events.put(LaunchFailed(container.id, descriptions.without_frames(problem)))

    def events(self) -> AsyncIterator[Event]:
        return self._events.__aiter__()

    def set_progress(self, progress: float) -> None:
        self._progress = progress

    async def finish(self, status: FinalStatus, diagnostics: str) -> None:
        await self._background.close()
        if not self._ended:
            await self._scheduler.finish(status, diagnostics)

    async def close(self) -> None:
        self._events.close()
        await self._background.close()
        await self._scheduler.close()
        await self._nodes.close()

    # ---- the heartbeat -----------------------------------------------------------------------------------------

    def _hurry(self) -> None:
        self._busy_until = loop_time() + _BUSY_FOR
        self._wake.set()

    async def _beat(self) -> None:
        while not self._ended:
            self._wake.clear()
            await self._allocate()
            busy = loop_time() < self._busy_until
            await asyncio.sleep(_LEAST)
            try:
                await wait_with_timeout(self._wake.wait(), (_BUSY if busy else _IDLE) - _LEAST)
            except asyncio.TimeoutError:
                continue

    async def _allocate(self) -> None:
        now = loop_time()
        self._look(now)
        saying = self._asks.next(now)
        request = service.AllocateRequestProto(
            ask=saying.resource_requests(self._racks),
            scheduling_requests=saying.scheduling_requests,
            release=saying.releases,
            blacklist_request=saying.blacklist,
            progress=self._progress,
        )
        try:
            answer = await self._scheduler.allocate(request)
        except (RpcConnectionError, RpcTimeout) as error:
            self._lost(str(error))
            return
        except ApplicationAttemptNotFound as error:
            self._end(f"the ResourceManager has ended this application attempt ({error})")
            return
        except InvalidResourceRequest as error:
            self._asks.refused(saying)
            self._events.fail(ResourceManagerError(f"YARN refuses the request for containers: {error}"))
            return
        except RpcError as error:
            raise ResourceManagerError(f"YARN refuses this application master: {error}") from error
        if not self._reachable:
            self._reachable = True
            self._events.put(ConnectionRestored())
        if answer is None:  # the ResourceManager was restarted, and we have registered again
            self._asks.start_again()
            return
        self._asks.said(saying)
        if self._asks.more:
            self._hurry()
        self._take(answer)

    def _take(self, answer: service.AllocateResponseProto) -> None:
        self._nodes.learn(answer.nm_tokens)
        if answer.num_cluster_nodes != self._counted:
            self._counted = answer.num_cluster_nodes
            self._events.put(NodesCounted(self._counted))
        for container in answer.containers_from_previous_attempts:
            self._found_late(container)
        for container in answer.allocated_containers:
            self._allocated(container)
        for rejected in answer.rejected_scheduling_requests:
            self._not_placed(rejected)
        self._notice(answer)  # before the completions, which preemption messages announce
        for status in answer.completed_container_statuses:
            self._completed(status)
        if answer.a_m_command == yarn.AM_SHUTDOWN and answer.HasField("a_m_command"):
            self._end("the ResourceManager ordered this application master to shut down")

    def _found_late(self, container: yarn.ContainerProto) -> None:
        """Release a container of a former attempt, on a node that reported after this attempt had registered.

        The session did not know the container when it recovered, and has already replaced it.
        """
        if _id(container) not in self._containers:
            log.info("releasing %s of a former attempt: it was reported after the recovery", _id(container))
            self._asks.release([ContainerId.from_proto(container.id)])
            self._hurry()

    def _notice(self, answer: service.AllocateResponseProto) -> None:
        now = loop_time()
        if preempting := self._notices.preempting(answer.preempt, self._containers, now):
            self._events.put(preempting)
        if answer.updated_nodes:
            holding = {_container(container).node for container in self._containers.values()}
            for leaving in leaving_nodes(answer.updated_nodes, holding):
                self._events.put(leaving)

    def _allocated(self, container: yarn.ContainerProto) -> None:
        request = self._asks.granted(container.allocation_request_id, _container(container).node)
        container_id = ContainerId.from_proto(container.id)
        self._hurry()
        if request and self._room.came(request.key, container_id, loop_time()):
            return
        if request is None:
            self._asks.release([container_id])
            return
        self._containers[_id(container)] = container
        self._tags[_id(container)] = request.tags
        self._events.put(Allocated(request.key, _container(container)))

    def _not_placed(self, rejected: yarn.RejectedSchedulingRequestProto) -> None:
        key = rejected.request.allocationRequestId
        if self._asks.not_placed(key, loop_time()):
            self._events.put(NotPlaced(key, _NOT_PLACED.get(rejected.reason, "YARN finds no node for the container")))

    def _completed(self, status: yarn.ContainerStatusProto) -> None:
        container_id = ContainerId.from_proto(status.container_id)
        self._asks.completed(container_id)
        self._tags.pop(str(container_id), None)
        self._hurry()  # more containers may end soon
        if self._containers.pop(str(container_id), None):
            ended = exit_of_status(status.exit_status)
            self._events.put(Completed(str(container_id), ended, descriptions.without_frames(status.diagnostics)))

    def _lost(self, reason: str) -> None:
        if self._reachable:
            self._reachable = False
            self._events.put(ConnectionLost(reason))

    def _end(self, reason: str) -> None:
        self._ended = True
        self._events.put(AttemptOver(reason))


def _addresses(access: YarnAccess) -> list[Address]:
    try:
        return [Address.parse(text) for text in access.scheduler]
    except ValueError as error:
        raise ResourceManagerError(f"the ResourceManager's scheduler address {error}") from error


def _id(container: yarn.ContainerProto) -> str:
    return str(ContainerId.from_proto(container.id))


def _container(container: yarn.ContainerProto) -> Container:
    return Container(_id(container), str(node_address(container.nodeId)))


_REASONS = {
    -1000: ExitReason.NOT_PREPARED,  # INVALID
    -100: ExitReason.LOST,  # ABORTED
    -101: ExitReason.DISKS_FAILED,
    -102: ExitReason.PREEMPTED,
    -103: ExitReason.EXCEEDED_VIRTUAL_MEMORY,  # KILLED_EXCEEDED_VMEM
    -104: ExitReason.EXCEEDED_MEMORY,  # KILLED_EXCEEDED_PMEM
    -105: ExitReason.GIVEN_BACK,  # KILLED_BY_APPMASTER
    -106: ExitReason.KILLED_BY_CLUSTER,  # KILLED_BY_RESOURCEMANAGER
    -107: ExitReason.APPLICATION_ENDED,  # KILLED_AFTER_APP_COMPLETION
    -108: ExitReason.MADE_ROOM,  # KILLED_BY_CONTAINER_SCHEDULER
    -109: ExitReason.EXCESS_LOGS,  # KILLED_FOR_EXCESS_LOGS
}


def exit_of_status(status: int) -> ContainerExit:
    """Convert YARN's exit status of a container.

    A status of at least 0 is the exit code of the container's program. See
    org.apache.hadoop.yarn.api.records.ContainerExitStatus.
    """
    reason = ExitReason.EXITED if status >= 0 else _REASONS.get(status, ExitReason.OTHER)
    return ContainerExit(reason, status)


_SAID_FOR = 60.0  # seconds in which repeated messages cause no event; some schedulers repeat them with each heartbeat
_GONE = (yarn.NS_LOST, yarn.NS_DECOMMISSIONED, yarn.NS_SHUTDOWN, yarn.NS_UNHEALTHY)


@attrs.define
class PreemptionMessages:
    """Converts YARN's preemption messages to events, once per container that we hold."""

    _said: dict[str, float] = attrs.field(factory=dict)  # time of the event by container

    def preempting(
        self, message: yarn.PreemptionMessageProto, held: Collection[str], now: float
    ) -> Optional[Preempting]:
        """Return the event for a message, or None if it contains no news.

        Negotiable contracts are treated like strict ones, because a gang has no other container to offer. YARN does not
        report the remaining time. It waits for yarn.resourcemanager.monitor.capacity.preemption.max_wait_before_kill,
        15 s by default.
        """
        self._said = {name: at for name, at in self._said.items() if name in held and now - at < _SAID_FOR}
        marked = dict.fromkeys(_marked(message))
        new = [name for name in marked if name in held and name not in self._said]
        self._said.update((name, now) for name in new)
        return Preempting(new) if new else None


def _marked(message: yarn.PreemptionMessageProto) -> Iterator[str]:
    for container in (*message.strictContract.container, *message.contract.container):
        yield str(ContainerId.from_proto(container.id))


def leaving_nodes(nodes: Iterable[yarn.NodeReportProto], holding: Collection[str]) -> Iterator[NodeLeaving]:
    """Yield events for reported nodes that are leaving and hold containers of this application."""
    for report in nodes:
        node = str(node_address(report.nodeId))
        if node not in holding:
            continue
        if report.node_state == yarn.NS_DECOMMISSIONING:
            timeout = report.decommissioning_timeout if report.HasField("decommissioning_timeout") else 0
            yield NodeLeaving(node, float(timeout) if timeout else None)
        elif report.node_state in _GONE:
            yield NodeLeaving(node, 0.0)
