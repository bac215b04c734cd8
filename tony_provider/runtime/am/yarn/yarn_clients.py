"""RPC clients of the application master: for the ResourceManager's scheduler, and for NodeManagers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterable, Sequence
from typing import Callable, Optional, TypeVar

from tony_provider.runtime.am.resource_manager import Launch, ResourceManagerError
from tony_provider.runtime.application import LocalizedResource
from tony_provider.runtime.common.concurrency import loop_time
from tony_provider.runtime.common.network import Address
from tony_provider.runtime.hadoop import yarn_records
from tony_provider.runtime.hadoop.errors import (
    ApplicationAttemptNotFound,
    ApplicationMasterNotRegistered,
    HadoopError,
    InvalidApplicationMasterRequest,
    InvalidToken,
    NodeManagerNotYetReady,
    RpcConnectionError,
    RpcError,
    RpcTimeout,
    SaslRefused,
    serialized_error,
)
from tony_provider.runtime.hadoop.proto import yarn_pb2 as yarn
from tony_provider.runtime.hadoop.proto import yarn_service_pb2 as service
from tony_provider.runtime.hadoop.rpc import ConnectionSettings, RetryPolicy, RpcClient
from tony_provider.runtime.hadoop.tokens import Credentials, Token
from tony_provider.runtime.hadoop.yarn_records import (
    ALLOCATE,
    APPLICATION_MASTER_PROTOCOL,
    CONTAINER_MANAGEMENT_PROTOCOL,
    CONTAINER_STATUSES,
    FINISH,
    REGISTER,
    START_CONTAINERS,
    ContainerId,
    node_address,
)
from tony_provider.runtime.launch.launch_context import script_values
from tony_provider.runtime.protocol.status import FinalStatus
from tony_provider.runtime.storage import StorageInvalidPath, uris

log = logging.getLogger(__name__)

_RETRY = RetryPolicy(max_delay=2.0)  # short, to reach a restarted ResourceManager before this attempt expires
_TIMEOUT = 20.0  # seconds for one call over all servers
_BEAT_TIMEOUT = 10.0  # seconds for a heartbeat, which is repeated anyway
_REGISTER_FOR = 600.0  # seconds: YARN waits 10 minutes for the registration of an application master
_FINISH_FOR = 300.0  # seconds
_FINISH_DELAY = 0.1  # seconds between two calls
_RETRY_DELAY = 1.0  # seconds
_REFUSED_FOR = 20.0  # seconds: a ResourceManager that is starting may not know its applications yet
_NOT_FOUND_FOR = 3.0  # seconds until an attempt that the ResourceManager does not know counts as ended

_FINAL = {
    FinalStatus.SUCCEEDED: yarn.APP_SUCCEEDED,
    FinalStatus.FAILED: yarn.APP_FAILED,
    FinalStatus.KILLED: yarn.APP_KILLED,
}
T = TypeVar("T")


class AMRMClient:
    """Speaks the application master's protocol, including response IDs, re-registration and rolled tokens."""

    def __init__(
        self,
        addresses: Sequence[Address],
        token: Token,
        settings: ConnectionSettings = ConnectionSettings(),  # noqa: B008 - frozen
    ) -> None:
        self._client = RpcClient(addresses, APPLICATION_MASTER_PROTOCOL, token, retry=_RETRY, settings=settings)
        self._token = token
        self._addresses = addresses
        self._registration: Optional[service.RegisterApplicationMasterRequestProto] = None
        self._response_id = 0
        self._forgotten = False  # the ResourceManager was restarted: register again before any other call
        self._refused_since: Optional[float] = None

    async def register(
        self, host: str, port: int, tracking_url: str
    ) -> Optional[service.RegisterApplicationMasterResponseProto]:
        """Register this attempt and return the response.

        Returns None if the registration succeeded but the response was lost, because YARN sends it only once. Raises
        ResourceManagerError if no ResourceManager accepts the registration within ten minutes.
        """
        self._registration = service.RegisterApplicationMasterRequestProto(
            host=host, rpc_port=port, tracking_url=tracking_url
        )
        lost = False

        async def register() -> Optional[service.RegisterApplicationMasterResponseProto]:
            nonlocal lost
            try:
                return await self._register()
            except (RpcConnectionError, RpcTimeout):
                lost = True
                raise
            except InvalidApplicationMasterRequest as error:
                if not lost:
                    raise
                log.warning("this application master is already registered, and the first response was lost: %s", error)
                return None

        try:
            return await self._patiently(register, _REGISTER_FOR)
        except RpcError as error:
            servers = ", ".join(map(str, self._addresses))
            raise ResourceManagerError(f"cannot register with the ResourceManager ({servers}): {error}") from error

    async def allocate(self, request: service.AllocateRequestProto) -> Optional[service.AllocateResponseProto]:
        """Send one heartbeat. Sets the ``response_id`` of the request.

        Returns None if the ResourceManager was restarted and this attempt has registered again. The caller must then
        repeat requests that were not granted. Raises ApplicationAttemptNotFound (stop), RpcConnectionError and
        RpcTimeout (retry), and other errors of the ResourceManager.
        """
        try:
            answer = await self._beat(request)
        except (InvalidToken, SaslRefused) as error:
            raise self._refused(error, _REFUSED_FOR) from error
        except ApplicationAttemptNotFound as error:
            raise self._refused(error, _NOT_FOUND_FOR) from error
        self._refused_since = None
        if answer is None:
            return None
        self._response_id = answer.response_id
        if answer.HasField("am_rm_token"):
            self._use_token(Token.from_proto(answer.am_rm_token))
        return answer

    async def finish(self, status: FinalStatus, diagnostics: str) -> None:
        """Unregister, with retries until YARN has recorded the final status. Raises ResourceManagerError."""
        request = service.FinishApplicationMasterRequestProto(
            final_application_status=_FINAL[status], diagnostics=diagnostics, tracking_url=""
        )

        async def finish() -> None:
            try:
                while True:
                    answer = await self._client.call(FINISH, request, timeout=_TIMEOUT)
                    if answer.isUnregistered:
                        return
                    await asyncio.sleep(_FINISH_DELAY)  # the ResourceManager is recording the final status
            except ApplicationAttemptNotFound:
                return  # the ResourceManager has already ended this attempt
            except ApplicationMasterNotRegistered:
                await self._register_again()
                raise RpcConnectionError("the ResourceManager was restarted") from None

        try:
            await self._patiently(finish, _FINISH_FOR)
        except RpcError as error:
            raise ResourceManagerError(f"cannot unregister from the ResourceManager: {error}") from error

    async def close(self) -> None:
        await self._client.close()

    def _use_token(self, token: Token) -> None:
        """Use a token for later connections. Until the next connection, YARN sends the token with each response."""
        if token != self._token:
            log.info("received a new token from the ResourceManager")
            self._token = token
            self._client.use_token(token)

    async def _beat(self, request: service.AllocateRequestProto) -> Optional[service.AllocateResponseProto]:
        if not self._forgotten:
            request.response_id = self._response_id
            try:
                answer = await self._client.call(ALLOCATE, request, timeout=_BEAT_TIMEOUT)
            except ApplicationMasterNotRegistered:
                self._forgotten = True
            else:
                self._forgotten = answer.HasField("a_m_command") and answer.a_m_command == yarn.AM_RESYNC
                if not self._forgotten:
                    return answer
        await self._register_again()
        return None

    async def _register(self) -> service.RegisterApplicationMasterResponseProto:
        if self._registration is None:
            raise RuntimeError("register first")
        self._response_id = 0  # YARN expects 0 after a registration, even if the response was lost
        return await self._client.call(REGISTER, self._registration, timeout=_TIMEOUT)

    async def _register_again(self) -> None:
        """Register again. The caller sends no heartbeat before that has succeeded.

        If only the response was lost, the ResourceManager would already accept a heartbeat. It would then never receive
        the requests that were sent to its predecessor.
        """
        self._forgotten = True
        log.info("registering again: the ResourceManager was restarted, or another one took over")
        try:
            await self._register()
        except InvalidApplicationMasterRequest as error:
            log.info("already registered: %s", error)  # the response to an earlier attempt was lost
        self._forgotten = False

    def _refused(self, error: RpcError, seconds: float) -> RpcError:
        """Return the error to raise. Only repeated refusals of valid credentials mean that this attempt has ended."""
        now = loop_time()
        if self._refused_since is None:
            log.info("the ResourceManager does not know this application attempt: %s", error)
            self._refused_since = now
        if now - self._refused_since < seconds:
            return RpcConnectionError(str(error))
        return ApplicationAttemptNotFound("ApplicationAttemptNotFoundException", str(error))

    @staticmethod
    async def _patiently(call: Callable[[], Awaitable[T]], seconds: float) -> T:
        """Retry until a ResourceManager is available. Raises the last error."""
        deadline = loop_time() + seconds
        while True:
            try:
                return await call()
            except (RpcConnectionError, RpcTimeout) as error:
                if loop_time() >= deadline:
                    raise
                log.warning("%s; retrying", error)
                await asyncio.sleep(_RETRY_DELAY)


_NM_TIMEOUT = 30.0  # seconds for one call, including the connection
_TRIES = 5  # attempts while a node is not ready


class NMClient:
    """Starts containers. Creates one RPC client per node on first use; an idle client holds no connection.

    YARN sends each node's token only once, so the tokens are kept.
    """

    def __init__(self, settings: ConnectionSettings) -> None:
        self._settings = settings
        self._tokens: dict[Address, Token] = {}
        self._clients: dict[Address, RpcClient] = {}
        self.acls: Sequence[yarn.ApplicationACLMapProto] = ()
        """Access lists of the containers' logs, from the response to the registration."""

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
                timeout=_NM_TIMEOUT,
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
                timeout=_NM_TIMEOUT,
            )
        except HadoopError:
            return f"{client.address}: {error}"
        return None if answer.status else f"{client.address}: {error}"

    def _client(self, address: Address) -> RpcClient:
        client = self._clients.get(address)
        if client is None:
            token = self._tokens.get(address)
            if token is None:
                raise HadoopError("YARN sent no token for this node")
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
        # A node keeps PRIVATE files for the user's next application. Programs can change the node's copy, so only files
        # that executors verify may be PRIVATE.
        visibility=yarn.PRIVATE if resource.is_verified else yarn.APPLICATION,
    )
