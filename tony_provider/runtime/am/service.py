"""The application master's gRPC server: one stream per executor, each of them proven to be who it says."""

from __future__ import annotations

import asyncio
import logging
import random
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from typing import Any, Callable, NoReturn, Optional, Union

import attrs
import grpc
import grpc.aio

from tony_provider.runtime.address import Address
from tony_provider.runtime.deadline import within
from tony_provider.runtime.protocol import tony_pb2, tony_pb2_grpc
from tony_provider.runtime.spec.model import PortRange
from tony_provider.runtime.task_identity import IdentityError, TaskIdentity, server_credentials, server_options, verify

log = logging.getLogger(__name__)

_FIRST_MESSAGE = 30.0  # seconds that an executor has for its registration once its stream is open
_MOST_PORTS = 1000  # tries
AT_ONCE = 64  # messages on their way
_LONGEST_TURN = 2.0  # seconds
_GOODBYE = 2.0  # seconds for open streams when the server ends


Outgoing = Union[tony_pb2.ToExecutor, Callable[[], tony_pb2.ToExecutor]]
"""A message, or what makes a large one when its turn has come."""


@attrs.define(eq=False)
class Stream:
    """The open stream to one executor, with what is still to be sent."""

    identity: TaskIdentity
    _outbox: asyncio.Queue[Optional[Outgoing]] = attrs.field(factory=asyncio.Queue)

    def send(self, message: Outgoing) -> None:
        self._outbox.put_nowait(message)

    def close(self) -> None:
        self._outbox.put_nowait(None)

    async def outgoing(self) -> AsyncIterator[Outgoing]:
        """The messages to send, as they come, until ``close``."""
        while True:
            message = await self._outbox.get()
            if message is None:
                return
            yield message


class Listener(ABC):
    """Whoever is told what comes over the executors' streams. None of the methods may block."""

    @abstractmethod
    def refusal(self, identity: TaskIdentity) -> Optional[str]:
        """Why this executor, though it is who it says, may not speak (any more); None when it may."""

    @abstractmethod
    def attached(self, stream: Stream, registration: tony_pb2.Registration) -> None:
        """An executor's stream is open, and it has registered."""

    @abstractmethod
    def received(self, stream: Stream, message: tony_pb2.FromExecutor) -> None:
        """An executor said something."""

    @abstractmethod
    def detached(self, stream: Stream) -> None:
        """An executor's stream is down."""


class WriteTurns:
    """Lets only so many streams write at a time.

    gRPC keeps what is on its way for each stream, and sending to thousands at once would hold the loop. A stream that
    does not take its message has the turn for some seconds only.
    """

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(AT_ONCE)

    async def write(self, context: Any, message: Outgoing) -> None:
        writing: Optional[asyncio.Future[None]] = None
        try:
            async with self._free:
                made = message() if callable(message) else message
                writing = asyncio.ensure_future(context.write(made))
                await asyncio.wait({writing}, timeout=_LONGEST_TURN)
            await writing
        finally:
            if writing is not None:
                writing.cancel()


class ExecutorService(tony_pb2_grpc.ApplicationMasterServicer):
    """The gRPC service that executors call: checks who they are and hands their streams to a listener."""

    def __init__(self, application_id: str, task_key: bytes, listener: Listener) -> None:
        self._application_id = application_id
        self._task_key = task_key
        self._listener = listener
        self._turns = WriteTurns()

    async def Attach(self, request_iterator: AsyncIterator[tony_pb2.FromExecutor], context: Any) -> None:  # noqa: N802
        identity = await self._authenticate(context)
        registration = await self._registration(request_iterator, context)
        stream = Stream(identity)
        self._listener.attached(stream, registration)
        reader = asyncio.ensure_future(self._read(request_iterator, stream))
        try:
            async for message in stream.outgoing():
                await self._turns.write(context, message)
        finally:
            self._listener.detached(stream)
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    async def _authenticate(self, context: Any) -> TaskIdentity:
        try:
            identity = verify(self._task_key, self._application_id, context.invocation_metadata() or ())
        except IdentityError as error:
            log.warning("refused a caller from %s: %s", context.peer(), error)
            await _abort(context, grpc.StatusCode.PERMISSION_DENIED, str(error))
        refusal = self._listener.refusal(identity)
        if refusal:
            await _abort(context, grpc.StatusCode.FAILED_PRECONDITION, refusal)
        return identity

    async def _registration(
        self, messages: AsyncIterator[tony_pb2.FromExecutor], context: Any
    ) -> tony_pb2.Registration:
        try:
            first = await within(messages.__anext__(), _FIRST_MESSAGE)
        except (asyncio.TimeoutError, StopAsyncIteration):
            await _abort(context, grpc.StatusCode.DEADLINE_EXCEEDED, "no registration came")
        if first.WhichOneof("kind") != "registration":
            await _abort(context, grpc.StatusCode.INVALID_ARGUMENT, "the first message must be a registration")
        return first.registration

    async def _read(self, messages: AsyncIterator[tony_pb2.FromExecutor], stream: Stream) -> None:
        try:
            async for message in messages:
                refusal = self._listener.refusal(stream.identity)
                if refusal:
                    break
                self._listener.received(stream, message)
        finally:
            stream.close()


async def _abort(context: Any, code: grpc.StatusCode, details: str) -> NoReturn:
    await context.abort(code, details)
    raise grpc.aio.AbortError(details)


@attrs.frozen
class Server:
    """A gRPC server: its port is held from the beginning, and serves from ``start`` on."""

    address: Address
    _server: grpc.aio.Server

    @classmethod
    def bind(cls, secrets: Mapping[str, bytes], host: str, ports: PortRange) -> Server:
        """A server on ``host`` only, on a free port of the range.

        Raises OSError when there is none, IdentityError when the credentials lack the server's certificate.
        """
        server = grpc.aio.server(options=server_options())
        port = _bind(server, server_credentials(secrets), host, ports)
        return cls(Address(host, port), server)

    async def start(self, service: ExecutorService) -> None:
        tony_pb2_grpc.add_ApplicationMasterServicer_to_server(service, self._server)
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(_GOODBYE)


def _bind(server: grpc.aio.Server, credentials: Any, host: str, ports: PortRange) -> int:
    every = range(ports.first, ports.last + 1)
    for port in random.sample(every, min(len(every), _MOST_PORTS)):
        try:
            # Binding is the test: nobody can take the port in between.
            if server.add_secure_port(str(Address(host, port)), credentials):
                return port
        except RuntimeError as error:
            log.debug("port %s: %s", port, error)
    raise OSError(f"the application master found no free port on {host} in {ports.first}-{ports.last} (port_range)")
