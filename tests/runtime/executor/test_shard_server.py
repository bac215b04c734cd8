"""The socket for shards, with an application master that a test plays."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from tests.runtime.executor.containers import until
from tony_provider.runtime.executor.master_link import MasterRequests
from tony_provider.runtime.executor.task_inputs import NodeShards, ShardServer, shard_problem
from tony_provider.runtime.executor.task_outputs import ShardCopies
from tony_provider.runtime.inputs.shards import InputShard
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.storage.stores import JobStores

DEADLINE = 60
MANY = 40  # more than a thread pool of asyncio has


class Desk:
    """Gives each who asks a shard, and does not care for the rest."""

    def __init__(self) -> None:
        self.requests = MasterRequests(self._asked)
        self._next = 0

    def _asked(self, message: tony_pb2.FromExecutor) -> None:
        answer = tony_pb2.ShardAnswer(request=message.shard_request.request)
        if message.shard_request.take:
            answer.shard = self._next
            answer.line = InputShard("file:///data", 1, 1).line().decode()
            self._next += 1
        asyncio.get_running_loop().call_soon(self.requests.answered, answer)


@pytest.fixture
def hung() -> Iterator[threading.Event]:
    over = threading.Event()
    yield over
    over.set()


async def copy(said: Sequence[str]) -> ShardCopies:
    return ShardCopies(list(said))


async def test_a_store_that_hangs_leaves_others_their_threads(tmp_path: Path, hung: threading.Event) -> None:
    looked = threading.Event()

    class Shards:
        def take(self, name: str, number: int, line: bytes) -> str:
            looked.set()
            hung.wait()
            return ""

        def settle(self, name: str, number: int) -> None:
            """Nothing is kept."""

    path = tmp_path / "socket"
    server = ShardServer(path, Desk().requests, 1, cast(NodeShards, Shards()), copy)
    await server.open()
    connections = [await asyncio.open_unix_connection(path) for _ in range(MANY)]
    for _, writer in connections:
        writer.write(b'{"input": "data", "take": true}\n')
    async with asyncio.timeout(DEADLINE):
        await until(lambda: sum(len(each.shards) for each in server.held) == MANY, "all have a shard")
        assert await asyncio.to_thread(looked.wait, DEADLINE)
        hung.set()
        for reader, writer in connections:
            assert json.loads(await reader.readline())["uri"] == "file:///data"
            writer.close()
    await server.close()


def test_a_driver_that_fails_leaves_the_shard_to_the_program() -> None:
    class Stores:
        def of(self, uri: str) -> Any:
            raise RuntimeError("no credentials on this node")

    line = InputShard("s3://bucket/a", 1, 1).line()
    assert shard_problem(cast(JobStores, Stores()), line) == ""
