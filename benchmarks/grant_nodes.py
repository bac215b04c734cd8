"""Simulated NodeManagers of a real ResourceManager, for `benchmarks.grants`: they register, send heartbeats, and leave.

`python -m benchmarks.grant_nodes TRACKER JARS NODES MEMORY VCORES` says a line once all are known, and goes on until
its input ends. Nothing listens there: containers can be granted on them, not launched. What they say has the form that
the classes within Hadoop's jars have.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import uuid
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tony_provider.runtime.common.network import Address
from tony_provider.runtime.hadoop.rpc import ConnectionSettings, Method, RpcConnection
from tony_provider.runtime.hadoop.tokens import Token

HEARTBEAT = 1.0  # seconds, Hadoop's default
_DUMP = Path(__file__).resolve().parents[1] / "tests" / "runtime" / "hadoop" / "DumpDescriptors.java"
_CLASS = "org.apache.hadoop.yarn.proto.YarnServerCommonServiceProtos"
_PROTOCOL = "org.apache.hadoop.yarn.server.api.ResourceTrackerPB"
_WITHOUT_SASL = b"hrpc\x09\x00\x00"
_TIMEOUT = 60.0
_AT_ONCE = 32
_NOBODY = Token(b"", b"", "", "")


class _Messages:
    """Those of the protocol between NodeManagers and the ResourceManager, by their names."""

    def __init__(self, jars: Path) -> None:
        command = ["java", "-cp", f"{jars}/*", str(_DUMP), _CLASS]
        described = subprocess.run(command, capture_output=True, check=True).stdout
        self._pool = descriptor_pool.DescriptorPool()
        for file in descriptor_pb2.FileDescriptorSet.FromString(described).file:
            self._pool.Add(file)

    def __getitem__(self, name: str) -> Any:
        return message_factory.GetMessageClass(self._pool.FindMessageTypeByName(f"hadoop.yarn.{name}"))


class _Connection(RpcConnection):
    """To a server that asks for no proof."""

    async def _authenticate(self, token: Token) -> None:
        self._writer.write(_WITHOUT_SASL)


class Nodes:
    """All of them, over one connection: whose a message is stands in it."""

    def __init__(self, messages: _Messages, connection: RpcConnection) -> None:
        self._messages = messages
        self._connection = connection
        self._client_id = uuid.uuid4().bytes
        self._calls = count()

    async def _call(self, method: str, kind: str, request: Any) -> Any:
        return await self._connection.call(
            Method(method, self._messages[f"{kind}ResponseProto"]),
            _PROTOCOL,
            request,
            client_id=self._client_id,
            call_id=next(self._calls),
            retry_count=0,
            timeout=_TIMEOUT,
        )

    async def register(self, numbers: Sequence[int], memory: int, vcores: int) -> None:
        at_once = asyncio.Semaphore(_AT_ONCE)

        async def one(number: int) -> None:
            request = self._messages["RegisterNodeManagerRequestProto"](http_port=1, nm_version="3.4.2")
            request.node_id.MergeFrom(self._id(number))
            request.resource.memory, request.resource.virtual_cores = memory, vcores
            self._healthy(request.nodeStatus, number, 0)
            async with at_once:
                answer = await self._call("registerNodeManager", "RegisterNodeManager", request)
            if answer.nodeAction:
                raise RuntimeError(f"the ResourceManager refuses a node: {answer.diagnostics_message}")

        await asyncio.gather(*map(one, numbers))

    async def beat(self, number: int, of: int) -> None:
        """For ever; those of so many nodes are spread over the interval."""
        await asyncio.sleep(HEARTBEAT * number / of)
        request = self._messages["NodeHeartbeatRequestProto"]()
        response_id = 0
        while True:
            self._healthy(request.node_status, number, response_id)
            answer = await self._call("nodeHeartbeat", "NodeHeartbeat", request)
            response_id = answer.response_id
            for known in ("container_token_master_key", "nm_token_master_key"):
                if answer.HasField(known):
                    getattr(request, f"last_known_{known}").CopyFrom(getattr(answer, known))
            await asyncio.sleep(HEARTBEAT)

    def _id(self, number: int) -> Any:
        """An address of this machine, each another one, so that each counts as a host; nobody looks up its name."""
        return self._messages["NodeIdProto"](host=f"127.1.{number // 200}.{number % 200 + 1}", port=1)

    def _healthy(self, status: Any, number: int, response_id: int) -> None:
        status.node_id.CopyFrom(self._id(number))
        status.response_id = response_id
        status.nodeHealthStatus.is_node_healthy = True


async def main(tracker: Address, jars: Path, nodes: int, memory: int, vcores: int) -> None:
    messages = _Messages(jars)
    settings = ConnectionSettings()
    connection = await _Connection.open(tracker, _PROTOCOL, _NOBODY, uuid.uuid4().bytes, settings)
    found = Nodes(messages, connection)
    await found.register(range(nodes), memory, vcores)
    print("registered", flush=True)
    async with asyncio.TaskGroup() as group:
        beats = [group.create_task(found.beat(number, nodes)) for number in range(nodes)]
        await asyncio.to_thread(sys.stdin.read)
        for each in beats:
            each.cancel()
    await connection.close()


if __name__ == "__main__":
    asyncio.run(main(Address.parse(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:])))
