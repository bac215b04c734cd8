"""Calls over connections that misbehave, by a scripted server: every one ends with an answer or a typed error."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.hadoop.ports import free_ports
from tests.runtime.hadoop.scripted_server import TOKEN, Call, Session, serve
from tony_provider.runtime.common.network import Address
from tony_provider.runtime.hadoop.errors import (
    ApplicationAttemptNotFound,
    NodeManagerNotYetReady,
    RemoteError,
    RpcAuthenticationError,
    RpcConnectionError,
    RpcError,
    RpcProtocolError,
    RpcTimeout,
    Standby,
)
from tony_provider.runtime.hadoop.proto.rpc_pb2 import RpcResponseHeaderProto, RpcSaslProto
from tony_provider.runtime.hadoop.proto.yarn_pb2 import NodeIdProto
from tony_provider.runtime.hadoop.rpc import ConnectionSettings, Method, RetryPolicy, RpcClient
from tony_provider.runtime.hadoop.tokens import FrameBuffer, encode_frame

# Far more than any of these tests needs: a call that hangs fails, a slow machine does not.
TIMEOUT = 30.0
STANDBY = "org.apache.hadoop.ipc.StandbyException"
RETRIABLE = "org.apache.hadoop.ipc.RetriableException"

QUICK = RetryPolicy(first_delay=0.001, max_delay=0.01)


@asynccontextmanager
async def client_of(
    addresses: Sequence[Address],
    retry: RetryPolicy = QUICK,
    settings: ConnectionSettings = ConnectionSettings(),  # noqa: B008 - frozen
) -> AsyncIterator[RpcClient]:
    """A client that leaves nothing behind."""
    before = asyncio.all_tasks()
    client = RpcClient(addresses, "test.Protocol", TOKEN, retry=retry, settings=settings)
    try:
        async with asyncio.timeout(TIMEOUT):
            yield client
    finally:
        await client.close()
    left = [task for task in asyncio.all_tasks() - before if "hadoop-rpc" in task.get_name()]
    assert left == []


async def ask(
    client: RpcClient,
    host: str = "a",
    *,
    timeout: float = TIMEOUT,  # noqa: ASYNC109 - the client's own
    idempotent: bool = False,
) -> str:
    method = Method("ask", NodeIdProto, idempotent)
    answer = await client.call(method, NodeIdProto(host=host), timeout=timeout)
    return answer.host


def echo(session: Session, call: Call) -> None:
    host = NodeIdProto.FromString(call.body[1:]).host  # after the length, which is one byte for these short names
    session.answer(call, NodeIdProto(host=f"{host}!"))


async def echo_all(session: Session) -> None:
    await session.authenticate()
    while True:
        echo(session, await session.call())


async def test_answers_find_their_calls_in_any_order() -> None:
    async def script(session: Session) -> None:
        await session.authenticate()
        calls = [await session.call() for _ in range(5)]
        for call in reversed(calls):
            echo(session, call)
        await session.until_closed()

    async with serve(script) as addresses, client_of(addresses) as client:
        assert await asyncio.gather(*(ask(client, name) for name in "abcde")) == ["a!", "b!", "c!", "d!", "e!"]


async def test_a_late_answer_is_passed_over() -> None:
    arrived = asyncio.Event()

    async def script(session: Session) -> None:
        await session.authenticate()
        slow = await session.call()
        arrived.set()
        echo(session, await session.call())
        third = await session.call()
        echo(session, slow)
        echo(session, third)
        await session.until_closed()

    async with serve(script) as addresses, client_of(addresses) as client:
        slow = asyncio.create_task(ask(client, "slow", timeout=0.5))
        await arrived.wait()
        assert await ask(client, "b") == "b!"
        with pytest.raises(RpcTimeout, match="did not answer ask within"):
            await slow
        assert await ask(client, "c") == "c!"


async def test_after_silence_the_connection_is_made_anew() -> None:
    async def script(session: Session) -> None:
        if session.number == 1:
            await session.authenticate()
            await session.until_closed()
        else:
            await echo_all(session)

    async with serve(script) as addresses, client_of(addresses) as client:
        with pytest.raises(RpcTimeout):
            await ask(client, timeout=0.1)
        assert await ask(client) == "a!"


async def test_an_idempotent_call_outlives_its_connection_and_says_that_it_is_a_retry() -> None:
    seen: list[tuple[int, int]] = []

    async def script(session: Session) -> None:
        await session.authenticate()
        call = await session.call()
        seen.append((call.call_id, call.retry_count))
        if session.number == 3:
            echo(session, call)
            await session.until_closed()

    async with serve(script) as addresses, client_of(addresses) as client:
        assert await ask(client, idempotent=True) == "a!"
    assert seen == [(0, 0), (0, 1), (0, 2)]


async def test_an_idempotent_call_is_tried_again_after_silence() -> None:
    async def script(session: Session) -> None:
        await session.authenticate()
        call = await session.call()
        if session.number == 2:
            echo(session, call)
        await session.until_closed()

    retry = RetryPolicy(first_delay=0.001, attempt_timeout=0.1)
    async with serve(script) as addresses, client_of(addresses, retry) as client:
        assert await ask(client, idempotent=True) == "a!"


async def test_another_call_is_never_sent_twice() -> None:
    sent: list[Call] = []

    async def script(session: Session) -> None:
        await session.authenticate()
        sent.append(await session.call())

    async with serve(script) as addresses, client_of(addresses) as client:
        with pytest.raises(RpcConnectionError, match="the server closed the connection"):
            await ask(client)
    assert len(sent) == 1


@pytest.mark.parametrize("java_class", [STANDBY, RETRIABLE])
async def test_a_call_that_was_not_begun_is_tried_again(java_class: str) -> None:
    tries = itertools.count(1)

    async def script(session: Session) -> None:
        await session.authenticate()
        while True:
            call = await session.call()
            if next(tries) < 3:
                session.refuse(call, java_class, "not now")
            else:
                echo(session, call)

    async with serve(script) as addresses, client_of(addresses) as client:
        assert await ask(client) == "a!"


async def test_the_standby_is_left_for_the_active_one() -> None:
    async def script(session: Session) -> None:
        await session.authenticate()
        while True:
            call = await session.call()
            if session.writer.get_extra_info("sockname")[1] == addresses[0].port:
                session.refuse(call, STANDBY, "standby")
            else:
                echo(session, call)

    # With a delay that would end the test: the other of the pair is tried at once.
    patient = RetryPolicy(first_delay=2 * TIMEOUT, max_delay=2 * TIMEOUT)
    async with serve(script, servers=2) as addresses, client_of(addresses, patient) as client:
        assert await ask(client) == "a!"
        assert client.address == addresses[1]


async def test_a_server_that_is_gone_is_left_for_the_other() -> None:
    async with serve(echo_all) as addresses:
        (gone,) = (Address("127.0.0.1", port) for port in free_ports(1))
        async with client_of([gone, *addresses]) as client:
            assert await ask(client) == "a!"


async def test_a_server_that_accepts_and_says_nothing_is_left_for_the_other() -> None:
    async def script(session: Session) -> None:
        if session.writer.get_extra_info("sockname")[1] == addresses[0].port:
            await session.until_closed()
        else:
            await echo_all(session)

    retry = RetryPolicy(connect_timeout=0.2)
    async with serve(script, servers=2) as addresses, client_of(addresses, retry) as client:
        assert await ask(client) == "a!"


async def test_the_deadline_ends_the_tries_with_the_last_error() -> None:
    async def standby(session: Session) -> None:
        await session.authenticate()
        session.refuse(await session.call(), STANDBY, "standby")
        await session.until_closed()

    patient = RetryPolicy(first_delay=2 * TIMEOUT, max_delay=2 * TIMEOUT)
    async with serve(standby) as addresses, client_of(addresses, patient) as client:
        with pytest.raises(Standby):
            await ask(client)


async def test_a_try_that_the_deadline_cut_short_does_not_hide_the_reason() -> None:
    async def script(session: Session) -> None:
        if session.number == 1:
            await session.authenticate()
            session.refuse(await session.call(), STANDBY, "standby")
        await session.until_closed()

    async with serve(script) as addresses, client_of(addresses) as client:
        with pytest.raises(Standby):
            await ask(client, timeout=0.5)


async def test_the_deadline_holds_while_connecting() -> None:
    async with serve(Session.until_closed) as addresses, client_of(addresses) as client:
        with pytest.raises(RpcConnectionError, match="within"):
            await ask(client, timeout=0.1)


async def test_a_refusal_has_the_type_of_its_java_class() -> None:
    java_class = "org.apache.hadoop.yarn.exceptions.ApplicationAttemptNotFoundException"

    async def script(session: Session) -> None:
        await session.authenticate()
        session.refuse(await session.call(), java_class, f"{java_class}: no such attempt\n\tat a.B.c(B.java:1)\n")
        session.refuse(await session.call(), "org.example.OtherException", "other")
        echo(session, await session.call())
        await session.until_closed()

    async with serve(script) as addresses, client_of(addresses) as client:
        with pytest.raises(ApplicationAttemptNotFound) as refused:
            await ask(client)
        assert str(refused.value) == "ApplicationAttemptNotFoundException: no such attempt"
        assert "B.java" in refused.value.trace
        with pytest.raises(RemoteError, match="OtherException: other"):
            await ask(client)
        assert await ask(client) == "a!"  # over the same connection


async def test_a_fatal_refusal_ends_all_calls_of_the_connection() -> None:
    async def script(session: Session) -> None:
        await session.authenticate()
        await session.call()
        second = await session.call()
        session.refuse(second, "org.apache.hadoop.yarn.exceptions.NMNotYetReadyException", "soon", fatal=True)
        await session.until_closed()

    async with serve(script) as addresses, client_of(addresses) as client:
        answers = await asyncio.gather(ask(client), ask(client), return_exceptions=True)
        assert [type(answer) for answer in answers] == [NodeManagerNotYetReady, NodeManagerNotYetReady]


async def test_a_refusal_of_the_connection_is_raised_by_the_call_that_wanted_it() -> None:
    async def script(session: Session) -> None:
        await session.authenticate()
        context = Call(call_id=2**32 - 3, retry_count=0, method="", body=b"")
        session.refuse(context, "org.apache.hadoop.security.authorize.AuthorizationException", "no", fatal=True)
        await session.until_closed()

    async with serve(script) as addresses, client_of(addresses) as client:
        with pytest.raises(RemoteError, match=r"^AuthorizationException: no$"):
            await ask(client)


OVERSIZED = (2**31).to_bytes(4, "big")
NO_HEADER = (1).to_bytes(4, "big") + b"\x00"
BAD_TEXT = (
    encode_frame(RpcResponseHeaderProto(callId=0, status=RpcResponseHeaderProto.SUCCESS))[4:] + b"\x03\x0a\x01\xff"
)
TOO_MUCH = encode_frame(RpcResponseHeaderProto(callId=0, status=RpcResponseHeaderProto.SUCCESS))[4:] + b"\x00\x00"
NO_BODY = encode_frame(RpcResponseHeaderProto(callId=0, status=RpcResponseHeaderProto.SUCCESS))


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (OVERSIZED, RpcProtocolError),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", RpcProtocolError),
        (NO_HEADER, RpcProtocolError),
        (framed(b""), RpcProtocolError),
        (framed(b"\xff" * 20), RpcProtocolError),
        (framed(BAD_TEXT), RpcProtocolError),
        (framed(TOO_MUCH), RpcProtocolError),
        (NO_BODY, RpcProtocolError),
        (framed(b"\x02\x08\x00"), RpcProtocolError),  # a header without its status
        ((1000).to_bytes(4, "big") + b"cut", RpcConnectionError),
        (b"", RpcConnectionError),
    ],
)
async def test_malformed_answers_are_told(sent: bytes, error: type[RpcError]) -> None:
    async def script(session: Session) -> None:
        await session.authenticate()
        await session.call()
        session.writer.write(sent)

    async with serve(script) as addresses, client_of(addresses) as client:
        with pytest.raises(error):
            await ask(client)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(garbage=st.binary(max_size=60), as_frame=st.booleans())
@pytest.mark.parametrize("authenticated", [False, True])
async def test_garbage_never_hangs_a_call(authenticated: bool, garbage: bytes, as_frame: bool) -> None:
    async def script(session: Session) -> None:
        if authenticated:
            await session.authenticate()
            await session.call()
        session.writer.write(framed(garbage) if as_frame else garbage)

    async with serve(script) as addresses, client_of(addresses) as client:
        with pytest.raises(RpcError):
            # Garbage that could be an answer would have to be 0 bytes of NodeIdProto for call 0.
            await ask(client, timeout=0.1)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (RpcSaslProto(state=RpcSaslProto.SUCCESS), RpcAuthenticationError),
        (RpcSaslProto(state=RpcSaslProto.NEGOTIATE), RpcAuthenticationError),
        (RpcSaslProto(state=RpcSaslProto.CHALLENGE, token=b"x"), RpcProtocolError),
        (
            RpcSaslProto(
                state=RpcSaslProto.NEGOTIATE,
                auths=[RpcSaslProto.SaslAuth(method="KERBEROS", mechanism="GSSAPI", protocol="rm", serverId="h")],
            ),
            RpcAuthenticationError,
        ),
    ],
)
async def test_a_server_that_does_not_authenticate_by_token(answer: RpcSaslProto, error: type[RpcError]) -> None:
    async def script(session: Session) -> None:
        session._send_sasl(answer)
        await session.until_closed()

    async with serve(script) as addresses, client_of(addresses) as client:
        with pytest.raises(error):
            await ask(client)


async def test_an_idle_connection_is_closed_and_made_anew() -> None:
    closed = asyncio.Event()

    async def script(session: Session) -> None:
        await session.authenticate()
        echo(session, await session.call())
        if session.number == 1:
            await session.until_closed()
            closed.set()
        else:
            await session.until_closed()

    async with (
        serve(script) as addresses,
        client_of(addresses, settings=ConnectionSettings(idle_timeout=0.05)) as client,
    ):
        assert await ask(client) == "a!"
        await closed.wait()
        assert await ask(client) == "a!"


async def test_closing_ends_the_calls_under_way() -> None:
    arrived = asyncio.Event()

    async def script(session: Session) -> None:
        await session.authenticate()
        await session.call()
        arrived.set()
        await session.until_closed()

    async with serve(script) as addresses, client_of(addresses) as client:
        call = asyncio.create_task(ask(client, idempotent=True))
        await arrived.wait()
        await client.close()
        with pytest.raises(RpcConnectionError):
            await call
        with pytest.raises(RpcConnectionError, match="closed"):
            await ask(client)


async def test_closing_while_connecting_leaves_no_connection() -> None:
    connected, closed = asyncio.Event(), asyncio.Event()

    async def script(session: Session) -> None:
        connected.set()
        await closed.wait()
        await echo_all(session)

    async with serve(script) as addresses, client_of(addresses) as client:
        asking = asyncio.create_task(ask(client))
        await connected.wait()
        await client.close()
        closed.set()
        with pytest.raises(RpcConnectionError, match="closed"):
            await asking


async def test_cancelling_one_call_leaves_the_others() -> None:
    arrived = asyncio.Event()

    async def script(session: Session) -> None:
        await session.authenticate()
        await session.call()
        second = await session.call()
        arrived.set()
        echo(session, await session.call())
        echo(session, second)
        await session.until_closed()

    async with serve(script) as addresses, client_of(addresses) as client:
        first = asyncio.create_task(ask(client, "a"))
        second = asyncio.create_task(ask(client, "b"))
        await arrived.wait()
        first.cancel()
        assert await ask(client, "c") == "c!"
        assert await second == "b!"


async def test_a_new_token_is_used_from_the_next_connection_on() -> None:
    async def script(session: Session) -> None:
        await session.authenticate()
        echo(session, await session.call())

    async with serve(script) as addresses, client_of(addresses) as client:
        assert await ask(client, idempotent=True) == "a!"
        client.use_token(TOKEN)
        assert await ask(client, idempotent=True) == "a!"


@given(st.lists(st.binary(max_size=40), max_size=6), st.data())
def test_frames_come_out_however_the_bytes_are_cut(bodies: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(framed(body) for body in bodies)
    buffer, out = FrameBuffer(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        out += buffer.feed(stream[:size])
        stream = stream[size:]
    assert out == bodies
