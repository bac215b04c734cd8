"""Checkpoints that were copied to the store, and what the application master says to their commits."""

from __future__ import annotations

import asyncio
import itertools
from typing import Callable

from tony_provider.runtime.protocol import tony_pb2

Send = Callable[[tony_pb2.FromExecutor], None]


class CommitRequests:
    """``ask`` waits for as long as it takes: an application master that comes back is asked again."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._numbers = itertools.count(1)
        self._asked: dict[int, tuple[tony_pb2.FromExecutor, asyncio.Future[tony_pb2.CheckpointAnswer]]] = {}

    @property
    def open(self) -> list[tony_pb2.FromExecutor]:
        """What has no answer yet, for an application master that may not have heard it."""
        return [message for message, _ in self._asked.values()]

    async def ask(self, uploaded: tony_pb2.CheckpointUploaded) -> tony_pb2.CheckpointAnswer:
        """Fills in the number of the request."""
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
        """Answers that nobody waits for any more mean nothing."""
        if answer.request in self._asked and not self._asked[answer.request][1].done():
            self._asked[answer.request][1].set_result(answer)
