"""Requests of the master to an executor over its stream, for the end of a log or a page of a side-car."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Callable, Optional

import attrs

from tony_provider.runtime.am.executor_streams import ExecutorStreams
from tony_provider.runtime.am.service import Stream
from tony_provider.runtime.deadline import within
from tony_provider.runtime.protocol import tony_pb2

MOST_AT_ONCE = 64  # open questions to one executor

MakeQuestion = Callable[[int], tony_pb2.ToExecutor]
"""The message, given the number that its answer has to name."""


class NoAnswerError(Exception):
    """An executor did not answer: it is not there, went away, or took too long; the message says which."""


@attrs.define(eq=False)
class ExecutorRequest:
    """One request to one executor; its answer may come in several messages."""

    _stream: Stream
    _answers: asyncio.Queue[Optional[tony_pb2.FromExecutor]] = attrs.field(factory=asyncio.Queue)

    async def answer(self, seconds: float) -> tony_pb2.FromExecutor:
        """The next message of the answer. Raises NoAnswerError when none comes within that time."""
        task = self._stream.identity.task
        try:
            message = await within(self._answers.get(), seconds)
        except asyncio.TimeoutError as error:
            raise NoAnswerError(f"the executor of {task} did not answer within {seconds:g} s") from error
        if message is None:
            raise NoAnswerError(f"the executor of {task} went away before it answered")
        return message

    def is_to(self, stream: Stream) -> bool:
        return self._stream is stream

    def add(self, message: Optional[tony_pb2.FromExecutor]) -> None:
        """Add a part of the answer; None: no more will come."""
        self._answers.put_nowait(message)


class ExecutorRequests:
    """The open requests to executors, by number. To be used on the event loop only."""

    def __init__(self, streams: ExecutorStreams) -> None:
        self._streams = streams
        self._numbers = itertools.count(1)
        self._open: dict[int, ExecutorRequest] = {}
        self._count: Counter[str] = Counter()

    async def ask(self, task: str, make: MakeQuestion, seconds: float) -> tony_pb2.FromExecutor:
        """Ask an executor; returns its answer of one message. Raises NoAnswerError."""
        with self.asking(task, make) as question:
            return await question.answer(seconds)

    @contextmanager
    def asking(self, task: str, make: MakeQuestion) -> Iterator[ExecutorRequest]:
        """Context manager around a request: answers are taken until its end; later parts are dropped.

        Raises NoAnswerError: the task has no executor now, or too many questions are open.
        """
        stream = self._streams.find(task)
        if stream is None:
            raise NoAnswerError(f"{task} has no executor now")
        if self._count[task] >= MOST_AT_ONCE:
            raise NoAnswerError(f"{MOST_AT_ONCE} questions to the executor of {task} are open already")
        number, question = next(self._numbers), ExecutorRequest(stream)
        self._open[number] = question
        self._count[task] += 1
        try:
            stream.send(make(number))
            yield question
        finally:
            del self._open[number]
            self._count[task] -= 1

    def answered(self, stream: Stream, number: int, message: tony_pb2.FromExecutor) -> None:
        """Hand an answer to its request, which it names. Only the executor that was asked can answer it."""
        question = self._open.get(number)
        if question and question.is_to(stream):
            question.add(message)

    def ended(self, stream: Stream) -> None:
        """End the requests to an executor whose stream is down: nothing more comes from it."""
        for question in self._open.values():
            if question.is_to(stream):
                question.add(None)
