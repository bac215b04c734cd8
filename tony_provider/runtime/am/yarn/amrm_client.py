"""The application master's protocol with the ResourceManager: registering, heartbeats, finishing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from typing import Callable, Optional, TypeVar

from tony_provider.runtime.am.resource_manager import ResourceManagerError
from tony_provider.runtime.common.network import Address
from tony_provider.runtime.hadoop.errors import (
    ApplicationAttemptNotFound,
    ApplicationMasterNotRegistered,
    InvalidApplicationMasterRequest,
    InvalidToken,
    RpcConnectionError,
    RpcError,
    RpcTimeout,
    SaslRefused,
)
from tony_provider.runtime.hadoop.proto import yarn_pb2 as yarn
from tony_provider.runtime.hadoop.proto import yarn_service_pb2 as service
from tony_provider.runtime.hadoop.rpc import ConnectionSettings, RetryPolicy
from tony_provider.runtime.hadoop.tokens import Token
from tony_provider.runtime.hadoop.yarn import ApplicationMasterProtocol
from tony_provider.runtime.protocol.status import FinalStatus

log = logging.getLogger(__name__)

_RETRY = RetryPolicy(max_delay=2.0)  # so that a ResourceManager that has come back hears of us before it gives us up
_TIMEOUT = 20.0  # seconds for one call, every server tried
_BEAT_TIMEOUT = 10.0  # for a heartbeat, which is repeated anyway
_REGISTER_FOR = 600.0  # seconds: YARN gives an application master that does not register 10 minutes
_FINISH_FOR = 300.0
_FINISH_DELAY = 0.1
_RETRY_DELAY = 1.0
_REFUSED_FOR = 20.0  # seconds: a ResourceManager that is starting may not know its applications yet
_NOT_FOUND_FOR = 3.0

_FINAL = {
    FinalStatus.SUCCEEDED: yarn.APP_SUCCEEDED,
    FinalStatus.FAILED: yarn.APP_FAILED,
    FinalStatus.KILLED: yarn.APP_KILLED,
}
T = TypeVar("T")


class AMRMClient:
    """Speaks the application master's protocol and keeps its rules: response ids, registering again, rolled tokens."""

    def __init__(
        self,
        addresses: Sequence[Address],
        token: Token,
        settings: ConnectionSettings = ConnectionSettings(),  # noqa: B008 - frozen
    ) -> None:
        self._protocol = ApplicationMasterProtocol(addresses, token, retry=_RETRY, settings=settings)
        self._token = token
        self._addresses = addresses
        self._registration: Optional[service.RegisterApplicationMasterRequestProto] = None
        self._response_id = 0
        self._forgotten = False  # by the ResourceManager: register again before all else
        self._refused_since: Optional[float] = None

    async def register(
        self, host: str, port: int, tracking_url: str
    ) -> Optional[service.RegisterApplicationMasterResponseProto]:
        """Register this attempt; returns the answer.

        None: it is registered, but the answer was lost, and YARN gives it once.

        Raises ResourceManagerError when no ResourceManager takes it within ten minutes.
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
                log.warning("registered already, and the answer was lost: %s", error)
                return None

        try:
            return await self._patiently(register, _REGISTER_FOR)
        except RpcError as error:
            servers = ", ".join(map(str, self._addresses))
            raise ResourceManagerError(f"cannot register with the ResourceManager ({servers}): {error}") from error

    async def allocate(self, request: service.AllocateRequestProto) -> Optional[service.AllocateResponseProto]:
        """Send one heartbeat; ``response_id`` is filled in here.

        None: the ResourceManager was restarted, and this application is registered again; what was asked for and not
        granted is to be asked for again. Raises RpcConnectionError, RpcTimeout (try again), ApplicationAttemptNotFound
        (stop) and what else the ResourceManager answers.
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

    async def finish(self, status: FinalStatus, diagnostics: str, tracking_url: str) -> None:
        """Unregister, again and again until the ResourceManager has written it down. Raises ResourceManagerError."""
        request = service.FinishApplicationMasterRequestProto(
            final_application_status=_FINAL[status], diagnostics=diagnostics, tracking_url=tracking_url
        )

        async def finish() -> None:
            try:
                while True:
                    answer = await self._protocol.finish(request, timeout=_TIMEOUT)
                    if answer.isUnregistered:
                        return
                    await asyncio.sleep(_FINISH_DELAY)  # it is writing that down
            except ApplicationAttemptNotFound:
                return  # it has ended this attempt already
            except ApplicationMasterNotRegistered:
                await self._register_again()
                raise RpcConnectionError("the ResourceManager was restarted") from None

        try:
            await self._patiently(finish, _FINISH_FOR)
        except RpcError as error:
            raise ResourceManagerError(f"cannot unregister from the ResourceManager: {error}") from error

    async def close(self) -> None:
        await self._protocol.close()

    def _use_token(self, token: Token) -> None:
        """It is good from the next connection on, and until then YARN gives it with every answer."""
        if token != self._token:
            log.info("the ResourceManager gave a new token")
            self._token = token
            self._protocol.use_token(token)

    async def _beat(self, request: service.AllocateRequestProto) -> Optional[service.AllocateResponseProto]:
        if not self._forgotten:
            request.response_id = self._response_id
            try:
                answer = await self._protocol.allocate(request, timeout=_BEAT_TIMEOUT)
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
        self._response_id = 0  # what YARN expects next, whether its answer comes through or not
        return await self._protocol.register(self._registration, timeout=_TIMEOUT)

    async def _register_again(self) -> None:
        """Until that has succeeded no heartbeat is sent: a ResourceManager that has registered us, but whose answer was
        lost, would take it, and never hear again what was asked of the one before.
        """
        self._forgotten = True
        log.info("registering again: the ResourceManager was restarted, or another one took over")
        try:
            await self._register()
        except InvalidApplicationMasterRequest as error:
            log.info("registered already: %s", error)  # the answer to an earlier try was lost
        self._forgotten = False

    def _refused(self, error: RpcError, seconds: float) -> RpcError:
        """Only a ResourceManager that goes on refusing what was good before has ended this attempt."""
        now = asyncio.get_running_loop().time()
        if self._refused_since is None:
            log.info("the ResourceManager does not know this application attempt: %s", error)
            self._refused_since = now
        if now - self._refused_since < seconds:
            return RpcConnectionError(str(error))
        return ApplicationAttemptNotFound("ApplicationAttemptNotFoundException", str(error))

    @staticmethod
    async def _patiently(call: Callable[[], Awaitable[T]], seconds: float) -> T:
        """Wait a ResourceManager's absence out. Raises the last error."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:
            try:
                return await call()
            except (RpcConnectionError, RpcTimeout) as error:
                if loop.time() >= deadline:
                    raise
                log.warning("%s; trying again", error)
                await asyncio.sleep(_RETRY_DELAY)
