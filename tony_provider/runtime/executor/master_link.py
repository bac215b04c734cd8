"""Connection of an executor to its application master: the master's address, the stream, and pending requests.

A container is launched with the address of its master. A newer master writes its address to the store.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import time
from collections.abc import Sequence
from typing import Any, Callable, Optional, Union

import grpc

from tony_provider.runtime.common import contract
from tony_provider.runtime.common.concurrency import wait_with_timeout
from tony_provider.runtime.executor.executor_container import ExecutorContainer
from tony_provider.runtime.protocol import limits, master_files, task_identity, tony_pb2, tony_pb2_grpc
from tony_provider.runtime.storage import Storage, StorageError

log = logging.getLogger(__name__)

_TIMEOUT = 10.0  # seconds for a request to the store, because the known address must also be tried


class MasterLocator:
    """The address of the application master: from the launch, or from the store if a newer master wrote it."""

    def __init__(self, container: ExecutorContainer, storage: Storage) -> None:
        self.address = container.master
        self._attempt = 0  # number of the application master at that address; 0 if unknown
        self._storage = storage
        self._directory = container.description.application_dir
        self._key = container.secrets.get(contract.SECRET_ADDRESS_KEY)

    def record_attempt(self, attempt: int) -> None:
        """Record the attempt number that the master at the address has reported."""
        self._attempt = max(self._attempt, attempt)

    async def find_new_master(self) -> bool:
        """Fetch a newer master's address from the store into ``address``. Return whether there is a newer address."""
        if self._key is None:
            return False
        reading = asyncio.to_thread(master_files.read_master_address, self._storage, self._directory, self._key)
        try:
            found = await wait_with_timeout(reading, _TIMEOUT)
        except (asyncio.TimeoutError, StorageError) as error:
            log.warning("could not read the application master's address: %s", str(error) or "no answer in time")
            return False
        if found is None or found.attempt <= self._attempt or str(found.address) == self.address:
            return False
        log.info("found application master attempt %d at %s", found.attempt, found.address)
        self.address, self._attempt = str(found.address), found.attempt
        return True


Send = Callable[[tony_pb2.FromExecutor], None]
Answer = Union[tony_pb2.CheckpointAnswer, tony_pb2.InputPart, tony_pb2.ShardAnswer]


class MasterRequests:
    """Requests to the application master that wait for an answer without a time limit.

    After a reconnection, open requests are sent again with the same numbers.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._numbers = itertools.count(1)
        self._asked: dict[int, tuple[tony_pb2.FromExecutor, asyncio.Future[Answer]]] = {}

    @property
    def open(self) -> list[tony_pb2.FromExecutor]:
        """The unanswered requests, for an application master that may have missed them."""
        return [message for message, _ in self._asked.values()]

    async def ask(self, message: tony_pb2.FromExecutor) -> Any:
        """Send a message of a kind that has a field ``request``, and return the answer. Sets ``request``."""
        number = next(self._numbers)
        getattr(message, message.WhichOneof("kind") or "").request = number
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._asked[number] = message, answer
        try:
            self._send(message)
            return await answer
        finally:
            del self._asked[number]

    def answered(self, answer: Answer) -> None:
        """Pass an answer to its request. Answers to abandoned requests are ignored."""
        if answer.request in self._asked and not self._asked[answer.request][1].done():
            self._asked[answer.request][1].set_result(answer)


_FIRST_DELAY = 0.2  # seconds before the second attempt; the delay doubles after each attempt
_LONGEST_DELAY = 5.0
_SAME_ADDRESS_SECONDS = (
    3.0  # seconds in which only the known address is tried: a short network failure does not mean a new master
)
_FINAL = (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.FAILED_PRECONDITION)


class MasterLinkError(Exception):
    """The executor has no application master any more."""


class RefusedError(MasterLinkError):
    """The application master rejects this executor. The message names the reason."""


class MasterLostError(MasterLinkError):
    """The application master was unreachable for too long."""


class MasterLink:
    """The executor's connection to its application master.

    ``greet`` returns the first messages of every stream: the registration, and what the master may have missed.
    ``handle`` gets each received message and must not block. ``greet`` and ``handle`` are called on the event loop. An
    unreachable master may have a successor, which writes its address to the store.
    """

    def __init__(
        self,
        container: ExecutorContainer,
        locator: MasterLocator,
        greet: Callable[[], Sequence[tony_pb2.FromExecutor]],
        handle: Callable[[tony_pb2.ToExecutor], None],
    ) -> None:
        """Prepare the connection. Raises task_identity.MissingSecretError."""
        self._where = locator
        self._credentials = task_identity.channel_credentials(container.secrets)
        tasks = container.job.size
        self._options = task_identity.channel_options(container.identity.application_id, tasks)
        self._spread = limits.spread(tasks)
        self._metadata = task_identity.call_metadata(container.identity, container.token)
        self._greet = greet
        self._handle = handle
        self._lost_after = container.description.master_lost_after
        self._outgoing: Optional[asyncio.Queue[Optional[tony_pb2.FromExecutor]]] = None
        self._contact = 0.0  # monotonic time at which the master was last reachable
        self._finishing = False
        self.delivered = False  # whether the master has received all messages up to ``finish``

    def send(self, message: tony_pb2.FromExecutor) -> None:
        """Send a message. If there is no stream, drop it: the next stream begins with all important messages."""
        if self._outgoing is not None:
            self._outgoing.put_nowait(message)

    @property
    def is_idle(self) -> bool:
        """Whether a message would be sent at once."""
        return self._outgoing is not None and self._outgoing.empty()

    async def flush(self) -> None:
        """Wait until all queued messages are sent. If the stream breaks, this never returns."""
        if self._outgoing is not None:
            await self._outgoing.join()

    def finish(self) -> None:
        """Announce the end to the master. ``run`` ends when all messages are sent and the master has closed its end."""
        self._finishing = True
        if self._outgoing is not None:
            self._take_leave(self._outgoing)

    @staticmethod
    def _take_leave(outgoing: asyncio.Queue[Optional[tony_pb2.FromExecutor]]) -> None:
        outgoing.put_nowait(tony_pb2.FromExecutor(leave=tony_pb2.Leave()))
        outgoing.put_nowait(None)

    async def run(self) -> None:
        """Keep the stream open until ``finish``. Raises MasterLinkError if no connection is possible any more."""
        self._contact = alone_since = time.monotonic()
        delay = _FIRST_DELAY
        await self._wait(0.0)
        while True:
            contact = self._contact
            why = await self._attach()
            if self._finishing:
                return
            if self._contact > contact:
                alone_since, delay = time.monotonic(), _FIRST_DELAY
            log.warning("the stream to the application master at %s broke: %s", self._where.address, why)
            self._check_not_lost(why)
            if time.monotonic() - alone_since >= _SAME_ADDRESS_SECONDS and await self._where.find_new_master():
                delay = _FIRST_DELAY
                continue
            await self._wait(delay * random.uniform(0.8, 1.2))  # noqa: S311 - nothing secret
            delay = min(2 * delay, _LONGEST_DELAY)

    async def _wait(self, seconds: float) -> None:
        """Wait for the given time and a random extra time, so that thousands of executors do not reconnect at once."""
        seconds += random.uniform(0.0, self._spread)  # noqa: S311
        await asyncio.sleep(min(seconds, self._left()))

    def _left(self) -> float:
        """Return the seconds until the master counts as lost."""
        return max(0.0, self._contact + self._lost_after - time.monotonic())

    def _check_not_lost(self, why: str) -> None:
        if not self._left():
            raise MasterLostError(
                f"the application master at {self._where.address} could not be reached for {self._lost_after:g} s: "
                f"{why}"
            )

    async def _attach(self) -> str:
        """Open one stream and serve it until it ends. Return the reason for its end. Raises RefusedError."""
        async with grpc.aio.secure_channel(self._where.address, self._credentials, self._options) as channel:
            call = tony_pb2_grpc.ApplicationMasterStub(channel).Attach(metadata=self._metadata)
            self._outgoing = asyncio.Queue()
            for message in self._greet():
                self._outgoing.put_nowait(message)
            if self._finishing:
                self._take_leave(self._outgoing)
            writing = asyncio.ensure_future(self._write(call, self._outgoing))
            try:
                while (message := await call.read()) is not grpc.aio.EOF:
                    self._contact = time.monotonic()
                    self._handle(message)
                self.delivered = True  # ``read`` raises an error unless the stream ended with the status OK
            except grpc.aio.AioRpcError as error:
                if error.code() in _FINAL:
                    raise RefusedError(
                        f"the application master refuses this executor: {error.code().name}: {error.details()}"
                    ) from error
                return f"{error.code().name}: {error.details()}"
            finally:
                self._outgoing = None
                writing.cancel()
                await asyncio.gather(writing, return_exceptions=True)
                call.cancel()
            return "the application master closed the stream"

    async def _write(self, call: Any, outgoing: asyncio.Queue[Optional[tony_pb2.FromExecutor]]) -> None:
        try:
            while (message := await outgoing.get()) is not None:
                await call.write(message)
                outgoing.task_done()
                if message.WhichOneof("kind") == "heartbeat":
                    self._contact = time.monotonic()  # the stream still works, perhaps seconds after the last read
            await call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return  # the stream has ended; the read loop reports the reason
