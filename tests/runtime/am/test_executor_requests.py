"""What is asked of an executor over its stream gets an answer, or a reason why there is none."""

from __future__ import annotations

import asyncio

import attrs
import pytest

from tony_provider.runtime.am.executor_server import Stream
from tony_provider.runtime.am.gateway import MOST_AT_ONCE, ExecutorRequests, ExecutorStreams, NoAnswerError
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.protocol.task_identity import TaskIdentity

SOON = 30.0  # seconds


def wanted(number: int) -> tony_pb2.ToExecutor:
    return tony_pb2.ToExecutor(tail_wanted=tony_pb2.TailWanted(question=number, bytes=10))


def tail(number: int, data: bytes) -> tony_pb2.FromExecutor:
    return tony_pb2.FromExecutor(tail=tony_pb2.Tail(question=number, data=data))


@attrs.define
class Place:
    streams: ExecutorStreams = attrs.field(factory=ExecutorStreams)
    executor_requests: ExecutorRequests = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.executor_requests = ExecutorRequests(self.streams)

    def attach(self, task: str) -> Stream:
        stream = Stream(TaskIdentity("application_1_0001", f"container of {task}", task, 1))
        self.streams.attach(stream)
        return stream

    def ask(self, task: str, seconds: float = SOON) -> asyncio.Future[tony_pb2.FromExecutor]:
        return asyncio.ensure_future(self.executor_requests.ask(task, wanted, seconds))


async def asked(stream: Stream) -> int:
    """The number of the next question that its executor gets."""
    message = await asyncio.wait_for(anext(stream.outgoing()), SOON)
    assert isinstance(message, tony_pb2.ToExecutor)
    return message.tail_wanted.question


async def test_answers_find_their_questions_in_any_order() -> None:
    place = Place()
    stream = place.attach("worker:0")
    first, second = place.ask("worker:0"), place.ask("worker:0")
    numbers = [await asked(stream), await asked(stream)]
    for number in reversed(numbers):
        place.executor_requests.answered(stream, number, tail(number, b"%d" % number))
    assert [(await first).tail.data, (await second).tail.data] == [b"%d" % number for number in numbers]


async def test_an_answer_may_have_several_parts() -> None:
    place = Place()
    stream = place.attach("worker:0")
    with place.executor_requests.asking("worker:0", wanted) as question:
        number = await asked(stream)
        for part in (b"one", b"two"):
            place.executor_requests.answered(stream, number, tail(number, part))
        assert [(await question.answer(SOON)).tail.data for _ in range(2)] == [b"one", b"two"]
    place.executor_requests.answered(stream, number, tail(number, b"too late"))


async def test_nobody_answers_for_another() -> None:
    place = Place()
    stream, other = place.attach("worker:0"), place.attach("worker:1")
    asking = place.ask("worker:0")
    number = await asked(stream)
    place.executor_requests.answered(other, number, tail(number, b"not mine"))
    place.executor_requests.answered(stream, number + 1, tail(number + 1, b"never asked"))
    place.executor_requests.answered(stream, number, tail(number, b"mine"))
    assert (await asking).tail.data == b"mine"


async def test_an_executor_that_goes_away_or_says_nothing_is_no_wait_for_ever() -> None:
    place = Place()
    with pytest.raises(NoAnswerError, match="no executor of worker:0"):
        await place.ask("worker:0")
    stream, other = place.attach("worker:0"), place.attach("worker:1")
    asking, others = place.ask("worker:0"), place.ask("worker:1")
    await asked(stream)
    place.executor_requests.ended(stream)
    with pytest.raises(NoAnswerError, match="disconnected"):
        await asking
    number = await asked(other)
    place.executor_requests.answered(other, number, tail(number, b"still here"))
    assert (await others).tail.data == b"still here"
    with pytest.raises(NoAnswerError, match=r"did not answer within 0\.05 s"):
        await place.ask("worker:1", 0.05)


async def test_one_executor_is_asked_so_much_at_once_and_no_more() -> None:
    place = Place()
    stream = place.attach("worker:0")
    asking = [place.ask("worker:0") for _ in range(MOST_AT_ONCE)]
    for _ in asking:
        number = await asked(stream)
    with pytest.raises(NoAnswerError, match="unanswered requests"):
        await place.ask("worker:0")
    place.executor_requests.answered(stream, number, tail(number, b"room again"))
    await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
    again = place.ask("worker:0")
    assert await asked(stream) == number + 1
    place.executor_requests.ended(stream)
    await asyncio.gather(again, *asking, return_exceptions=True)
