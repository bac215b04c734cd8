"""An attempt's standing with a ResourceManager whose answers are lost, by a scripted server."""

from __future__ import annotations

import asyncio

import pytest

from tests.runtime.hadoop.scripted_server import TOKEN, Session, serve
from tony_provider.runtime.am.resource_manager import ResourceManagerError
from tony_provider.runtime.am.yarn.yarn_clients import AMRMClient
from tony_provider.runtime.hadoop.errors import RpcConnectionError
from tony_provider.runtime.hadoop.proto import security_pb2 as security
from tony_provider.runtime.hadoop.proto import yarn_service_pb2 as service
from tony_provider.runtime.hadoop.tokens import Token

TIMEOUT = 30.0
REGISTERED_ALREADY = "org.apache.hadoop.yarn.exceptions.InvalidApplicationMasterRequestException"
NOT_REGISTERED = "org.apache.hadoop.yarn.exceptions.ApplicationMasterNotRegisteredException"


def beat() -> service.AllocateRequestProto:
    return service.AllocateRequestProto(progress=0.5)


async def test_a_registration_whose_answer_is_lost_counts() -> None:
    async def script(session: Session) -> None:
        await session.authenticate()
        call = await session.call()
        assert call.method == "registerApplicationMaster"
        if session.number == 1:
            return  # taken, and the connection breaks
        session.refuse(call, REGISTERED_ALREADY, "Application Master is already registered")
        await session.until_closed()

    async with serve(script) as addresses, asyncio.timeout(TIMEOUT):
        scheduler = AMRMClient(addresses, TOKEN)
        assert await scheduler.register("host", 1, "") is None
        await scheduler.close()


async def test_a_registration_that_somebody_else_made_does_not_count() -> None:
    async def script(session: Session) -> None:
        await session.authenticate()
        session.refuse(await session.call(), REGISTERED_ALREADY, "Application Master is already registered")
        await session.until_closed()

    async with serve(script) as addresses, asyncio.timeout(TIMEOUT):
        scheduler = AMRMClient(addresses, TOKEN)
        with pytest.raises(ResourceManagerError, match="already registered"):
            await scheduler.register("host", 1, "")
        await scheduler.close()


async def test_registering_again_whose_answer_is_lost_is_still_told() -> None:
    """Else nothing that was asked of the former ResourceManager would ever be asked of this one."""
    said: list[str] = []

    async def script(session: Session) -> None:
        await session.authenticate()
        while True:
            call = await session.call()
            said.append(call.method)
            if call.method == "allocate" and session.number == 1:
                session.refuse(call, NOT_REGISTERED, "")
            elif call.method == "allocate":
                assert service.AllocateRequestProto.FromString(_body(call.body)).response_id == 0
                session.answer(call, service.AllocateResponseProto(response_id=1))
            elif said == ["registerApplicationMaster"]:
                session.answer(call, service.RegisterApplicationMasterResponseProto())
            elif session.number == 1:
                return  # taken, and the connection breaks
            else:
                session.refuse(call, REGISTERED_ALREADY, "Application Master is already registered")

    async with serve(script) as addresses, asyncio.timeout(TIMEOUT):
        scheduler = AMRMClient(addresses, TOKEN)
        assert await scheduler.register("host", 1, "") is not None
        with pytest.raises(RpcConnectionError):
            await scheduler.allocate(beat())
        assert await scheduler.allocate(beat()) is None
        assert await scheduler.allocate(beat()) is not None
        await scheduler.close()
    assert said == ["registerApplicationMaster", "allocate", *["registerApplicationMaster"] * 2, "allocate"]


async def test_a_rolled_token_is_for_the_next_connection(caplog: pytest.LogCaptureFixture) -> None:
    """YARN gives it with every answer until then."""
    rolled = Token(b"who", b"another secret", TOKEN.kind)
    given = security.TokenProto(identifier=rolled.identifier, password=rolled.password, kind=rolled.kind, service="")

    async def script(session: Session) -> None:
        await session.authenticate(TOKEN if session.number == 1 else rolled)
        if session.number == 1:
            session.answer(await session.call(), service.RegisterApplicationMasterResponseProto())
        for _ in range(2):  # then the connection breaks
            session.answer(await session.call(), service.AllocateResponseProto(response_id=1, am_rm_token=given))

    async with serve(script) as addresses, asyncio.timeout(TIMEOUT):
        scheduler = AMRMClient(addresses, TOKEN)
        await scheduler.register("host", 1, "")
        with caplog.at_level("INFO"):
            for _ in range(3):
                assert await scheduler.allocate(beat()) is not None
        await scheduler.close()
    assert caplog.text.count("received a new token") == 1


def _body(delimited: bytes) -> bytes:
    """The message behind its length, which is below 128 here."""
    assert delimited[0] == len(delimited) - 1
    return delimited[1:]
