"""What tasks have printed: from their executors while they are there, else from what was kept on the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import attrs
import pytest

from tests.runtime.am.web.site import Answered, Master, OpenGate, ask, serving
from tests.runtime.am.web.statuses import FULL
from tony_provider.runtime.am.executor_server import Stream
from tony_provider.runtime.am.gateway import ExecutorRequests, ExecutorStreams
from tony_provider.runtime.am.web import web_app
from tony_provider.runtime.am.web.page import JobPage
from tony_provider.runtime.am.web.server import WebServer
from tony_provider.runtime.am.web.task_logs import DEFAULT_SIZE, LARGEST_TAIL, LogTails
from tony_provider.runtime.common import contract
from tony_provider.runtime.jobspec.model import Timeouts
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.protocol.status import JobStatus
from tony_provider.runtime.protocol.task_identity import TaskIdentity
from tony_provider.runtime.storage import LocalStorage


class Job(Master):
    """worker:0 is in its third container, worker:1 and worker:2 in their first."""

    def status(self) -> JobStatus:
        return FULL


@attrs.define
class Place:
    server: WebServer
    store: Path
    executor_requests: ExecutorRequests
    streams: ExecutorStreams

    async def log(self, path: str) -> Answered:
        return await ask(self.server, "GET", f"/logs/{path}")

    def keep(self, task: str, attempt: int, data: bytes) -> None:
        (self.store / "logs").mkdir(exist_ok=True)
        (self.store / "logs" / contract.log_name(task, attempt)).write_bytes(data)

    def attach(self, task: str) -> Stream:
        stream = Stream(TaskIdentity("application_1_0001", f"container of {task}", task, 1))
        self.streams.attach(stream)
        return stream

    async def executor(self, task: str, data: bytes = b"", problem: str = "") -> int:
        """Answers one question; returns how many bytes were asked for."""
        stream = self.attach(task)
        message = await anext(stream.outgoing())
        assert isinstance(message, tony_pb2.ToExecutor)
        wanted = message.tail_wanted
        tail = tony_pb2.Tail(question=wanted.question, data=data, problem=problem)
        self.executor_requests.answered(stream, wanted.question, tony_pb2.FromExecutor(tail=tail))
        return wanted.bytes


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    streams = ExecutorStreams()
    executor_requests = ExecutorRequests(streams)
    tails = LogTails(executor_requests, LocalStorage(), tmp_path.as_uri())
    router = web_app.make_router(Job().as_master, Timeouts(), tails, JobPage(Job().status))
    async with serving(web_app.Routes(OpenGate(), router).answer) as server:
        yield Place(server, tmp_path, executor_requests, streams)
    tails.close()


async def test_an_executor_is_asked_for_as_much_as_is_wanted(place: Place) -> None:
    for query, size in (
        ("", DEFAULT_SIZE),
        ("?bytes=1", 1),
        (f"?bytes={LARGEST_TAIL}", LARGEST_TAIL),
        ("?attempt=3", DEFAULT_SIZE),
    ):
        asked = asyncio.ensure_future(place.executor("worker:0", "größer <b>\n".encode() + b"\xff"))
        answered = await place.log(f"worker-0{query}")
        assert await asked == size
        assert (answered.status, answered.headers["content-type"]) == (200, "text/plain; charset=utf-8")
        assert answered.headers["x-content-type-options"] == "nosniff"
        assert answered.body == "größer <b>\n".encode() + b"\xff"


async def test_a_task_that_has_printed_nothing_says_so(place: Place) -> None:
    asked = asyncio.ensure_future(place.executor("worker:1"))
    assert (await place.log("worker-1")).body == b"[tony] worker:1 has printed no output so far\n"
    await asked


async def test_who_is_gone_has_left_its_log_on_the_store(place: Place) -> None:
    place.keep("worker:0", 3, b"".join(b"line %d\n" % number for number in range(1000)))
    assert (await place.log("worker-0")).body.endswith(b"line 998\nline 999\n")
    assert (await place.log("worker-0?bytes=20")).body == b"line 998\nline 999\n"
    assert (await place.log("worker:0?bytes=9")).body == b"line 999\n"


async def test_an_executor_that_goes_away_in_the_midst_has_left_its_log_too(place: Place) -> None:
    place.keep("worker:1", 1, b"last words\n")
    stream = place.attach("worker:1")
    asking = asyncio.ensure_future(place.log("worker-1"))
    await anext(stream.outgoing())
    place.executor_requests.ended(stream)
    assert (await asking).body == b"last words\n"


async def test_former_containers_have_logs_of_their_own(place: Place) -> None:
    place.attach("worker:0")  # is not asked
    for attempt in (1, 2):
        place.keep("worker:0", attempt, b"of container %d\n" % attempt)
    for attempt in (1, 2):
        assert (await place.log(f"worker-0?attempt={attempt}")).body == b"of container %d\n" % attempt


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("worker-9", 404, "there is no such task; the tasks of the job are worker:0, worker:1, worker:2"),
        ("", 404, "no such task"),
        ("../status", 404, "no such task"),
        ("worker-0/../../status", 404, "no such task"),
        ("worker-1", 404, "no executor of worker:1 is connected, and no log of attempt 1 was stored"),
        ("worker-0?attempt=2", 404, "no log of attempt 2 of worker:0 was stored"),
        ("worker-0?attempt=4", 400, "attempt: must be a number from 1 to 3"),
        ("worker-0?attempt=0", 400, "attempt: must be a number from 1 to 3"),
        ("worker-0?bytes=0", 400, "bytes: must be a number from 1 to 1048576"),
        ("worker-0?bytes=1048577", 400, "bytes: must be a number"),
        ("worker-0?bytes=-1", 400, "bytes: must be a number"),
        ("worker-0?bytes=all", 400, "bytes: must be a number"),
        ("worker-0?bytes=%D9%A3", 400, "bytes: must be a number"),
        (f"worker-0?bytes={'1' * 5000}", 400, "bytes: must be a number"),
    ],
)
async def test_what_cannot_be_shown_is_said(place: Place, path: str, status: int, words: str) -> None:
    answered = await place.log(path)
    assert answered.status == status
    assert words in answered.json()["error"]


async def test_a_disk_that_cannot_be_read_is_said(place: Place) -> None:
    asked = asyncio.ensure_future(place.executor("worker:1", problem="Input/output error"))
    answered = await place.log("worker-1")
    await asked
    assert answered.json()["error"] == "the log of worker:1 cannot be read on its node: Input/output error"


async def test_a_store_that_refuses_is_said(place: Place) -> None:
    (place.store / "logs").mkdir()
    (place.store / "logs" / "worker-1.log").mkdir()
    answered = await place.log("worker-1")
    assert answered.status == 404
    assert "worker-1.log" in answered.json()["error"]


async def test_a_browser_gets_a_page_that_follows_what_grows(place: Place) -> None:
    place.keep("worker:0", 1, b"\n<b>of the first</b>\xff\n")
    place.keep("worker:0", 3, b"of the third\n")
    place.keep("worker:1", 1, b"of one that has ended\n")
    browser = {"Accept": "text/html,*/*;q=0.8"}
    for path, every in (("worker-0", "3"), ("worker-0?attempt=1", "0"), ("worker-1", "0")):
        page = (await ask(place.server, "GET", f"/logs/{path}", headers=browser)).body.decode()
        assert f'data-every="{every}"' in page
    page = (await ask(place.server, "GET", "/logs/worker-0?attempt=1&bytes=262144", headers=browser)).body.decode()
    assert "<pre>\n\n&lt;b&gt;of the first&lt;/b&gt;\ufffd\n</pre>" in page
    assert '<a href="../">Job page</a>' in page
    assert '<a href="worker-0?bytes=262144&amp;attempt=1" aria-current="page">Last 256 KiB</a>' in page
    text = await ask(place.server, "GET", "/logs/worker-0?attempt=1&as=text", headers=browser)
    assert text.headers["content-type"] == "text/plain; charset=utf-8"


async def test_what_a_browser_shows_holds_nothing_unseen_and_others_get_it_as_it_was_printed(place: Place) -> None:
    printed = "10 %\r20 %\r\n\x1b[31mred\x1b[0m \u202edesrever\x07\n".encode()
    place.keep("worker:1", 1, printed)
    clean = "10 %\n20 %\nred desrever\n"
    page = await ask(place.server, "GET", "/logs/worker-1", headers={"Accept": "text/html,*/*;q=0.8"})
    assert clean in page.body.decode()
    script = await ask(place.server, "GET", "/logs/worker-1", headers={"Accept": "text/plain"})
    assert script.body.decode() == clean
    assert (await place.log("worker-1")).body == printed
