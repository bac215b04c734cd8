"""Client for Hadoop RPC: authenticated connections with concurrent calls, and failover between redundant servers."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections import deque
from collections.abc import Sequence
from typing import Generic, Optional, TypeVar

import attrs
from google.protobuf.message import Message

from tony_provider.runtime.common.concurrency import loop_time, pauses, wait_with_timeout
from tony_provider.runtime.common.network import Address
from tony_provider.runtime.hadoop import sasl
from tony_provider.runtime.hadoop.errors import (
    RemoteError,
    Retriable,
    RpcConnectionError,
    RpcError,
    RpcProtocolError,
    RpcTimeout,
    Standby,
    remote_error,
)
from tony_provider.runtime.hadoop.proto.rpc_pb2 import (
    RPC_PROTOCOL_BUFFER,
    IpcConnectionContextProto,
    RequestHeaderProto,
    RpcRequestHeaderProto,
    RpcResponseHeaderProto,
    RpcSaslProto,
)
from tony_provider.runtime.hadoop.sasl import STRONGEST_FIRST, SecurityLayer
from tony_provider.runtime.hadoop.tokens import (
    MAX_FRAME_BYTES,
    FrameBuffer,
    Token,
    encode_frame,
    last_message,
    take_message,
)

M = TypeVar("M", bound=Message)

_RPC_VERSION = 9
_SERVICE_CLASS = 0
_WITH_SASL = 0xDF
_PREAMBLE = b"hrpc" + bytes([_RPC_VERSION, _SERVICE_CLASS, _WITH_SASL])
_SASL_CALL_ID = -33
_CONTEXT_CALL_ID = -3
_PROTOCOL_VERSION = 1  # version of every YARN protocol
_READ_BYTES = 64 * 1024


def _header(call_id: int, client_id: bytes, retry_count: int = -1) -> RpcRequestHeaderProto:
    return RpcRequestHeaderProto(
        rpcKind=RPC_PROTOCOL_BUFFER,
        rpcOp=RpcRequestHeaderProto.RPC_FINAL_PACKET,
        callId=call_id,
        clientId=client_id,
        retryCount=retry_count,
    )


def _sasl_frame(message: RpcSaslProto) -> bytes:
    return encode_frame(_header(_SASL_CALL_ID, b""), message)


def _call_id(header: RpcResponseHeaderProto) -> int:
    return header.callId - 2**32 if header.callId >= 2**31 else header.callId


def _error_of(header: RpcResponseHeaderProto) -> RemoteError:
    return remote_error(header.exceptionClassName, header.errorMsg)


class _AnswerStream:
    """Stream of the server's answers, read from plain frames or from frames wrapped by a SASL security layer."""

    def __init__(self, reader: asyncio.StreamReader, max_frame_bytes: int) -> None:
        self._reader = reader
        self._frames = FrameBuffer(max_frame_bytes)
        self._unwrapped = FrameBuffer(max_frame_bytes)
        self._ready: deque[bytes] = deque()
        self.layer: Optional[SecurityLayer] = None

    async def next(self) -> tuple[RpcResponseHeaderProto, bytes]:
        """Return the next answer: its header and encoded body. Raises RpcProtocolError, RpcConnectionError.

        Also raises RemoteError if the server sends an error instead of a wrapped frame.
        """
        while not self._ready:
            data = await self._reader.read(_READ_BYTES)
            if not data:
                raise RpcConnectionError("the server closed the connection")
            for frame in self._frames.feed(data):
                self._ready.extend([frame] if self.layer is None else self._unwrap(frame, self.layer))
        return take_message(RpcResponseHeaderProto, self._ready.popleft())

    def _unwrap(self, frame: bytes, layer: SecurityLayer) -> list[bytes]:
        message = _sasl_answer(*take_message(RpcResponseHeaderProto, frame))
        if message.state != RpcSaslProto.WRAP:
            raise RpcProtocolError("received an unwrapped message on a connection with wrapped messages")
        return self._unwrapped.feed(layer.unwrap(message.token))


def _sasl_answer(header: RpcResponseHeaderProto, rest: bytes) -> RpcSaslProto:
    if header.status != RpcResponseHeaderProto.SUCCESS:
        raise _error_of(header)
    if _call_id(header) != _SASL_CALL_ID:
        raise RpcProtocolError(f"received an answer to call {_call_id(header)} instead of a SASL message")
    return last_message(RpcSaslProto, rest)


@attrs.frozen
class ConnectionSettings:
    """Settings of a connection: frame limit, SASL protection, idle timeout."""

    max_frame_bytes: int = MAX_FRAME_BYTES
    protection: tuple[str, ...] = STRONGEST_FIRST  # accepted SASL qualities of protection, the preferred one first
    idle_timeout: float = 10.0  # seconds without a call after which the connection is closed


@attrs.frozen
class Method(Generic[M]):
    """A remote method of a protocol."""

    name: str
    response: type[M]
    idempotent: bool = False  # whether a call may be repeated although the server may have executed it


class RpcConnection:
    """Open, authenticated connection to one server. Create it by ``open`` in an event loop, and end it by ``close``.

    The connection sends no pings. Every call has a deadline instead: if the server sends nothing until then, the
    connection ends.
    """

    def __init__(
        self, address: Address, stream: _AnswerStream, writer: asyncio.StreamWriter, settings: ConnectionSettings
    ) -> None:
        self.address = address
        self._stream = stream
        self._writer = writer
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._pending: dict[int, asyncio.Future[bytes]] = {}
        self._failure: Optional[RpcError] = None
        self._last_heard = self._loop.time()
        self._idle: Optional[asyncio.TimerHandle] = None
        self._reading: Optional[asyncio.Task[None]] = None

    @classmethod
    async def open(
        cls, address: Address, protocol: str, token: Token, client_id: bytes, settings: ConnectionSettings
    ) -> RpcConnection:
        """Connect and authenticate, and return the connection.

        There is no timeout, so the caller must set one. After any error or cancellation, the socket is closed. Raises
        RpcConnectionError, RpcAuthenticationError, RpcProtocolError, RemoteError (InvalidToken, …).
        """
        try:
            reader, writer = await asyncio.open_connection(address.host, address.port)
        except OSError as error:
            raise RpcConnectionError(f"cannot connect to {address}: {error}") from error
        try:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connection = cls(address, _AnswerStream(reader, settings.max_frame_bytes), writer, settings)
            await connection._authenticate(token)
            context = IpcConnectionContextProto(protocol=protocol)
            connection._send(encode_frame(_header(_CONTEXT_CALL_ID, client_id), context))
            connection._start()
        except OSError as error:
            writer.transport.abort()
            raise RpcConnectionError(f"connection to {address} lost: {error}") from error
        except RpcConnectionError as error:
            writer.transport.abort()
            raise RpcConnectionError(f"{address}: {error}, during authentication") from error
        except BaseException:
            writer.transport.abort()
            raise
        return connection

    @property
    def failure(self) -> Optional[RpcError]:
        """The reason why the connection is unusable; None while it is usable."""
        return self._failure

    async def call(
        self,
        method: Method[M],
        protocol: str,
        request: Message,
        *,
        client_id: bytes,
        call_id: int,
        retry_count: int,
        timeout: float,
    ) -> M:
        """Make one call and return its answer. The server may still execute a call that was cancelled.

        ``call_id`` must not be in use on this connection. Raises RemoteError, RpcTimeout after ``timeout`` seconds,
        RpcConnectionError, RpcProtocolError.
        """
        if self._failure is not None:
            raise self._failure
        answer: asyncio.Future[bytes] = self._loop.create_future()
        self._pending[call_id] = answer
        self._rest_no_more()
        timer = self._loop.call_later(timeout, self._expire, answer, method.name, timeout, self._loop.time())
        try:
            self._send(
                encode_frame(
                    _header(call_id, client_id, retry_count),
                    RequestHeaderProto(
                        methodName=method.name,
                        declaringClassProtocolName=protocol,
                        clientProtocolVersion=_PROTOCOL_VERSION,
                    ),
                    request,
                )
            )
            body = await answer
        finally:
            timer.cancel()
            del self._pending[call_id]
            self._rest_if_idle()
        return last_message(method.response, body)

    async def close(self) -> None:
        """Close the connection; pending calls fail with RpcConnectionError. Idempotent."""
        self._fail(RpcConnectionError(f"connection to {self.address} closed"))
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _authenticate(self, token: Token) -> None:
        exchange = sasl.TokenAuthentication(token, accepted=self._settings.protection)
        self._writer.write(_PREAMBLE)
        message: Optional[RpcSaslProto] = sasl.negotiate_message()
        while message is not None:
            self._writer.write(_sasl_frame(message))
            message = exchange.step(_sasl_answer(*await self._stream.next()))
        self._stream.layer = exchange.layer()

    def _start(self) -> None:
        self._reading = self._loop.create_task(self._read(), name=f"hadoop-rpc {self.address}")
        self._rest_if_idle()

    def _send(self, frame: bytes) -> None:
        layer = self._stream.layer
        if layer is None:
            self._writer.write(frame)
            return
        for start in range(0, len(frame), layer.max_message_bytes):
            part = layer.wrap(frame[start : start + layer.max_message_bytes])
            self._writer.write(_sasl_frame(RpcSaslProto(state=RpcSaslProto.WRAP, token=part)))

    async def _read(self) -> None:
        try:
            while True:
                header, body = await self._stream.next()
                self._last_heard = self._loop.time()
                self._deliver(header, body)
        except OSError as error:
            self._fail(RpcConnectionError(f"connection to {self.address} lost: {error}"))
        except RpcConnectionError as error:
            self._fail(RpcConnectionError(f"{self.address}: {error}"))
        except RpcError as error:
            self._fail(error)
        finally:
            self._fail(RpcConnectionError(f"connection to {self.address} closed"))

    def _deliver(self, header: RpcResponseHeaderProto, body: bytes) -> None:
        answer = self._pending.get(_call_id(header))
        if header.status == RpcResponseHeaderProto.FATAL:
            raise _error_of(header)  # the server closes the connection, so all pending calls fail
        if answer is None or answer.done():
            return  # the caller has stopped waiting
        if header.status == RpcResponseHeaderProto.SUCCESS:
            answer.set_result(body)
        else:
            answer.set_exception(_error_of(header))

    def _expire(self, answer: asyncio.Future[bytes], method: str, timeout: float, sent: float) -> None:
        if answer.done():
            return
        answer.set_exception(RpcTimeout(f"{self.address} did not answer {method} within {timeout:g} s"))
        if self._last_heard < sent:
            self._fail(RpcConnectionError(f"{self.address} has sent nothing for {timeout:g} s"))

    def _fail(self, error: RpcError) -> None:
        """End the connection and fail all pending calls with ``error``. Do nothing if it has already ended."""
        if self._failure is not None:
            return
        self._failure = error
        self._rest_no_more()
        self._writer.transport.abort()
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(error)

    def _rest_if_idle(self) -> None:
        if not self._pending and self._failure is None:
            self._idle = self._loop.call_later(
                self._settings.idle_timeout,
                self._fail,
                RpcConnectionError(f"closed the idle connection to {self.address}"),
            )

    def _rest_no_more(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None


_CLIENT_ID_BYTES = 16
_MAX_CALL_ID = 2**31 - 1


@attrs.frozen
class RetryPolicy:
    """Delays between retries, and timeouts of the attempts of a call. Times are in seconds."""

    first_delay: float = 0.1
    max_delay: float = 5.0
    jitter: float = 0.5  # each delay is multiplied by a random factor in 1 ± jitter
    connect_timeout: float = 10.0  # for a connection to one address, including authentication
    attempt_timeout: float = 30.0  # for one attempt of an idempotent call on an open connection


class RpcClient:
    """Client for the calls of one protocol, authenticated by one token.

    Create, use and ``close`` it in one running event loop.

    Several ``addresses`` are redundant servers: if a server is unreachable or on standby, the client immediately tries
    the next one. It pauses only after all servers have failed, longer each time.

    The client retries a call until its deadline, depending on the failure:

    - No connection, Standby, Retriable: always, because the server has not executed the call.
    - Lost connection, or no answer within ``attempt_timeout``: only ``idempotent`` methods, because the server may have
      executed the call. For other methods, RpcConnectionError or RpcTimeout is raised, and the caller must check
      whether the call was executed.
    - Any other RemoteError, RpcAuthenticationError, RpcProtocolError: never.

    At the deadline, the client raises the last error that has another cause than the deadline itself.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        protocol: str,
        token: Token,
        *,
        retry: RetryPolicy = RetryPolicy(),
        settings: ConnectionSettings = ConnectionSettings(),
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
        self._active = 0  # index of the current server in ``addresses``
        self._connection: Optional[RpcConnection] = None
        self._connecting = asyncio.Lock()
        self._closed = False

    @property
    def address(self) -> Address:
        """Address of the current server."""
        return self._addresses[self._active]

    def use_token(self, token: Token) -> None:
        """Use this token for new connections. The current connection stays open."""
        self._token = token

    async def call(self, method: Method[M], request: Message, *, timeout: float) -> M:
        """Make one call and return its answer, within ``timeout`` seconds in total. For errors, see RpcClient."""
        deadline = loop_time() + timeout
        call_id = self._take_call_id()
        delays = pauses(self._retry.first_delay, self._retry.max_delay, self._retry.jitter)
        tries = 0
        error: Optional[RpcError] = None
        while True:
            try:
                return await self._try(method, request, call_id, tries, deadline)
            except _TryAgain as again:
                if error is None or not again.cut_short:
                    error = again.error
            tries += 1
            delay = next(delays) if tries % len(self._addresses) == 0 else 0.0
            if self._closed or loop_time() + delay >= deadline:
                raise error
            await asyncio.sleep(delay)

    async def close(self) -> None:
        """End the connection; pending calls fail with RpcConnectionError. Idempotent."""
        self._closed = True
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _try(self, method: Method[M], request: Message, call_id: int, tries: int, deadline: float) -> M:
        index = self._active
        try:
            connection = await self._connected(deadline)
        except (RpcConnectionError, Standby) as error:
            self._fail_over(index)
            raise _TryAgain(error, cut_short=loop_time() >= deadline) from error
        except Retriable as error:
            raise _TryAgain(error) from error
        if isinstance(connection.failure, RpcConnectionError):  # lost before this call was sent
            raise _TryAgain(connection.failure)
        left = max(deadline - loop_time(), 0.0)
        try:
            return await connection.call(
                method,
                self._protocol,
                request,
                client_id=self._client_id,
                call_id=call_id,
                retry_count=tries,
                timeout=min(left, self._retry.attempt_timeout) if method.idempotent else left,
            )
        except Standby as error:
            await self._leave(connection, index)
            raise _TryAgain(error) from error
        except Retriable as error:
            raise _TryAgain(error) from error
        except (RpcConnectionError, RpcTimeout) as error:
            if method.idempotent:
                raise _TryAgain(error) from error
            raise

    async def _connected(self, deadline: float) -> RpcConnection:
        if self._connection is not None and self._connection.failure is None:
            return self._connection
        left = deadline - loop_time()
        limit = max(min(left, self._retry.connect_timeout), 0.0)
        try:
            return await wait_with_timeout(self._connect(), limit)
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
                if self._closed:  # the client was closed in the meantime
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
        if self._active == index:  # otherwise another call has already switched
            self._active = (index + 1) % len(self._addresses)

    def _take_call_id(self) -> int:
        call_id = self._next_call_id
        self._next_call_id = (call_id + 1) & _MAX_CALL_ID
        return call_id


class _TryAgain(Exception):  # noqa: N818
    def __init__(self, error: RpcError, *, cut_short: bool = False) -> None:
        super().__init__(str(error))
        self.error = error
        self.cut_short = cut_short  # the deadline ended the connection attempt, so the previous error says more
