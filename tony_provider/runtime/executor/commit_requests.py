"""Requests to the application master to commit checkpoints that were copied to the store."""

from __future__ import annotations

import asyncio
import itertools
from typing import Callable

from tony_provider.runtime.protocol import tony_pb2

Send = Callable[[tony_pb2.FromExecutor], None]


class CommitRequests:
    """The requests that wait for their answer, for as long as it takes.

    An application master that comes back is asked again.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._numbers = itertools.count(1)
        self._asked: dict[int, tuple[tony_pb2.FromExecutor, asyncio.Future[tony_pb2.CheckpointAnswer]]] = {}

    @property
    def open(self) -> list[tony_pb2.FromExecutor]:
        """The requests without an answer, for an application master that may not have heard them."""
        return [message for message, _ in self._asked.values()]

    async def ask(self, uploaded: tony_pb2.CheckpointUploaded) -> tony_pb2.CheckpointAnswer:
        """Ask for a commit; returns the answer. Fills in the number of the request."""
        uploaded.request = next(self._numbers)
        message = tony_pb2.FromExecutor(uploaded=uploaded)
        answer: asyncio.Future[tony_pb2.CheckpointAnswer] = asyncio.get_running_loop().create_future()
        self._asked[uploaded.request] = message, answer
        try:
            self._send(message)
            return await answer
        finally:
            del self._asked[uploaded.request]

    def answered(self, answer: tony_pb2.CheckpointAnswer) -> None:
        """Hand an answer to its request. One that nobody waits for any more means nothing."""
        if answer.request in self._asked and not self._asked[answer.request][1].done():
            self._asked[answer.request][1].set_result(answer)
