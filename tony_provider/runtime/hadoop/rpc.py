"""Calls of one Hadoop protocol to whichever of its servers is active, over a connection made anew when lost."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Iterator, Sequence
from typing import Optional, TypeVar

import attrs
from google.protobuf.message import Message

from tony_provider.runtime.address import Address
from tony_provider.runtime.deadline import within
from tony_provider.runtime.hadoop.errors import Retriable, RpcConnectionError, RpcError, RpcTimeout, Standby
from tony_provider.runtime.hadoop.rpc_connection import ConnectionSettings, RpcConnection
from tony_provider.runtime.hadoop.tokens import Token

M = TypeVar("M", bound=Message)

_CLIENT_ID_BYTES = 16
_MAX_CALL_ID = 2**31 - 1


@attrs.frozen
class RetryPolicy:
    """How often and how fast to try again, within a call's own deadline. Times in seconds."""

    first_delay: float = 0.1
    max_delay: float = 5.0
    jitter: float = 0.5  # each delay is multiplied by a random factor in 1 ± this
    connect_timeout: float = 10.0  # of one address, authentication included
    attempt_timeout: float = 30.0  # of one try of an idempotent call on a connection that is up

    def delays(self) -> Iterator[float]:
        delay = self.first_delay
        while True:
            yield delay * random.uniform(1 - self.jitter, 1 + self.jitter)  # noqa: S311 - spreads load, guards nothing
            delay = min(delay * 2, self.max_delay)


class RpcClient:
    """A client for the calls of one protocol, as the bearer of one token.

    Make and use it inside one running event loop; ``close`` it.

    Several ``addresses`` are servers that stand in for each other: when one cannot be reached or says that it is the
    standby, the next is tried at once, and after each full round there is a delay that grows.

    What is tried again, until the call's deadline:

    - a connection that cannot be made, Standby, Retriable: always, since the server has not begun the call;
    - a connection lost, or no answer in ``attempt_timeout``: only for calls declared ``idempotent``, since the server
      may have carried the call out. Others raise RpcConnectionError or RpcTimeout, and the caller finds out what became
      of it.

    Any other RemoteError, RpcAuthenticationError and RpcProtocolError are raised at once. When the deadline ends the
    tries, the error of the last one that had its time is raised.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        protocol: str,
        token: Token,
        *,
        retry: RetryPolicy = RetryPolicy(),
        settings: ConnectionSettings = ConnectionSettings(),  # noqa: B008 - frozen
    ) -> None:
        if not addresses:
            raise ValueError(f"no address for {protocol}")
        self._addresses = list(addresses)
        self._protocol = protocol
        self._token = token
        self._retry = retry
        self._settings = settings
        self._client_id = secrets.token_bytes(_CLIENT_ID_BYTES)
        self._next_call_id = 0
        self._active = 0  # which of the addresses
        self._connection: Optional[RpcConnection] = None
        self._connecting = asyncio.Lock()
        self._closed = False

    @property
    def address(self) -> Address:
        """The server that is used at present."""
        return self._addresses[self._active]

    def use_token(self, token: Token) -> None:
        """Authenticate with this one from the next connection on; the present connection stays."""
        self._token = token

    async def call(
        self, method: str, request: Message, response_type: type[M], *, timeout: float, idempotent: bool = False
    ) -> M:
        """Make one call; returns its answer, within ``timeout`` seconds in all. For what is raised see the class."""
        deadline = asyncio.get_running_loop().time() + timeout
        call_id = self._take_call_id()
        delays = self._retry.delays()
        tries = 0
        error: Optional[RpcError] = None
        while True:
            try:
                return await self._try(method, request, response_type, call_id, tries, deadline, idempotent)
            except _TryAgain as again:
                if error is None or not again.cut_short:
                    error = again.error
            tries += 1
            delay = next(delays) if tries % len(self._addresses) == 0 else 0.0
            if self._closed or asyncio.get_running_loop().time() + delay >= deadline:
                raise error
            await asyncio.sleep(delay)

    async def close(self) -> None:
        """End the connection, and calls under way with RpcConnectionError. Idempotent."""
        self._closed = True
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _try(
        self,
        method: str,
        request: Message,
        response_type: type[M],
        call_id: int,
        tries: int,
        deadline: float,
        idempotent: bool,
    ) -> M:
        index = self._active
        try:
            connection = await self._connected(deadline)
        except (RpcConnectionError, Standby) as error:
            self._fail_over(index)
            raise _TryAgain(error, cut_short=asyncio.get_running_loop().time() >= deadline) from error
        except Retriable as error:
            raise _TryAgain(error) from error
        if isinstance(connection.failure, RpcConnectionError):  # lost before it could be used
            raise _TryAgain(connection.failure)
        left = max(deadline - asyncio.get_running_loop().time(), 0.0)
        try:
            return await connection.call(
                method,
                self._protocol,
                request,
                response_type,
                client_id=self._client_id,
                call_id=call_id,
                retry_count=tries,
                timeout=min(left, self._retry.attempt_timeout) if idempotent else left,
            )
        except Standby as error:
            await self._leave(connection, index)
            raise _TryAgain(error) from error
        except Retriable as error:
            raise _TryAgain(error) from error
        except (RpcConnectionError, RpcTimeout) as error:
            if idempotent:
                raise _TryAgain(error) from error
            raise

    async def _connected(self, deadline: float) -> RpcConnection:
        if self._connection is not None and self._connection.failure is None:
            return self._connection
        left = deadline - asyncio.get_running_loop().time()
        limit = max(min(left, self._retry.connect_timeout), 0.0)
        try:
            return await within(self._connect(), limit)
        except asyncio.TimeoutError as error:
            raise RpcConnectionError(f"cannot connect to {self.address} within {limit:.3g} s") from error

    async def _connect(self) -> RpcConnection:
        async with self._connecting:
            if self._closed:
                raise self._is_closed()
            if self._connection is None or self._connection.failure is not None:
                if self._connection is not None:
                    await self._connection.close()
                    self._connection = None
                connection = await RpcConnection.open(
                    self.address, self._protocol, self._token, self._client_id, self._settings
                )
                if self._closed:  # meanwhile
                    await connection.close()
                    raise self._is_closed()
                self._connection = connection
            return self._connection

    def _is_closed(self) -> RpcConnectionError:
        return RpcConnectionError(f"the client of {self._protocol} is closed")

    async def _leave(self, connection: RpcConnection, index: int) -> None:
        self._fail_over(index)
        await connection.close()

    def _fail_over(self, index: int) -> None:
        if self._active == index:  # else another call has done it
            self._active = (index + 1) % len(self._addresses)

    def _take_call_id(self) -> int:
        call_id = self._next_call_id
        self._next_call_id = (call_id + 1) & _MAX_CALL_ID
        return call_id


class _TryAgain(Exception):  # noqa: N818
    def __init__(self, error: RpcError, *, cut_short: bool = False) -> None:
        super().__init__(str(error))
        self.error = error
        self.cut_short = cut_short  # by the deadline while connecting, and so saying less than the try before
