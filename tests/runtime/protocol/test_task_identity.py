from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runtime.certificates import make_certificates
from tony_provider.runtime.common import contract
from tony_provider.runtime.protocol import task_identity, tony_pb2, tony_pb2_grpc
from tony_provider.runtime.protocol.task_identity import (
    IdentityError,
    MissingSecretError,
    TaskIdentity,
    call_metadata,
    make_token,
    verify,
)

APPLICATION = "application_1700000000000_0001"
KEY = b"k" * 32
WORKER = TaskIdentity(APPLICATION, "container_e01_1700000000000_0001_01_000002", "worker:0", 1)

identities = st.builds(
    TaskIdentity, st.just(APPLICATION), st.text(max_size=20), st.text(max_size=20), st.integers(1, 10**6)
)


@given(identities)
def test_the_token_proves_the_identity(task: TaskIdentity) -> None:
    assert verify(KEY, APPLICATION, call_metadata(task, make_token(KEY, task))) == task


@given(identities, identities)
def test_a_token_is_good_for_one_identity_only(task: TaskIdentity, other: TaskIdentity) -> None:
    if task == other:
        return
    with pytest.raises(IdentityError):
        verify(KEY, APPLICATION, call_metadata(other, make_token(KEY, task)))


def test_fields_do_not_run_into_each_other() -> None:
    one = attrs.evolve(WORKER, container_id="c", task="1worker")
    other = attrs.evolve(WORKER, container_id="c1", task="worker")
    assert make_token(KEY, one) != make_token(KEY, other)


@pytest.mark.parametrize(("key", "application"), [(b"other", APPLICATION), (KEY, "application_1700000000000_0002")])
def test_another_application_does_not_accept_it(key: bytes, application: str) -> None:
    with pytest.raises(IdentityError, match="token does not belong to worker:0"):
        verify(key, application, call_metadata(WORKER, make_token(KEY, WORKER)))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(sorted({"tony-task", "tony-container", "tony-attempt", "tony-token", "x"})),
            st.text() | st.binary(),
        )
    )
)
def test_whatever_is_sent_without_a_token_is_refused(metadata: list[tuple[str, str | bytes]]) -> None:
    with pytest.raises(IdentityError):
        verify(KEY, APPLICATION, metadata)


def test_refusals_hold_no_secret() -> None:
    token = make_token(KEY, WORKER)
    with pytest.raises(IdentityError) as refusal:
        verify(b"other", APPLICATION, call_metadata(WORKER, token))
    assert token not in str(refusal.value)


def test_missing_secrets_are_named() -> None:
    with pytest.raises(MissingSecretError, match=r"tony\.client\.key|tony\.ca"):
        task_identity.channel_credentials({})


class Echo(tony_pb2_grpc.ApplicationMasterServicer):
    async def Attach(
        self, requests: AsyncIterator[tony_pb2.FromExecutor], context: object
    ) -> AsyncIterator[tony_pb2.ToExecutor]:
        async for _ in requests:
            yield tony_pb2.ToExecutor(shutdown=tony_pb2.Shutdown(reason="hello"))


@asynccontextmanager
async def serving(secrets: dict[str, bytes]) -> AsyncIterator[str]:
    server = grpc.aio.server(options=task_identity.server_options())
    tony_pb2_grpc.add_ApplicationMasterServicer_to_server(Echo(), server)
    port = server.add_secure_port("127.0.0.1:0", task_identity.server_credentials(secrets))
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


async def talk(
    address: str, secrets: dict[str, bytes], application: str, message: tony_pb2.FromExecutor | None = None
) -> str:
    credentials = task_identity.channel_credentials(secrets)
    async with grpc.aio.secure_channel(address, credentials, task_identity.channel_options(application)) as channel:
        call = tony_pb2_grpc.ApplicationMasterStub(channel).Attach(timeout=10)
        await call.write(message or tony_pb2.FromExecutor(heartbeat=tony_pb2.Heartbeat()))
        answer = await asyncio.wait_for(call.read(), 15)
        call.cancel()
        return str(answer.shutdown.reason)


async def test_both_ends_know_each_other_whatever_the_proxy_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    for variable in ("no_proxy", "no_grpc_proxy", "NO_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    secrets = make_certificates(APPLICATION)
    async with serving(secrets) as address:
        assert await talk(address, secrets, APPLICATION) == "hello"


async def test_a_master_of_another_application_is_not_spoken_to() -> None:
    secrets = make_certificates(APPLICATION)
    async with serving(secrets) as address:
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await talk(address, secrets, "application_1700000000000_0002")
    assert failure.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_caller_of_another_authority_is_not_answered() -> None:
    secrets = make_certificates(APPLICATION)
    others = make_certificates(APPLICATION) | {contract.SECRET_CA: secrets[contract.SECRET_CA]}
    async with serving(secrets) as address:
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await talk(address, others, APPLICATION)
    assert failure.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_checkpoint_of_many_files_can_be_announced() -> None:
    secrets = make_certificates(APPLICATION)
    entries = [
        tony_pb2.TreeEntry(path=f"state/layer-{number}/shard-{number}", size=1 << 40, checksum="crc32:0a1b2c3d")
        for number in range(100_000)
    ]
    message = tony_pb2.FromExecutor(uploaded=tony_pb2.CheckpointUploaded(step=1, entries=entries))
    assert message.ByteSize() > 4 << 20  # gRPC's own limit
    async with serving(secrets) as address:
        assert await talk(address, secrets, APPLICATION, message) == "hello"
