"""An application master for one executor: the real protocol over real TLS, and tests say what it does."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import grpc

from tony_provider.runtime import task_identity
from tony_provider.runtime.frameworks.base import MAIN_PORT
from tony_provider.runtime.protocol import tony_pb2, tony_pb2_grpc
from tony_provider.runtime.task_identity import TaskIdentity

DEADLINE = 60.0  # seconds for whatever a test waits for


@attrs.define(eq=False)
class Master(tony_pb2_grpc.ApplicationMasterServicer):
    application_id: str
    key: bytes
    welcome: tony_pb2.Welcome = attrs.field(factory=lambda: tony_pb2.Welcome(am_attempt=1, heartbeat_seconds=1))
    grants: bool = False  # every commit at once; else tests ``answer``
    refusal: grpc.StatusCode | None = None  # what every caller gets
    identities: list[TaskIdentity] = attrs.field(factory=list)
    received: list[tony_pb2.FromExecutor] = attrs.field(factory=list)
    _news: asyncio.Condition = attrs.field(factory=asyncio.Condition)
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

    def answer(self, uploaded: tony_pb2.CheckpointUploaded, *, granted: bool = True, reason: str = "") -> None:
        answer = tony_pb2.CheckpointAnswer(request=uploaded.request, granted=granted, reason=reason)
        self.say(tony_pb2.ToExecutor(checkpoint=answer))

    async def uploaded(self, step: int) -> tony_pb2.CheckpointUploaded:
        """The first request to commit this step."""

        def found() -> list[tony_pb2.CheckpointUploaded]:
            asked = [message.uploaded for message in self.received if message.WhichOneof("kind") == "uploaded"]
            return [uploaded for uploaded in asked if uploaded.step == step]

        async with self._news:
            await asyncio.wait_for(self._news.wait_for(lambda: bool(found())), DEADLINE)
        return found()[0]

    async def all_of(self, kind: str, count: int = 1, *, deadline: float = DEADLINE) -> list[Any]:
        """The messages of a kind, once there are so many."""

        def found() -> list[Any]:
            return [getattr(message, kind) for message in self.received if message.WhichOneof("kind") == kind]

        async with self._news:
            await asyncio.wait_for(self._news.wait_for(lambda: len(found()) >= count), deadline)
        return found()

    async def first(self, kind: str) -> Any:
        return (await self.all_of(kind))[0]

    async def heartbeat_with(self, wanted: Any) -> tony_pb2.Heartbeat:
        """The first heartbeat that ``wanted`` says yes to."""

        def found() -> list[tony_pb2.Heartbeat]:
            beats = [message.heartbeat for message in self.received if message.WhichOneof("kind") == "heartbeat"]
            return [beat for beat in beats if wanted(beat)]

        async with self._news:
            await asyncio.wait_for(self._news.wait_for(lambda: bool(found())), DEADLINE)
        return found()[0]


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
