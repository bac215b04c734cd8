"""The two protocols of an application master, with the ResourceManager and with the NodeManagers.

Each method is one call; see RpcClient for retries and errors. ``timeout`` is in seconds, over all attempts of a call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tony_provider.runtime.common.network import Address
from tony_provider.runtime.hadoop.proto import yarn_service_pb2 as service
from tony_provider.runtime.hadoop.rpc import ConnectionSettings, RetryPolicy, RpcClient
from tony_provider.runtime.hadoop.tokens import Token
from tony_provider.runtime.hadoop.yarn_records import ContainerId


class ApplicationMasterProtocol:
    """The application master's calls to the active ResourceManager's scheduler.

    Its address is ``yarn.resourcemanager.scheduler.address``, default port 8030. ``token`` is of kind YARN_AM_RM_TOKEN.
    In addition to RpcClient's errors, any call may raise ApplicationAttemptNotFound: the attempt has ended, so stop.
    Pass a token that YARN has rolled (``am_rm_token`` of an answer) to ``use_token``.
    """

    NAME = "org.apache.hadoop.yarn.api.ApplicationMasterProtocolPB"

    def __init__(
        self,
        addresses: Sequence[Address],
        token: Token,
        *,
        retry: RetryPolicy = RetryPolicy(),  # noqa: B008 - frozen
        settings: ConnectionSettings = ConnectionSettings(),  # noqa: B008 - frozen
    ) -> None:
        self._client = RpcClient(addresses, self.NAME, token, retry=retry, settings=settings)

    @property
    def address(self) -> Address:
        """Address of the current ResourceManager."""
        return self._client.address

    def use_token(self, token: Token) -> None:
        self._client.use_token(token)

    async def register(
        self, request: service.RegisterApplicationMasterRequestProto, *, timeout: float
    ) -> service.RegisterApplicationMasterResponseProto:
        """Register the application master. Not idempotent.

        A second registration raises InvalidApplicationMasterRequest, until the ResourceManager is restarted.
        """
        return await self._client.call(
            "registerApplicationMaster", request, service.RegisterApplicationMasterResponseProto, timeout=timeout
        )

    async def allocate(self, request: service.AllocateRequestProto, *, timeout: float) -> service.AllocateResponseProto:
        """Send a heartbeat with requests and releases. Only one call at a time.

        Idempotent: the ResourceManager answers a repeated ``response_id`` with its last answer. Raises
        ApplicationMasterNotRegistered after a restart of the ResourceManager, InvalidResourceRequest.
        """
        return await self._client.call(
            "allocate", request, service.AllocateResponseProto, timeout=timeout, idempotent=True
        )

    async def finish(
        self, request: service.FinishApplicationMasterRequestProto, *, timeout: float
    ) -> service.FinishApplicationMasterResponseProto:
        """Unregister the application master. Idempotent; repeat until ``isUnregistered``.

        A ResourceManager that no longer knows the attempt raises ApplicationAttemptNotFound; a restarted one raises
        ApplicationMasterNotRegistered.
        """
        return await self._client.call(
            "finishApplicationMaster",
            request,
            service.FinishApplicationMasterResponseProto,
            timeout=timeout,
            idempotent=True,
        )

    async def close(self) -> None:
        await self._client.close()


class ContainerManagementProtocol:
    """Calls to one NodeManager, whose address is the node ID of its containers; ``token`` is its NMToken.

    An idle instance holds no connection (ConnectionSettings.idle_timeout), so a caller may keep one for each node.
    """

    NAME = "org.apache.hadoop.yarn.api.ContainerManagementProtocolPB"

    def __init__(
        self,
        address: Address,
        token: Token,
        *,
        retry: RetryPolicy = RetryPolicy(),  # noqa: B008 - frozen
        settings: ConnectionSettings = ConnectionSettings(),  # noqa: B008 - frozen
    ) -> None:
        self.address = address
        self._client = RpcClient([address], self.NAME, token, retry=retry, settings=settings)

    def use_token(self, token: Token) -> None:
        self._client.use_token(token)

    async def start(
        self, requests: Iterable[service.StartContainerRequestProto], *, timeout: float
    ) -> service.StartContainersResponseProto:
        """Start containers. Not idempotent: a second start is rejected.

        ``failed_requests`` lists rejected containers (see errors.serialized_error). After RpcTimeout or
        RpcConnectionError the containers may be running; check ``statuses``.
        """
        request = service.StartContainersRequestProto(start_container_request=requests)
        return await self._client.call(
            "startContainers", request, service.StartContainersResponseProto, timeout=timeout
        )

    async def stop(self, containers: Iterable[ContainerId], *, timeout: float) -> service.StopContainersResponseProto:
        """Stop containers. Idempotent.

        Containers that the node does not (or no longer) know are in ``failed_requests``, or are ignored.
        """
        request = service.StopContainersRequestProto(container_id=[container.to_proto() for container in containers])
        return await self._client.call(
            "stopContainers", request, service.StopContainersResponseProto, timeout=timeout, idempotent=True
        )

    async def statuses(
        self, containers: Iterable[ContainerId], *, timeout: float
    ) -> service.GetContainerStatusesResponseProto:
        """Return the statuses of containers. Idempotent.

        Containers that the node does not (or no longer) know are in ``failed_requests``.
        """
        request = service.GetContainerStatusesRequestProto(
            container_id=[container.to_proto() for container in containers]
        )
        return await self._client.call(
            "getContainerStatuses", request, service.GetContainerStatusesResponseProto, timeout=timeout, idempotent=True
        )

    async def close(self) -> None:
        await self._client.close()
