"""The application master's gRPC server: one authenticated stream per executor."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any, Callable, NoReturn, Optional, Union

import attrs
import grpc
import grpc.aio

from tony_provider.runtime.am.message_limits import (
    ConnectionWatch,
    Incoming,
    MessageTrimmer,
    RefusedMessage,
    StreamThrottle,
    parse_message,
    peer_of,
    registration_problem,
)
from tony_provider.runtime.common.concurrency import log_failure, wait_with_timeout
from tony_provider.runtime.common.network import Address
from tony_provider.runtime.jobspec.model import PortRange
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.protocol.task_identity import (
    IdentityError,
    TaskIdentity,
    server_credentials,
    server_options,
    verify,
)

log = logging.getLogger(__name__)

_FIRST_MESSAGE = 30.0  # seconds for the registration after the stream was opened
AT_ONCE = 64  # limit of streams that write at the same time
_LONGEST_TURN = 2.0  # seconds for which a write may hold its turn
_MOST_STRANGERS = 100  # limit of hosts whose unauthenticated calls are logged
_SERVICE, _METHOD = "tony.ApplicationMaster", "Attach"  # as in tony.proto
_GOODBYE = 2.0  # seconds for open streams when the server stops
_LAST_MESSAGES = 10.0  # seconds to send the remaining messages of a stream that ends
_MOST_WAITING = 1000  # limit of messages that an executor has not read yet
_MOST_BYTES_WAITING = 64 << 20  # limit in bytes of all these messages; only the last message may exceed it


Outgoing = Union[tony_pb2.ToExecutor, Callable[[], tony_pb2.ToExecutor]]
"""A message, or a function that builds a large message only when it is sent."""


@attrs.define(eq=False)
class Stream:
    """An open stream to one executor, with its unsent messages.

    If the executor does not read, the stream is closed. The master repeats important messages when the executor
    returns.
    """

    identity: TaskIdentity
    overrun: bool = False  # ended because the executor does not read
    is_dismissed: bool = False  # the master has sent the order to end
    _outbox: asyncio.Queue[Optional[Outgoing]] = attrs.field(factory=asyncio.Queue)
    _bytes: int = 0  # size of the unsent messages
    _ending: asyncio.Event = attrs.field(factory=asyncio.Event)

    def send(self, message: Outgoing) -> None:
        if self._ending.is_set():
            return
        if self._outbox.qsize() >= _MOST_WAITING or self._bytes > _MOST_BYTES_WAITING:
            self.overrun = True
            self._outbox = asyncio.Queue()
            self.close()
            return
        self._bytes += _size(message)
        self._outbox.put_nowait(message)

    def close(self) -> None:
        """End the stream after its unsent messages, if the executor reads them."""
        if not self._ending.is_set():
            self._ending.set()
            self._outbox.put_nowait(None)

    async def outgoing(self) -> AsyncIterator[Outgoing]:
        """Yield the messages to send, until ``close``."""
        while True:
            message = await self._outbox.get()
            if message is None:
                return
            self._bytes -= _size(message)
            yield message

    async def ending(self) -> None:
        """Wait until the stream has to end."""
        await self._ending.wait()


def _size(message: Outgoing) -> int:
    return 0 if callable(message) else message.ByteSize()


# Kinds of messages that an executor may still send after its task has ended, or after another executor has its task.
_FAREWELL = ("last_words", "leave")
# Kinds of messages that need no answer, so a dismissed executor may send them before its farewell. They are ignored.
_REPORTS = ("heartbeat", "exited", "settled", "stacks")


class Listener(ABC):
    """Receives the events of executors' streams. None of the methods may block."""

    @abstractmethod
    def refusal(self, identity: TaskIdentity) -> Optional[str]:
        """Return why an authenticated executor must not send messages (any more), or None if it may."""

    @abstractmethod
    def attached(self, stream: Stream, registration: tony_pb2.Registration) -> None:
        """Handle a new stream of an executor that has registered."""

    @abstractmethod
    def received(self, stream: Stream, message: tony_pb2.FromExecutor) -> None:
        """Handle a message of an executor."""

    @abstractmethod
    def detached(self, stream: Stream) -> None:
        """Handle the end of an executor's stream."""


class WriteTurns:
    """Limits the number of streams that write at the same time.

    gRPC buffers messages in flight for each stream. Writes to thousands of streams at once would also block the event
    loop. A stream that does not accept its message counts as a writer only for _LONGEST_TURN.
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


class ExecutorService:
    """The gRPC service for executors: authenticates them and passes their streams to a listener."""

    def __init__(self, application_id: str, task_key: bytes, listener: Listener) -> None:
        self._application_id = application_id
        self._task_key = task_key
        self._listener = listener
        self._turns = WriteTurns()
        self._strangers: set[str] = set()  # hosts of unauthenticated callers that were logged

    def handler(self, connections: ConnectionWatch) -> grpc.GenericRpcHandler:
        """Return the handler for gRPC. It reports to ``connections`` which connections carry executors' streams."""

        # Python 3.9 does not recognise ``partial`` of a method as a coroutine function, which gRPC requires.
        async def attach(request_iterator: AsyncIterator[Incoming], context: Any) -> None:
            await self._attach(connections, request_iterator, context)

        method = grpc.stream_stream_rpc_method_handler(
            attach,
            request_deserializer=parse_message,
            response_serializer=tony_pb2.ToExecutor.SerializeToString,
        )
        return grpc.method_handlers_generic_handler(_SERVICE, {_METHOD: method})

    async def _attach(
        self, connections: ConnectionWatch, request_iterator: AsyncIterator[Incoming], context: Any
    ) -> None:
        """Serve one stream. Its status is OK only if the listener has received all messages of the executor."""
        identity = await self._authenticate(context)
        messages = _Messages(identity, request_iterator)
        registration = await self._registration(messages, context)
        stream = Stream(identity)
        peer = context.peer()
        connections.proven(peer)
        self._listener.attached(stream, registration)
        reader = asyncio.ensure_future(self._read(messages, stream))
        try:
            all_read = await self._write(stream, context)
        finally:
            self._listener.detached(stream)
            connections.ended(peer)
            reader.cancel()
            [received] = await asyncio.gather(reader, return_exceptions=True)
        if not all_read:
            log.warning("%s does not read its messages in time: closing its connection", identity.task)
            connections.shut(peer)
            # gRPC can send nothing until the peer reads the rest, and keeps the stream until the connection is closed.
            raise asyncio.CancelledError
        if received is not True:
            await _abort(context, grpc.StatusCode.ABORTED, "the application master closed the stream")

    async def _write(self, stream: Stream, context: Any) -> bool:
        """Send messages until the stream ends. Drop them and return False if the executor reads too slowly."""
        writing = asyncio.ensure_future(self._write_all(stream, context))
        ending = asyncio.ensure_future(stream.ending())
        try:
            await asyncio.wait({writing, ending}, return_when=asyncio.FIRST_COMPLETED)
            if not stream.overrun:
                await asyncio.wait({writing}, timeout=_LAST_MESSAGES)
            if not writing.done():
                return False
            writing.result()
            return not stream.overrun
        finally:
            writing.cancel()
            ending.cancel()
            await asyncio.gather(writing, ending, return_exceptions=True)

    async def _write_all(self, stream: Stream, context: Any) -> None:
        async for message in stream.outgoing():
            await self._turns.write(context, message)

    async def _authenticate(self, context: Any) -> TaskIdentity:
        try:
            identity = verify(self._task_key, self._application_id, context.invocation_metadata() or ())
        except IdentityError as error:
            self._tell_of_stranger(peer_of(context.peer())[0], error)
            await _abort(context, grpc.StatusCode.PERMISSION_DENIED, str(error))
        if refusal := self._listener.refusal(identity):
            await _abort(context, grpc.StatusCode.FAILED_PRECONDITION, refusal)
        return identity

    def _tell_of_stranger(self, host: str, error: IdentityError) -> None:
        if host not in self._strangers and len(self._strangers) < _MOST_STRANGERS:
            self._strangers.add(host)
            log.warning("rejected a connection from %s: %s (further ones from this host are not logged)", host, error)

    async def _registration(self, messages: _Messages, context: Any) -> tony_pb2.Registration:
        try:
            first = await wait_with_timeout(messages.__anext__(), _FIRST_MESSAGE)
        except (asyncio.TimeoutError, StopAsyncIteration):
            await _abort(context, grpc.StatusCode.DEADLINE_EXCEEDED, "no registration arrived in time")
        if first.WhichOneof("kind") != "registration":
            await _abort(context, grpc.StatusCode.INVALID_ARGUMENT, "the first message must be a registration")
        if problem := registration_problem(first.registration):
            await _abort(context, grpc.StatusCode.INVALID_ARGUMENT, f"the registration is rejected: {problem}")
        return first.registration

    async def _read(self, messages: _Messages, stream: Stream) -> bool:
        """Pass on messages until the executor ends its side. Return False if the listener refuses further messages."""
        try:
            async for message in messages:
                kind = message.WhichOneof("kind")
                if kind in _FAREWELL or not self._listener.refusal(stream.identity):
                    self._listener.received(stream, message)
                elif not stream.is_dismissed or _needs_answer(kind, message):
                    return False
            return True
        finally:
            stream.close()


def _needs_answer(kind: Optional[str], message: tony_pb2.FromExecutor) -> bool:
    if kind == "checkpoint_state":  # its executor waits for permission to upload the new checkpoints
        return any(entry.news for entry in message.checkpoint_state.entries)
    return kind not in _REPORTS


class _Messages:
    """The accepted messages of one stream. The first rejected message and the first cut of each field are logged."""

    def __init__(self, identity: TaskIdentity, incoming: AsyncIterator[Incoming]) -> None:
        self._identity = identity
        self._incoming = incoming
        self._cutter = MessageTrimmer()
        self._pace = StreamThrottle()
        self._told: set[str] = set()

    def __aiter__(self) -> _Messages:
        return self

    async def __anext__(self) -> tony_pb2.FromExecutor:
        while True:
            incoming = await self._incoming.__anext__()
            await self._pace.keep(incoming)
            if isinstance(incoming, RefusedMessage):
                self._tell("refused", f"sent a rejected message: {incoming.why}")
                continue
            self._cutter.fit(incoming)
            for field in self._cutter.cut - self._told:
                self._tell(field, f"sent more of {field} than allowed: the excess is dropped")
            return incoming.message

    def _tell(self, what: str, message: str) -> None:
        if what not in self._told:
            self._told.add(what)
            log.warning("%s %s (further cases are not logged)", self._identity.task, message)


async def _abort(context: Any, code: grpc.StatusCode, details: str) -> NoReturn:
    await context.abort(code, details)
    raise grpc.aio.AbortError(details)


@attrs.define(eq=False)
class Server:
    """The gRPC server for executors. It binds its port immediately, and serves executors after ``start``."""

    address: Address
    _server: grpc.aio.Server
    _connections: ConnectionWatch
    _watching: Optional[asyncio.Task[None]] = None

    @classmethod
    def bind(
        cls, secrets: Mapping[str, bytes], host: str, ports: PortRange, *, connections: int = 1024, tasks: int = 1
    ) -> Server:
        """Create a server that listens only on ``host``, on a free port of the range.

        ``connections``: limit for all its connections, see ConnectionWatch. ``tasks``: number of the application's
        tasks. Raises OSError if no port is free, and IdentityError if the credentials lack the server's certificate.
        """
        server = grpc.aio.server(options=server_options(connections, tasks))
        port = _bind(server, server_credentials(secrets), host, ports)
        return cls(Address(host, port), server, ConnectionWatch(port, connections))

    async def start(self, service: ExecutorService) -> None:
        self._server.add_generic_rpc_handlers((service.handler(self._connections),))
        await self._server.start()
        self._watching = asyncio.create_task(self._connections.run(), name="connections")
        self._watching.add_done_callback(
            partial(log_failure, log, "checking connections to the executors' port has failed")
        )

    async def stop(self) -> None:
        await self._server.stop(_GOODBYE)
        if self._watching:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        self._connections.close()


def _bind(server: grpc.aio.Server, credentials: Any, host: str, ports: PortRange) -> int:
    for port in ports.shuffled():
        try:
            # Bind the port to test it, so that no other process can take it in between.
            if server.add_secure_port(str(Address(host, port)), credentials):
                return port
        except RuntimeError as error:
            log.debug("port %s: %s", port, error)
    raise OSError(f"the application master found no free port on {host} in {ports.first}-{ports.last} (port_range)")
