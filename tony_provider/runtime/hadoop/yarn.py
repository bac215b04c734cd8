"""The two protocols of an application master, with the ResourceManager and with the NodeManagers, call by call.

Each method is one call; see RpcClient for what is tried again and what is raised. ``timeout`` is in seconds, over all
tries.
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
    Beyond RpcClient's errors, any call may raise ApplicationAttemptNotFound: the attempt has been ended, stop. A token
    that YARN has rolled (``am_rm_token`` of an answer) goes to ``use_token``.
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
        """The ResourceManager used at present."""
        return self._client.address

    def use_token(self, token: Token) -> None:
        self._client.use_token(token)

    async def register(
        self, request: service.RegisterApplicationMasterRequestProto, *, timeout: float
    ) -> service.RegisterApplicationMasterResponseProto:
        """Register the application master. Not idempotent.

        A second time raises InvalidApplicationMasterRequest, until the ResourceManager is restarted.
        """
        return await self._client.call(
            "registerApplicationMaster", request, service.RegisterApplicationMasterResponseProto, timeout=timeout
        )

    async def allocate(self, request: service.AllocateRequestProto, *, timeout: float) -> service.AllocateResponseProto:
        """Send a heartbeat with requests and releases. One at a time.

        Idempotent: the ResourceManager answers a repeated ``response_id`` with its last answer. Raises
        ApplicationMasterNotRegistered after a restart of the ResourceManager, InvalidResourceRequest.
        """
        return await self._client.call(
            "allocate", request, service.AllocateResponseProto, timeout=timeout, idempotent=True
        )

    async def finish(
        self, request: service.FinishApplicationMasterRequestProto, *, timeout: float
    ) -> service.FinishApplicationMasterResponseProto:
        """Unregister the application master. Idempotent; call again until ``isUnregistered``.

        A ResourceManager that has forgotten the attempt by then raises ApplicationAttemptNotFound, one that was
        restarted ApplicationMasterNotRegistered.
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
    """Calls to one NodeManager, whose address is the node id of its containers; ``token`` is its NMToken.

    An idle instance holds no connection (ConnectionSettings.idle_timeout), so one per node can be kept.
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
        """Start containers. Not idempotent: a second start is refused.

        Refused containers are in ``failed_requests`` (see errors.serialized_error). After RpcTimeout or
        RpcConnectionError the containers may run; ``statuses`` tells.
        """
        request = service.StartContainersRequestProto(start_container_request=requests)
        return await self._client.call(
            "startContainers", request, service.StartContainersResponseProto, timeout=timeout
        )

    async def stop(self, containers: Iterable[ContainerId], *, timeout: float) -> service.StopContainersResponseProto:
        """Stop containers. Idempotent.

        Containers that the node does not know (any more) are in ``failed_requests``, or are passed over.
        """
        request = service.StopContainersRequestProto(container_id=[container.to_proto() for container in containers])
        return await self._client.call(
            "stopContainers", request, service.StopContainersResponseProto, timeout=timeout, idempotent=True
        )

    async def statuses(
        self, containers: Iterable[ContainerId], *, timeout: float
    ) -> service.GetContainerStatusesResponseProto:
        """The statuses of containers. Idempotent.

        Containers that the node does not know (any more) are in ``failed_requests``.
        """
        request = service.GetContainerStatusesRequestProto(
            container_id=[container.to_proto() for container in containers]
        )
        return await self._client.call(
            "getContainerStatuses", request, service.GetContainerStatusesResponseProto, timeout=timeout, idempotent=True
        )

    async def close(self) -> None:
        await self._client.close()
