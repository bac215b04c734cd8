"""``tensorboard/…`` of the master's page, with an executor that a test answers for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import attrs
import pytest

from tests.runtime.am.web.site import Answered, Master, OpenGate, ask, serving, tails
from tony_provider.runtime.am.executor_server import Stream
from tony_provider.runtime.am.gateway import ExecutorRequests, ExecutorStreams
from tony_provider.runtime.am.web import web_app
from tony_provider.runtime.am.web.page import JobPage
from tony_provider.runtime.am.web.server import WebServer
from tony_provider.runtime.am.web.tensorboard_proxy import TensorBoard, TensorBoardPages
from tony_provider.runtime.am.web.web_app import Routes
from tony_provider.runtime.jobspec.container_content import TENSORBOARD_TASK
from tony_provider.runtime.jobspec.model import Timeouts
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.protocol.status import JobState, JobStatus, TaskState, TaskStatus
from tony_provider.runtime.protocol.task_identity import TaskIdentity

Reply = Callable[[tony_pb2.PageWanted], list[tony_pb2.Page]]


@attrs.define
class Watched(Master):
    task: TaskState = TaskState.RUNNING

    def status(self) -> JobStatus:
        return JobStatus("application_1_0001", "d", JobState.RUNNING, tasks=[TaskStatus("tensorboard", 0, self.task)])


@asynccontextmanager
async def shown(reply: Reply | None, state: TaskState = TaskState.RUNNING) -> AsyncIterator[WebServer]:
    """A site whose TensorBoard answers so; without ``reply`` nobody is there."""
    streams, master = ExecutorStreams(), Watched(task=state)
    executor_requests = ExecutorRequests(streams)
    stream = Stream(TaskIdentity("application_1_0001", "container", TENSORBOARD_TASK, 1))

    async def answer() -> None:
        async for message in stream.outgoing():
            assert reply is not None
            assert isinstance(message, tony_pb2.ToExecutor)
            for page in reply(message.page_wanted):
                page.question = message.page_wanted.question
                executor_requests.answered(stream, page.question, tony_pb2.FromExecutor(page=page))

    answering = asyncio.ensure_future(answer())
    if reply is not None:
        streams.attach(stream)
    tensorboard = TensorBoard(TensorBoardPages(executor_requests), master.status)
    router = web_app.make_router(
        master.as_master, Timeouts(), tails(), JobPage(master.status, tensorboard.places), tensorboard.routes
    )
    try:
        async with serving(Routes(OpenGate(), router).answer) as server:
            yield server
    finally:
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)


def page(body: bytes, kind: str = "application/json", status: int = 200, **headers: str) -> tony_pb2.Page:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return tony_pb2.Page(status=status, headers={"content-type": kind, **named}, data=body, last=True)


def echo(wanted: tony_pb2.PageWanted) -> list[tony_pb2.Page]:
    said = [wanted.method, wanted.target, dict(wanted.headers), wanted.body.decode()]
    return [page(json.dumps(said).encode())]


async def get(server: WebServer, path: str, **headers: str) -> Answered:
    return await ask(server, "GET", path, headers=headers)


async def test_a_get_goes_through() -> None:
    async with shown(echo) as server:
        headers = {"Accept": "a/b", "Accept-Encoding": "gzip", "Cookie": "proxy-user=alice", "X-Other": "x"}
        answered = await get(server, "/tensorboard/data/x%20y%3F?tag=%C3%A4&b=c+d%26", **headers)
    passed = {"accept": "a/b", "accept-encoding": "gzip"}
    assert answered.json() == ["GET", "/data/x%20y%3F?tag=%C3%A4&b=c+d%26", passed, ""]


async def test_a_put_is_the_post_that_was_meant() -> None:
    body = {"type": "application/x-www-form-urlencoded", "body": "a=1&b=\u00e4\n"}
    async with shown(echo) as server:
        answered = await ask(server, "PUT", "/tensorboard/data/plugin/scalars", body)
        empty = await ask(server, "PUT", "/tensorboard/data", b"")
        posted = await ask(server, "POST", "/tensorboard/data", b"x")
    meant = {"content-type": "application/x-www-form-urlencoded"}
    assert answered.json() == ["POST", "/data/plugin/scalars", meant, "a=1&b=\u00e4\n"]
    assert (empty.status, posted.status) == (400, 405)


@pytest.mark.parametrize(
    "path",
    [
        "data/plugin/profile/capture_profile?service_addr=10.0.0.1:22&duration=1",
        "data/plugin/profile/capture_profile/",
        "/data//plugin/profile/capture_profile",
        "experiment/x/data/plugin/profile/capture_profile",
        "data/plugin/%70rofile/capture%5Fprofile",
        "data/plugin/scalars/data/plugin/profile/capture_profile",
        "experiment/data/plugin/scalars/data/plugin/profile/capture_profile",
        "data/plugin/profile/%0Acapture_profile",
        "data/plugin/profile/generate_cache?session_path=/home/alice",
        "data/plugin/profile/hosts?run=x&session_path=gs://elsewhere/x",
        "data/plugin/profile/runs?run%5Fpath=/etc",
        "data/plugin/profile/data?worker_list=10.0.0.1",
        "data/plugin/whatif/infer?inference_address=10.0.0.1:8500",
        "data/plugin/unheard-of/anything",
    ],
)
@pytest.mark.parametrize("method", ["GET", "PUT"])
async def test_no_plugin_is_a_way_to_other_servers(path: str, method: str) -> None:
    body = {"type": "text/plain", "body": ""} if method == "PUT" else b""
    async with shown(echo) as server:
        answered = await ask(server, method, f"/tensorboard/{path}", body)
    assert answered.status == 403


@pytest.mark.parametrize(
    "path",
    [
        "data/plugins_listing",
        "data/plugin_entry.html?name=profile",
        "data/plugin/scalars/scalars?run=x&tag=data/plugin/profile/capture_profile",
        "data/plugin/timeseries/timeSeries",
        "experiment/x/data/plugin/hparams/session_groups",
        "data/plugin/profile/runs",
        "data/plugin/profile/data?run=a&tag=trace_viewer&host=b",
        "data/plugin/profile/index.html",
        "data/plugin/profile/trace_viewer_v2.wasm",
        "data/plugin/pytorch_profiler/runs",
    ],
)
async def test_plugins_that_read_the_jobs_own_files_are_shown(path: str) -> None:
    async with shown(echo) as server:
        assert (await get(server, f"/tensorboard/{path}")).status == 200


@pytest.mark.parametrize(
    ("path", "root"),
    [("/tensorboard/", ""), ("/tensorboard/data/entry.html", "../"), ("/tensorboard/a/b/", "../../")],
)
async def test_pages_begin_with_our_script_and_have_our_fonts(path: str, root: str) -> None:
    html = b"<!doctype html><meta name=x><style>url(/font-roboto/x)</style>"
    found = page(html, "text/html; charset=utf-8", content_security_policy="p", cache_control="c")
    async with shown(lambda _: [found]) as server:
        answered = await get(server, path)
        script = await get(server, "/tensorboard/tony-put.js")
    written = answered.body.decode()
    assert written.startswith(f'<!doctype html><script src="{root}tony-put.js"></script><meta name=x>')
    assert f"url({root}font-roboto/x)" in written
    assert answered.headers["content-security-policy"] == "p, frame-ancestors 'self'"
    assert answered.headers["cache-control"] == "c"
    assert script.headers["content-type"].startswith("text/javascript")


async def test_what_is_packed_stays_packed() -> None:
    async with shown(lambda _: [page(b"\x1f\x8b", "text/html", content_encoding="gzip")]) as server:
        answered = await get(server, "/tensorboard/index.js")
    assert answered.body == b"\x1f\x8b"
    assert answered.headers["content-encoding"] == "gzip"


async def test_pieces_are_put_together() -> None:
    pieces = [tony_pb2.Page(status=200, data=b"a"), tony_pb2.Page(data=b"b"), tony_pb2.Page(data=b"c", last=True)]
    async with shown(lambda _: pieces) as server:
        assert (await get(server, "/tensorboard/x")).body == b"abc"


async def test_too_much_is_refused() -> None:
    pieces = [tony_pb2.Page(status=200, data=b"x" * (9 << 20)), tony_pb2.Page(data=b"x" * (9 << 20))]
    async with shown(lambda _: pieces) as server:
        assert (await get(server, "/tensorboard/x")).status == 502


async def test_errors_are_passed_on_and_redirections_lead_nowhere() -> None:
    failed = tony_pb2.Page(status=504, problem="it sleeps", last=True)
    for reply, status in ((failed, 504), (page(b"no", status=404), 404), (page(b"", status=302), 404)):
        async with shown(lambda _, reply=reply: [reply]) as server:  # type: ignore[misc]
            assert (await get(server, "/tensorboard/x")).status == status


@pytest.mark.parametrize("reply", [None, lambda _: [tony_pb2.Page(status=503, problem="not yet", last=True)]])
async def test_until_it_is_up_its_page_waits_for_it(reply: Reply | None) -> None:
    async with shown(reply) as server:
        first = await get(server, "/tensorboard/")
        data = await get(server, "/tensorboard/data/runs")
    assert first.status == 200
    assert b"TensorBoard is starting" in first.body
    assert b'http-equiv="refresh"' in first.body
    assert data.status == 503


async def test_one_that_has_ended_is_not_waited_for() -> None:
    async with shown(None, TaskState.FAILED) as server:
        answered = await get(server, "/tensorboard/")
    assert b"TensorBoard has ended" in answered.body
    assert b"refresh" not in answered.body


async def test_without_its_slash_the_browser_is_sent_to_it() -> None:
    async with shown(echo) as server:
        answered = await get(server, "/tensorboard")
        main = await get(server, "/", Accept="text/html")
    assert answered.status == 200
    assert b'content="0; url=tensorboard/"' in answered.body
    assert b'href="tensorboard/"' in main.body


async def test_a_job_without_it_has_no_such_page() -> None:
    router = web_app.make_router(Master().as_master, Timeouts(), tails(), JobPage(Master().status))
    async with serving(Routes(OpenGate(), router).answer) as server:
        assert (await get(server, "/tensorboard/")).status == 404
