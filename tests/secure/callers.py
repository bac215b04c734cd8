"""Calls to an application master's port for executors, by whoever has got hold of what."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Mapping
from typing import Any

import attrs
import grpc
import grpc.aio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tony_provider.runtime.hadoop.tokens import Credentials
from tony_provider.runtime.protocol import tony_pb2, tony_pb2_grpc
from tony_provider.runtime.protocol.task_identity import (
    TaskIdentity,
    call_metadata,
    channel_credentials,
    channel_options,
)

SECONDS = 20.0
_TRIES = 10
REGISTRATION = tony_pb2.FromExecutor(
    registration=tony_pb2.Registration(host="127.0.0.66", ports={"main": 6666}, node="127.0.0.66:1", pid=1)
)


@attrs.frozen
class Heard:
    """How the call ended: gRPC's code and words; ``welcome``: the master has taken the caller for an executor."""

    code: str
    words: str
    welcome: bool

    def __str__(self) -> str:
        return f"{self.code}: {self.words[:100]}"


def secrets_of(credentials: Credentials) -> dict[str, bytes]:
    return dict(credentials.secrets)


def call(
    address: tuple[str, int],
    identity: TaskIdentity,
    token: str,
    secrets: Mapping[str, bytes] | None,
    *,
    tls: grpc.ChannelCredentials | None = None,
) -> Heard:
    """Open a stream as this executor, and register. ``secrets``: whose certificate; ``tls``: how else, None: plain."""
    for _ in range(_TRIES):
        heard = asyncio.run(_call(address, identity, token, secrets, tls))
        # gRPC says so instead of what the server said, where the registration meets the end of the call.
        if heard.code != grpc.StatusCode.INTERNAL.name or heard.welcome:
            break
    return heard


async def _call(
    address: tuple[str, int],
    identity: TaskIdentity,
    token: str,
    secrets: Mapping[str, bytes] | None,
    tls: grpc.ChannelCredentials | None,
) -> Heard:
    target = f"{address[0]}:{address[1]}"
    options = channel_options(identity.application_id)
    credentials = channel_credentials(secrets) if secrets is not None else tls
    channel = (
        grpc.aio.insecure_channel(target, [("grpc.enable_http_proxy", 0)])
        if credentials is None
        else grpc.aio.secure_channel(target, credentials, options)
    )
    async with channel:
        stream = tony_pb2_grpc.ApplicationMasterStub(channel).Attach(
            metadata=call_metadata(identity, token), timeout=SECONDS
        )
        welcome = False
        try:
            await _write(stream)
            message = await stream.read()
            welcome = message is not grpc.aio.EOF and message.WhichOneof("kind") is not None
            if welcome:
                stream.cancel()
        except grpc.aio.AioRpcError:
            pass
        except asyncio.CancelledError:
            pass
        code = await stream.code()
        return Heard(code.name, await stream.details() or "", welcome)


async def _write(stream: Any) -> None:
    try:
        await stream.write(REGISTRATION)
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        return  # it was refused by its metadata, or before; reading says how


def flood(
    address: tuple[str, int], identity: TaskIdentity, token: str, secrets: Mapping[str, bytes], number: int, size: int
) -> Heard:
    """As an executor, so many heartbeats of about so many bytes."""
    return asyncio.run(_flood(address, identity, token, secrets, number, size))


async def _flood(
    address: tuple[str, int], identity: TaskIdentity, token: str, secrets: Mapping[str, bytes], number: int, size: int
) -> Heard:
    metrics = {f"{count:0100}": 1.0 for count in range(size // 120)}
    beat = tony_pb2.FromExecutor(
        heartbeat=tony_pb2.Heartbeat(progress=tony_pb2.Progress(step=1, metrics=metrics), activity="running")
    )
    target = f"{address[0]}:{address[1]}"
    async with grpc.aio.secure_channel(
        target, channel_credentials(secrets), channel_options(identity.application_id)
    ) as channel:
        stream = tony_pb2_grpc.ApplicationMasterStub(channel).Attach(
            metadata=call_metadata(identity, token), timeout=SECONDS
        )
        await _write(stream)
        welcome = False
        try:
            welcome = await stream.read() is not grpc.aio.EOF
            for _ in range(number):
                await stream.write(beat)
            await stream.done_writing()
            while await stream.read() is not grpc.aio.EOF:
                pass
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass
        return Heard((await stream.code()).name, await stream.details() or "", welcome)


def self_made(name: str) -> tuple[bytes, bytes]:
    """A key, and a certificate that says what the job's own say, by nobody's authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    return pem, certificate.public_bytes(serialization.Encoding.PEM)
