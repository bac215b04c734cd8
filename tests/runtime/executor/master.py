"""An application master for one executor: the real protocol over real TLS, and tests say what it does."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import grpc

from tony_provider.runtime.checkpoint.stored_checkpoint import checkpoints_directory, directory_name
from tony_provider.runtime.frameworks.base import MAIN_PORT
from tony_provider.runtime.protocol import task_identity, tony_pb2, tony_pb2_grpc
from tony_provider.runtime.protocol.task_identity import TaskIdentity
from tony_provider.runtime.storage import uris

DEADLINE = 60.0  # seconds for whatever a test waits for


@attrs.define(eq=False)
class Master(tony_pb2_grpc.ApplicationMasterServicer):
    application_id: str
    key: bytes
    welcome: tony_pb2.Welcome = attrs.field(factory=lambda: tony_pb2.Welcome(am_attempt=1, heartbeat_seconds=1))
    chain: str = ""  # URI; each state that is ready and has news is ordered there at once; empty: tests ``take``
    grants: bool = False  # every commit at once; otherwise tests ``answer``
    refusal: grpc.StatusCode | None = None  # what every caller gets
    identities: list[TaskIdentity] = attrs.field(factory=list)
    received: list[tony_pb2.FromExecutor] = attrs.field(factory=list)
    _news: asyncio.Condition = attrs.field(factory=asyncio.Condition)
    _saves: int = 0  # number of the last save that was ordered
    _outgoing: asyncio.Queue[tony_pb2.ToExecutor | None] = attrs.field(factory=asyncio.Queue)

    async def Attach(self, requests: AsyncIterator[tony_pb2.FromExecutor], context: Any) -> None:
        if self.refusal is not None:
            await context.abort(self.refusal, "not you")
        try:
            self.identities.append(task_identity.verify(self.key, self.application_id, context.invocation_metadata()))
        except task_identity.IdentityError as error:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
        await context.write(tony_pb2.ToExecutor(welcome=self.welcome))
        writing = asyncio.create_task(self._write(context))
        try:
            async for message in requests:
                if self.grants and message.WhichOneof("kind") == "uploaded":
                    self.answer(message.uploaded)
                if self.chain and message.WhichOneof("kind") == "checkpoint_state":
                    self._order(message.checkpoint_state)
                async with self._news:
                    self.received.append(message)
                    self._news.notify_all()
        finally:
            writing.cancel()

    async def _write(self, context: Any) -> None:
        while (message := await self._outgoing.get()) is not None:
            await context.write(message)

    def say(self, message: tony_pb2.ToExecutor) -> None:
        self._outgoing.put_nowait(message)

    def shutdown(self, grace: float = 5.0) -> None:
        self.say(tony_pb2.ToExecutor(shutdown=tony_pb2.Shutdown(grace_seconds=grace, reason="the test is over")))

    def stop(self, start: int, grace: float, **more: Any) -> None:
        stop = tony_pb2.StopProcess(generation=start, start=start, grace_seconds=grace, reason="a test", **more)
        self.say(tony_pb2.ToExecutor(stop=stop))

    def rendezvous(self, *tasks: tony_pb2.TaskAddress, generation: int = 1, **more: Any) -> None:
        """``start`` counts like the generation unless it is given."""
        packed = zlib.compress(tony_pb2.Cluster(tasks=tasks).SerializeToString())
        rendezvous = tony_pb2.Rendezvous(generation=generation, cluster=packed, **{"start": generation, **more})
        self.say(tony_pb2.ToExecutor(rendezvous=rendezvous))

    def _order(self, state: tony_pb2.CheckpointState) -> None:
        if state.ready and any(entry.news for entry in state.entries):
            self.take(state, self.chain)

    def take(self, state: tony_pb2.CheckpointState, chain: str, **more: Any) -> str:
        """Order a snapshot of this state; ``more`` as in the protocol. Returns the checkpoint's URI."""
        self._saves = max(self._saves, state.save) + 1
        uri = uris.join(checkpoints_directory(chain), directory_name(self._saves))
        of_state = {"generation": state.generation, "start": state.start, "version": state.version}
        values = {**of_state, "wanted": True, "save": self._saves, "uri": uri, **more}
        take = tony_pb2.TakeSnapshot(**values)
        self.say(tony_pb2.ToExecutor(take_snapshot=take))
        return uri

    def take_no_more(self, start: int, reason: str) -> None:
        """Order that a start whose processes have ended stores nothing more."""
        take = tony_pb2.TakeSnapshot(generation=start, start=start, wanted=False, reason=reason)
        self.say(tony_pb2.ToExecutor(take_snapshot=take))

    def answer(
        self, uploaded: tony_pb2.CheckpointUploaded, *, granted: bool = True, reason: str = "", resend: bool = False
    ) -> None:
        answer = tony_pb2.CheckpointAnswer(request=uploaded.request, granted=granted, reason=reason, resend=resend)
        self.say(tony_pb2.ToExecutor(checkpoint=answer))

    async def uploaded(self, step: int) -> tony_pb2.CheckpointUploaded:
        """The first request to commit a checkpoint of this step."""
        found: tony_pb2.CheckpointUploaded = await self.first_where("uploaded", lambda uploaded: uploaded.step == step)
        return found

    async def state(self, wanted: Callable[[tony_pb2.CheckpointState], object]) -> tony_pb2.CheckpointState:
        """The first state of the checkpoint directory that ``wanted`` accepts."""
        found: tony_pb2.CheckpointState = await self.first_where("checkpoint_state", wanted)
        return found

    async def all_of(self, kind: str, count: int = 1, *, deadline: float = DEADLINE) -> list[Any]:
        """The messages of a kind, once there are so many."""

        def found() -> list[Any]:
            return [getattr(message, kind) for message in self.received if message.WhichOneof("kind") == kind]

        async with self._news:
            await asyncio.wait_for(self._news.wait_for(lambda: len(found()) >= count), deadline)
        return found()

    async def first(self, kind: str) -> Any:
        return (await self.all_of(kind))[0]

    async def first_where(self, kind: str, wanted: Callable[[Any], object]) -> Any:
        """The first message of a kind that ``wanted`` accepts."""

        def found() -> list[Any]:
            said = [getattr(message, kind) for message in self.received if message.WhichOneof("kind") == kind]
            return [message for message in said if wanted(message)]

        async with self._news:
            await asyncio.wait_for(self._news.wait_for(lambda: bool(found())), DEADLINE)
        return found()[0]

    async def heartbeat_with(self, wanted: Callable[[tony_pb2.Heartbeat], object]) -> tony_pb2.Heartbeat:
        """The first heartbeat that ``wanted`` accepts."""
        found: tony_pb2.Heartbeat = await self.first_where("heartbeat", wanted)
        return found


def address(
    task_type: str, index: int, port: int, *, role: str = "worker", host: str = "127.0.0.1"
) -> tony_pb2.TaskAddress:
    return tony_pb2.TaskAddress(type=task_type, index=index, role=role, host=host, ports={MAIN_PORT: port})


@asynccontextmanager
async def serving(master: Master, secrets: dict[str, bytes], port: int = 0) -> AsyncIterator[int]:
    """Gives the port."""
    server = grpc.aio.server(options=task_identity.server_options())
    tony_pb2_grpc.add_ApplicationMasterServicer_to_server(master, server)
    port = server.add_secure_port(f"127.0.0.1:{port}", task_identity.server_credentials(secrets))
    await server.start()
    try:
        yield port
    finally:
        await server.stop(0)
