"""Client for YARN's NodeManagers, which start containers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Optional

from tony_provider.runtime.am.resource_manager import Launch
from tony_provider.runtime.application import LocalizedResource
from tony_provider.runtime.common.network import Address
from tony_provider.runtime.hadoop import yarn_records
from tony_provider.runtime.hadoop.errors import (
    HadoopError,
    NodeManagerNotYetReady,
    RpcConnectionError,
    RpcTimeout,
    serialized_error,
)
from tony_provider.runtime.hadoop.proto import yarn_pb2 as yarn
from tony_provider.runtime.hadoop.proto import yarn_service_pb2 as service
from tony_provider.runtime.hadoop.rpc import ConnectionSettings, RpcClient
from tony_provider.runtime.hadoop.tokens import Credentials, Token
from tony_provider.runtime.hadoop.yarn_records import (
    CONTAINER_MANAGEMENT_PROTOCOL,
    CONTAINER_STATUSES,
    START_CONTAINERS,
    ContainerId,
    node_address,
)
from tony_provider.runtime.launch.launch_context import script_values
from tony_provider.runtime.storage import StorageInvalidPath, uris

log = logging.getLogger(__name__)

_TIMEOUT = 30.0  # seconds for one call, including the connection
_TRIES = 5  # attempts while a node is not ready
_RETRY_DELAY = 1.0  # seconds


class NMClient:
    """Starts containers. Creates one RPC client per node on first use; an idle client holds no connection.

    YARN sends each node's token only once.
    """

    def __init__(self, settings: ConnectionSettings) -> None:
        self._settings = settings
        self._tokens: dict[Address, Token] = {}
        self._clients: dict[Address, RpcClient] = {}
        self.acls: Sequence[yarn.ApplicationACLMapProto] = ()
        """Who may see the containers' logs: those of the answer to the registration."""

    def learn(self, tokens: Iterable[yarn.NMTokenProto]) -> None:
        for entry in tokens:
            address, token = node_address(entry.nodeId), Token.from_proto(entry.token)
            self._tokens[address] = token
            if address in self._clients:
                self._clients[address].use_token(token)

    async def start(self, container: yarn.ContainerProto, launch: Launch) -> Optional[str]:
        """Start a container's program. Return None if its node has accepted it, otherwise the reason."""
        address = node_address(container.nodeId)
        try:
            request = yarn_records.start_request(launch_context(launch, self.acls), container)
        except (ValueError, StorageInvalidPath) as error:
            return str(error)
        for left in reversed(range(_TRIES)):
            try:
                return await self._start(address, ContainerId.from_proto(container.id), request)
            except NodeManagerNotYetReady:
                if left:
                    await asyncio.sleep(_RETRY_DELAY)
            except HadoopError as error:
                return f"{address}: {error}"
        return f"{address} is not ready"

    async def close(self) -> None:
        await asyncio.gather(*(client.close() for client in self._clients.values()))

    async def _start(
        self, address: Address, container: ContainerId, request: service.StartContainerRequestProto
    ) -> Optional[str]:
        client = self._client(address)
        try:
            answer = await client.call(
                START_CONTAINERS,
                service.StartContainersRequestProto(start_container_request=[request]),
                timeout=_TIMEOUT,
            )
        except (RpcConnectionError, RpcTimeout) as error:
            return await self._became_of(client, container, error)
        for failure in answer.failed_requests:
            problem = serialized_error(failure.exception)
            if isinstance(problem, NodeManagerNotYetReady):
                raise problem
            return str(problem)
        return None

    async def _became_of(self, client: RpcClient, container: ContainerId, error: HadoopError) -> Optional[str]:
        """Query the status of a container whose start response was lost, because it may have been started."""
        try:
            answer = await client.call(
                CONTAINER_STATUSES,
                service.GetContainerStatusesRequestProto(container_id=[container.to_proto()]),
                timeout=_TIMEOUT,
            )
        except HadoopError:
            return f"{client.address}: {error}"
        return None if answer.status else f"{client.address}: {error}"

    def _client(self, address: Address) -> RpcClient:
        client = self._clients.get(address)
        if client is None:
            token = self._tokens.get(address)
            if token is None:
                raise HadoopError("YARN gave no token for this node")
            client = self._clients[address] = RpcClient(
                [address], CONTAINER_MANAGEMENT_PROTOCOL, token, settings=self._settings
            )
        return client


def launch_context(launch: Launch, acls: Iterable[yarn.ApplicationACLMapProto]) -> yarn.ContainerLaunchContextProto:
    """Return the launch in the format that NodeManagers accept.

    Raises ValueError or StorageInvalidPath for a resource that nodes cannot resolve, and UnsafeValue.
    """
    values = script_values(launch.command, launch.env, launch.files)
    return yarn_records.launch_context(
        commands=[values.command],
        environment=values.variables,
        local_resources={name: _local_resource(resource) for name, resource in values.files.items()},
        credentials=Credentials.from_bytes(launch.credentials),
        acls=acls,
    )


def _local_resource(resource: LocalizedResource) -> yarn.LocalResourceProto:
    return yarn_records.local_resource(
        uris.encoded(resource.uri),
        size=resource.size,
        modified_ms=resource.modified_ms,
        archive=False,  # the executor unpacks it, because a node's unpacked copy cannot be verified
        # A node keeps PRIVATE files for the user's next application, and programs can change the node's copy.
        visibility=yarn.PRIVATE if resource.is_verified else yarn.APPLICATION,
    )
