"""What programs that follow a task's output are answered: the bytes that come after those they know."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.runtime.am.web.site import OpenGate, ask, serving
from tests.runtime.am.web.test_task_logs import Job, Place
from tony_provider.runtime.am.gateway import ExecutorRequests, ExecutorStreams
from tony_provider.runtime.am.web import web_app
from tony_provider.runtime.am.web.page import JobPage
from tony_provider.runtime.am.web.task_logs import LogTails
from tony_provider.runtime.common.codec import from_plain
from tony_provider.runtime.jobspec.model import Timeouts
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.protocol.http_messages import OUTPUT_END, OutputPiece, kept_form
from tony_provider.runtime.storage import LocalStorage

SECRET = "pa55word-of-the-store"
KEY = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\n-----END KEY-----"


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    streams = ExecutorStreams()
    executor_requests = ExecutorRequests(streams)
    tails = LogTails(executor_requests, LocalStorage(), tmp_path.as_uri(), [SECRET, KEY, "abc", ""])
    router = web_app.make_router(Job().as_master, Timeouts(), tails, JobPage(Job().status))
    async with serving(web_app.Routes(OpenGate(), router).answer) as server:
        yield Place(server, tmp_path, executor_requests, streams)
    tails.close()


async def piece(place: Place, path: str) -> OutputPiece:
    answered = await ask(place.server, "GET", f"/output/{path}")
    assert (answered.status, answered.headers["content-type"]) == (200, "application/json")
    return from_plain(json.loads(answered.body), OutputPiece)


async def executor(place: Place, task: str, data: bytes, end: int) -> tuple[int, int]:
    """Answers one question; returns what was asked for: after how many bytes, and how many."""
    stream = place.attach(task)
    message = await anext(stream.outgoing())
    assert isinstance(message, tony_pb2.ToExecutor)
    wanted = message.tail_wanted
    tail = tony_pb2.Tail(question=wanted.question, data=data, end=end)
    place.executor_requests.answered(stream, wanted.question, tony_pb2.FromExecutor(tail=tail))
    return wanted.after, wanted.bytes


async def test_the_executor_is_asked_for_what_is_new(place: Place) -> None:
    asked = asyncio.ensure_future(executor(place, "worker:0", b"\xffnew\n", 1005))
    assert await piece(place, "worker-0?after=1000&bytes=2000") == OutputPiece(3, 3, 1000, 1005, "\udcffnew\n")
    assert await asked == (1000, 2000)


async def test_where_the_end_is_can_be_asked(place: Place) -> None:
    asked = asyncio.ensure_future(executor(place, "worker:0", b"", 777))
    assert await piece(place, f"worker-0?after={OUTPUT_END}") == OutputPiece(3, 3, 777, 777)
    assert (await asked)[0] == OUTPUT_END


async def test_secrets_are_masked_and_bytes_are_counted_as_they_were_printed(place: Place) -> None:
    printed = f"key {SECRET} and abc\n{KEY}\nMIIEvQIBADANBgkq\n".encode()
    asked = asyncio.ensure_future(executor(place, "worker:0", printed, len(printed)))
    found = await piece(place, "worker-0")
    assert found.text == "key *** and abc\n***\n***\n"
    assert (found.start, found.end) == (0, len(printed))
    await asked
    place.keep("worker:0", 1, printed)
    assert (await place.log("worker-0?attempt=1")).body.decode() == found.text


@pytest.mark.parametrize("cut", [1, 5, len(SECRET) - 1])
async def test_a_secret_that_is_printed_in_two_pieces_comes_whole(place: Place, cut: int) -> None:
    printed = f"key {SECRET} is it\n".encode()
    shown = 4 + cut
    asked = asyncio.ensure_future(executor(place, "worker:0", printed[:shown], shown))
    found = await piece(place, "worker-0")
    assert (found.text, found.end) == ("key ", 4)
    await asked
    asked = asyncio.ensure_future(executor(place, "worker:0", printed[4:], len(printed)))
    assert (await piece(place, "worker-0?after=4")).text == "*** is it\n"
    assert (await asked)[0] == 4


async def test_of_a_former_container_the_rest_of_its_log_is_given(place: Place) -> None:
    place.keep("worker:0", 1, kept_form(b"line 91\nline 92\n", 1000, 90))
    assert await piece(place, "worker-0?attempt=1&after=1008") == OutputPiece(1, 3, 1008, 1016, "line 92\n")
    assert await piece(place, "worker-0?attempt=1&after=10") == OutputPiece(1, 3, 1000, 1016, "line 91\nline 92\n")
    assert await piece(place, "worker-0?attempt=1&bytes=10") == OutputPiece(1, 3, 1008, 1016, "line 92\n")


async def test_what_is_not_to_be_had_is_no_error(place: Place) -> None:
    found = await piece(place, "worker-0?attempt=2&after=5")
    assert found == OutputPiece(2, 3, 5, 5, problem="no log of attempt 2 of worker:0 was stored")
    assert "is connected, and no log" in (await piece(place, "worker-1")).problem


@pytest.mark.parametrize(
    ("path", "status"),
    [("worker-9", 404), ("worker-0?after=-1", 400), ("worker-0?after=x", 400), ("worker-0?attempt=4", 400)],
)
async def test_what_cannot_be_is_refused(place: Place, path: str, status: int) -> None:
    answered = await ask(place.server, "GET", f"/output/{path}")
    assert answered.status == status
