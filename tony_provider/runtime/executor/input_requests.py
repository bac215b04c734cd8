"""Questions to the application master about inputs: for a part, for a shard, and what became of one."""

from __future__ import annotations

import asyncio
import itertools
from typing import Callable, Union

from tony_provider.runtime.protocol import tony_pb2

Send = Callable[[tony_pb2.FromExecutor], None]
Answer = Union[tony_pb2.InputPart, tony_pb2.ShardAnswer]


class InputRequests:
    """The questions that wait for their answer, for as long as it takes.

    An application master that comes back is asked again, under the same number.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._numbers = itertools.count(1)
        self._asked: dict[int, tuple[tony_pb2.FromExecutor, asyncio.Future[tony_pb2.ToExecutor]]] = {}

    @property
    def open(self) -> list[tony_pb2.FromExecutor]:
        """The questions without an answer, for an application master that may not have heard them."""
        return [message for message, _ in self._asked.values()]

    async def part(self, wanted: tony_pb2.InputPartWanted) -> tony_pb2.InputPart:
        """Ask for a piece of a part. Fills in the number of the request."""
        wanted.request = next(self._numbers)
        return (await self._ask(wanted.request, tony_pb2.FromExecutor(input_part_wanted=wanted))).input_part

    async def shard(self, wanted: tony_pb2.ShardRequest) -> tony_pb2.ShardAnswer:
        """Say what became of a shard, or ask for another. Fills in the number of the request."""
        wanted.request = next(self._numbers)
        return (await self._ask(wanted.request, tony_pb2.FromExecutor(shard_request=wanted))).shard_answer

    def answered(self, message: tony_pb2.ToExecutor) -> None:
        """Hand an answer to its question. One that nobody waits for any more means nothing."""
        answer: Answer = message.input_part if message.HasField("input_part") else message.shard_answer
        if answer.request in self._asked and not self._asked[answer.request][1].done():
            self._asked[answer.request][1].set_result(message)

    async def _ask(self, number: int, message: tony_pb2.FromExecutor) -> tony_pb2.ToExecutor:
        answer: asyncio.Future[tony_pb2.ToExecutor] = asyncio.get_running_loop().create_future()
        self._asked[number] = message, answer
        try:
            self._send(message)
            return await answer
        finally:
            del self._asked[number]
