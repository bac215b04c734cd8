"""The executor's stream to its application master: made again when it breaks, given up after a time."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Sequence
from typing import Any, Callable, Optional

import grpc

from tony_provider.runtime import task_identity
from tony_provider.runtime.executor.executor_container import ExecutorContainer
from tony_provider.runtime.executor.master_locator import MasterLocator
from tony_provider.runtime.protocol import timing, tony_pb2, tony_pb2_grpc

log = logging.getLogger(__name__)

_FIRST_DELAY = 0.2  # seconds before the second try; each further wait is twice as long
_LONGEST_DELAY = 5.0
_LOYALTY = 3.0  # seconds that only the address known is tried: a network that failed for a moment is no new master
_FINAL = (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.FAILED_PRECONDITION)


class LinkError(Exception):
    """There is no application master to work for any more."""


class RefusedError(LinkError):
    """The application master does not accept this executor; the message says why."""


class MasterLostError(LinkError):
    """The application master could not be reached for too long."""


class Link:
    """The executor's connection to its application master.

    ``greet`` gives the first messages of every stream: who this is, and what a master that missed it must know.
    ``handle`` gets each message that comes; it must not block. Both are called on the loop. A master that cannot be
    reached may have a successor, which leaves its address on the store.
    """

    def __init__(
        self,
        container: ExecutorContainer,
        locator: MasterLocator,
        greet: Callable[[], Sequence[tony_pb2.FromExecutor]],
        handle: Callable[[tony_pb2.ToExecutor], None],
    ) -> None:
        """Raises task_identity.MissingSecretError."""
        self._where = locator
        self._credentials = task_identity.channel_credentials(container.secrets)
        tasks = container.job.size
        self._options = task_identity.channel_options(container.identity.application_id, tasks)
        self._spread = timing.spread(tasks)
        self._metadata = task_identity.call_metadata(container.identity, container.token)
        self._greet = greet
        self._handle = handle
        self._lost_after = container.description.master_lost_after
        self._outgoing: Optional[asyncio.Queue[Optional[tony_pb2.FromExecutor]]] = None
        self._contact = 0.0
        self._finishing = False

    def send(self, message: tony_pb2.FromExecutor) -> None:
        """Send a message. Without a stream it goes nowhere: the greeting of the next one says what matters."""
        if self._outgoing is not None:
            self._outgoing.put_nowait(message)

    @property
    def idle(self) -> bool:
        """Whether a message would go out at once."""
        return self._outgoing is not None and self._outgoing.empty()

    async def sent(self) -> None:
        """Wait until what was to go by now is on its way; for ever where its stream breaks."""
        if self._outgoing is not None:
            await self._outgoing.join()

    def finish(self) -> None:
        """Take leave: let ``run`` end when all has been sent and the master has closed its end."""
        self._finishing = True
        if self._outgoing is not None:
            self._take_leave(self._outgoing)

    @staticmethod
    def _take_leave(outgoing: asyncio.Queue[Optional[tony_pb2.FromExecutor]]) -> None:
        outgoing.put_nowait(tony_pb2.FromExecutor(leave=tony_pb2.Leave()))
        outgoing.put_nowait(None)

    async def run(self) -> None:
        """Keep the stream up until ``finish``. Raises LinkError when there is no use in going on."""
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
            if time.monotonic() - alone_since >= _LOYALTY and await self._where.look():
                delay = _FIRST_DELAY
                continue
            await self._wait(delay * random.uniform(0.8, 1.2))  # noqa: S311 - nothing secret
            delay = min(2 * delay, _LONGEST_DELAY)

    async def _wait(self, seconds: float) -> None:
        """And a little longer, so that thousands do not come back in one moment."""
        seconds += random.uniform(0.0, self._spread)  # noqa: S311
        await asyncio.sleep(min(seconds, self._left()))

    def _left(self) -> float:
        """Seconds until the master counts as lost."""
        return max(0.0, self._contact + self._lost_after - time.monotonic())

    def _check_not_lost(self, why: str) -> None:
        if not self._left():
            raise MasterLostError(
                f"the application master at {self._where.address} could not be reached for {self._lost_after:g} s: "
                f"{why}"
            )

    async def _attach(self) -> str:
        """One stream from its beginning to its end; returns why it ended. Raises RefusedError."""
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
            return "it closed the stream"

    async def _write(self, call: Any, outgoing: asyncio.Queue[Optional[tony_pb2.FromExecutor]]) -> None:
        try:
            while (message := await outgoing.get()) is not None:
                await call.write(message)
                outgoing.task_done()
                if message.WhichOneof("kind") == "heartbeat":
                    self._contact = time.monotonic()  # seconds into the stream, and it still stands
            await call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return  # the stream has ended; the reading side says why
