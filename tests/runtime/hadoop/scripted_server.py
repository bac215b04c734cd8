"""A server that a test scripts, for what no real Hadoop server does when asked: garbage, silence, refusals.

It speaks just enough of the server's side to get through the authentication honestly; the rest is the script's.
"""

from __future__ import annotations

import asyncio
import base64
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from google.protobuf.message import Message

from tests.hadoop.ports import free_ports
from tony_provider.runtime.common.network import Address
from tony_provider.runtime.hadoop.proto.rpc_pb2 import (
    IpcConnectionContextProto,
    RequestHeaderProto,
    RpcRequestHeaderProto,
    RpcResponseHeaderProto,
    RpcSaslProto,
)
from tony_provider.runtime.hadoop.sasl import DigestMd5Client, parse_directives
from tony_provider.runtime.hadoop.tokens import Token, encode_frame, take_message

TOKEN = Token(b"who", b"secret", "YARN_AM_RM_TOKEN")
PREAMBLE_BYTES = 7
SASL_CALL_ID = -33
CHALLENGE = b'realm="default",nonce="n",qop="auth",charset=utf-8,algorithm=md5-sess'


@dataclass
class Call:
    call_id: int
    retry_count: int
    method: str
    body: bytes


@dataclass
class Session:
    """One accepted connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    number: int  # from 1, over all servers of one script

    async def authenticate(self, token: Token = TOKEN) -> None:
        """The server's honest side of the exchange with whoever has the token, up to the connection context."""
        await self.reader.readexactly(PREAMBLE_BYTES)
        await self._sasl(RpcSaslProto.NEGOTIATE)
        auth = RpcSaslProto.SaslAuth(
            method="TOKEN", mechanism="DIGEST-MD5", protocol="", serverId="default", challenge=CHALLENGE
        )
        self._send_sasl(RpcSaslProto(state=RpcSaslProto.NEGOTIATE, auths=[auth]))
        initiate = await self._sasl(RpcSaslProto.INITIATE)
        said = parse_directives(initiate.token)
        twin = DigestMd5Client(
            base64.b64encode(token.identifier).decode(),
            base64.b64encode(token.password).decode(),
            "/default",
            client_nonce=said["cnonce"][0],
        )
        assert parse_directives(twin.respond(CHALLENGE))["response"] == said["response"]
        proof = f"rspauth={twin._expected_rspauth}".encode()
        self._send_sasl(RpcSaslProto(state=RpcSaslProto.SUCCESS, token=proof))
        _, rest = take_message(RpcRequestHeaderProto, await self.frame())
        take_message(IpcConnectionContextProto, rest)

    async def frame(self) -> bytes:
        return await self.reader.readexactly(int.from_bytes(await self.reader.readexactly(4), "big"))

    async def call(self) -> Call:
        header, rest = take_message(RpcRequestHeaderProto, await self.frame())
        request, body = take_message(RequestHeaderProto, rest)
        return Call(header.callId, header.retryCount, request.methodName, body)

    def answer(self, call: Call, message: Message) -> None:
        header = RpcResponseHeaderProto(callId=call.call_id, status=RpcResponseHeaderProto.SUCCESS)
        self.writer.write(encode_frame(header, message))

    def refuse(self, call: Call, java_class: str, text: str, *, fatal: bool = False) -> None:
        status = RpcResponseHeaderProto.FATAL if fatal else RpcResponseHeaderProto.ERROR
        header = RpcResponseHeaderProto(
            callId=call.call_id, status=status, exceptionClassName=java_class, errorMsg=text
        )
        self.writer.write(encode_frame(header))

    async def until_closed(self) -> None:
        await self.reader.read()

    def _send_sasl(self, message: RpcSaslProto) -> None:
        header = RpcResponseHeaderProto(callId=SASL_CALL_ID & 0xFFFFFFFF, status=RpcResponseHeaderProto.SUCCESS)
        self.writer.write(encode_frame(header, message))

    async def _sasl(self, state: RpcSaslProto.SaslState) -> RpcSaslProto:
        header, rest = take_message(RpcRequestHeaderProto, await self.frame())
        assert header.callId == SASL_CALL_ID
        message, _ = take_message(RpcSaslProto, rest)
        assert message.state == state
        return message


def _listening_socket() -> socket.socket:
    """On a free port, even when others take ports at the same time."""
    for port in free_ports(10):
        held = socket.socket()
        try:
            held.bind(("127.0.0.1", port))
        except OSError:
            held.close()
        else:
            return held
    raise OSError("ten free ports were gone before they could be used")


Script = Callable[[Session], Awaitable[None]]


@asynccontextmanager
async def serve(script: Script, servers: int = 1) -> AsyncIterator[list[Address]]:
    """``script`` runs for each connection, which ends with it. What it raises of its own fails the test at the end."""
    failures: list[BaseException] = []
    running: set[asyncio.Task[None]] = set()
    accepted = 0

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal accepted
        accepted += 1
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        try:
            await script(Session(reader, writer, accepted))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client hung up
        except Exception as error:  # noqa: BLE001 - raised below, in the test
            failures.append(error)
        finally:
            running.discard(task)
            writer.close()

    sockets = [_listening_socket() for _ in range(servers)]
    addresses = [Address(*held.getsockname()) for held in sockets]
    listening = [await asyncio.start_server(connected, sock=held) for held in sockets]
    try:
        yield addresses
    finally:
        for server in listening:
            server.close()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    assert not failures, failures
