"""Who may speak to the application master, over real connections."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import attrs
import grpc
import grpc.aio
import pytest

from tests.runtime.certificates import make_certificates
from tony_provider.runtime.am.service import ExecutorService, Listener, Server, Stream
from tony_provider.runtime.protocol import tony_pb2, tony_pb2_grpc
from tony_provider.runtime.spec.model import PortRange
from tony_provider.runtime.task_identity import (
    TaskIdentity,
    call_metadata,
    channel_credentials,
    channel_options,
    make_token,
)

APPLICATION_ID = "application_1700000000000_0007"
KEY = b"k" * 32
PORTS = PortRange(20000, 31999)
DEADLINE = 30
IDENTITY = TaskIdentity(APPLICATION_ID, "container_1700000000000_0007_01_000002", "worker:0", 1)
REGISTRATION = tony_pb2.FromExecutor(registration=tony_pb2.Registration(host="h", ports={"main": 1}))


@attrs.define(eq=False)
class Recorder(Listener):
    refused: str | None = None
    events: asyncio.Queue[tuple[str, Any]] = attrs.field(factory=asyncio.Queue)

    def refusal(self, identity: TaskIdentity) -> str | None:
        return self.refused

    def attached(self, stream: Stream, registration: tony_pb2.Registration) -> None:
        self.events.put_nowait(("attached", stream))

    def received(self, stream: Stream, message: tony_pb2.FromExecutor) -> None:
        self.events.put_nowait(("received", message))

    def detached(self, stream: Stream) -> None:
        self.events.put_nowait(("detached", stream))

    async def next(self, kind: str) -> Any:
        got, value = await asyncio.wait_for(self.events.get(), DEADLINE)
        assert got == kind
        return value


@attrs.define
class Setting:
    server: Server
    listener: Recorder
    secrets: dict[str, bytes]

    def channel(self, secrets: dict[str, bytes] | None = None) -> Any:
        return grpc.aio.secure_channel(
            str(self.server.address),
            channel_credentials(secrets or self.secrets),
            options=channel_options(APPLICATION_ID),
        )


@pytest.fixture
async def setting() -> AsyncIterator[Setting]:
    secrets = make_certificates(APPLICATION_ID)
    listener = Recorder()
    service = ExecutorService(APPLICATION_ID, KEY, listener)
    server = Server.bind(secrets, "127.0.0.1", PORTS)
    await server.start(service)
    yield Setting(server, listener, secrets)
    await server.stop()


def attach(channel: Any, identity: TaskIdentity = IDENTITY, token: str | None = None) -> Any:
    metadata = call_metadata(identity, make_token(KEY, identity) if token is None else token)
    return tony_pb2_grpc.ApplicationMasterStub(channel).Attach(metadata=metadata, timeout=DEADLINE)


async def refusal(call: Any, first: tony_pb2.FromExecutor | None = None) -> tuple[grpc.StatusCode, str]:
    """With what the call ends. What is refused by its metadata gets no message: gRPC overwrites the server's status by
    INTERNAL where a write meets the end of the call (the executor's link tries again then)."""
    try:
        if first is not None:
            await call.write(first)
        await call.read()
    except grpc.aio.AioRpcError:
        pass
    return await call.code(), await call.details()


async def test_messages_go_both_ways(setting: Setting) -> None:
    async with setting.channel() as channel:
        call = attach(channel)
        await call.write(REGISTRATION)
        stream: Stream = await setting.listener.next("attached")
        assert stream.identity == IDENTITY
        await call.write(tony_pb2.FromExecutor(heartbeat=tony_pb2.Heartbeat(rss_bytes=5)))
        assert (await setting.listener.next("received")).heartbeat.rss_bytes == 5
        stream.send(tony_pb2.ToExecutor(shutdown=tony_pb2.Shutdown(reason="over")))
        assert (await call.read()).shutdown.reason == "over"
        await call.done_writing()
        await setting.listener.next("detached")
        assert await call.code() is grpc.StatusCode.OK


async def test_lost_connection_is_noticed(setting: Setting) -> None:
    channel = setting.channel()
    call = attach(channel)
    await call.write(REGISTRATION)
    stream = await setting.listener.next("attached")
    await channel.close()
    assert await setting.listener.next("detached") is stream


@pytest.mark.parametrize("token", ["", "0" * 64, make_token(b"other", IDENTITY)])
async def test_wrong_token_is_denied(setting: Setting, token: str) -> None:
    async with setting.channel() as channel:
        code, _ = await refusal(attach(channel, token=token))
    assert code is grpc.StatusCode.PERMISSION_DENIED
    assert setting.listener.events.empty()


@pytest.mark.parametrize("change", [{"task": "worker:1"}, {"attempt": 2}, {"container_id": "container_1_1_01_000003"}])
async def test_task_cannot_act_as_another(setting: Setting, change: dict[str, Any]) -> None:
    own = make_token(KEY, IDENTITY)
    async with setting.channel() as channel:
        code, _ = await refusal(attach(channel, attrs.evolve(IDENTITY, **change), own))
    assert code is grpc.StatusCode.PERMISSION_DENIED


async def test_former_attempt_is_told_so(setting: Setting) -> None:
    setting.listener.refused = "attempt 1 was replaced"
    async with setting.channel() as channel:
        assert await refusal(attach(channel)) == (grpc.StatusCode.FAILED_PRECONDITION, "attempt 1 was replaced")


async def test_attempt_that_is_replaced_meanwhile_is_cut_off(setting: Setting) -> None:
    async with setting.channel() as channel:
        call = attach(channel)
        await call.write(REGISTRATION)
        await setting.listener.next("attached")
        setting.listener.refused = "attempt 1 was replaced"
        await call.write(tony_pb2.FromExecutor(heartbeat=tony_pb2.Heartbeat()))
        await setting.listener.next("detached")


async def test_registration_comes_first(setting: Setting) -> None:
    async with setting.channel() as channel:
        heartbeat = tony_pb2.FromExecutor(heartbeat=tony_pb2.Heartbeat())
        code, _ = await refusal(attach(channel), heartbeat)
    assert code is grpc.StatusCode.INVALID_ARGUMENT


async def test_certificate_of_another_application_is_not_let_in(setting: Setting) -> None:
    others = make_certificates(APPLICATION_ID)
    mixed = {**others, "tony.ca": setting.secrets["tony.ca"]}
    async with setting.channel(mixed) as channel:
        code, _ = await refusal(attach(channel))
    assert code is grpc.StatusCode.UNAVAILABLE
    assert setting.listener.events.empty()


async def test_listens_on_the_given_address_only(setting: Setting) -> None:
    address = setting.server.address
    assert PORTS.first <= address.port <= PORTS.last
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.9", address.port)


async def test_no_free_port_is_an_error_that_names_the_range(setting: Setting) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"no free port on 127.0.0.1 in {port}-{port}"):
            Server.bind(setting.secrets, "127.0.0.1", PortRange(port, port))
