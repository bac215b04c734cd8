"""The job's page, as a browser gets it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from collections.abc import AsyncIterator
from html.parser import HTMLParser

import attrs
import pytest
from hypothesis import given, settings

from tests.axe import violations
from tests.browser import browser, prefer
from tests.runtime.am.web.site import HOST, Master, OpenGate, ask, router, serving, tails
from tests.runtime.am.web.statuses import FULL, NOW, any_status, gang
from tony_provider.runtime.am.web import web_app
from tony_provider.runtime.am.web.job_view import MOST_TASKS, PageLink
from tony_provider.runtime.am.web.page import Html, JobPage, element, join
from tony_provider.runtime.am.web.server import Head, HttpRequest, WebServer
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.jobspec.model import Timeouts
from tony_provider.runtime.protocol.metrics import MetricValues
from tony_provider.runtime.protocol.status import (
    ExportedModel,
    ExportRequest,
    Failure,
    FailureKind,
    InputStatus,
    JobState,
    JobStatus,
    ProcessStatus,
    TaskProgress,
    TaskState,
)

_VOID = {"meta", "link", "br", "hr"}
_ADDRESSES = ("href", "src", "action", "content")


class Seen(HTMLParser):
    """What a parser makes of a page: which elements, and which texts in them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[tuple[str, str]] = []  # text and address
        self.rows: list[list[str]] = []  # of the table
        self.texts: list[str] = []
        self.attributes: set[str] = set()
        self._open: list[str] = []
        self._href = ""
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attributes}
        if tag not in _VOID:
            self._open.append(tag)
        if tag == "a":
            self._href = dict(attributes)["href"] or ""
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if "a" in self._open:
            self.links.append((data, self._href))
        if "td" in self._open or "th" in self._open:
            self.rows[-1][-1] += data

    def row(self, task: str) -> dict[str, str]:
        [found] = [row for row in self.rows if row[0] == task]
        return dict(zip(self.rows[0], found, strict=True))


async def page_of(status: JobStatus, query: str = "", *places: PageLink, **use: MetricValues) -> str:
    """``use``: by tasks, such as ``worker_0``."""
    page = JobPage(lambda: status, lambda: places, use=lambda: {name.replace("_", ":"): use[name] for name in use})
    return (await page.whole(HttpRequest(Head("GET", "/", query), "alice"))).body.decode()


@attrs.define
class Showing(Master):
    shown: JobStatus = FULL

    def status(self) -> JobStatus:
        return self.shown


@pytest.fixture
async def server() -> AsyncIterator[WebServer]:
    async with serving(web_app.Routes(OpenGate(), router(Showing())).answer) as running:
        yield running


@pytest.mark.long
@pytest.mark.parametrize("path", ["", "logs/worker-0"])
async def test_axe_finds_nothing_in_both_themes(server: WebServer, path: str) -> None:
    def found() -> list[str]:
        with browser() as driver:
            lines = []
            for scheme in ("light", "dark"):
                prefer(driver, scheme)
                driver.get(f"http://{HOST}:{server.address.port}/{path}")
                lines += violations(driver, "html")
            return lines

    assert await asyncio.to_thread(found) == []


@pytest.mark.parametrize(("rate", "left"), [(7.5, "1 min 40 s"), (0.51, "25 min"), (0.1, "2 h 5 min")])
async def test_a_long_forecast_is_not_told_to_the_second(rate: float, left: str) -> None:
    leader = attrs.evolve(FULL.tasks[0], progress=TaskProgress(250, 1000, rate))
    assert f"about {left} left" in await page_of(attrs.evolve(FULL, tasks=[leader]))


async def test_everything_that_is_known_of_a_job_is_on_its_page() -> None:
    seen = Seen(await page_of(FULL, "", PageLink("TensorBoard", "tensorboard/")))
    text = " ".join(seen.texts)
    for part in ("digits", "RUNNING", "1 of 3 tasks running", "application_1_0001", "25 %", "step 250 of 1,000"):
        assert part in text
    for part in ("2.5 steps/s", "about 5 min left", "2 h 5 min", "attempt 2", "0.1235", "nan", "step 200", "step 100"):
        assert part in text
    assert "worker:1 ended with exit code 3\nlast words" in text
    assert "a side-car failed" in text
    assert seen.row("worker:0") == {
        "Task": "worker:0",
        "Output": "log #2 #1",
        "State": "RUNNINGuploading",
        "Step": "250 of 1,000",
        "Steps/s": "2.5",
        "Memory": "3 GiB",
        "CPU": "151 %",
        "Heartbeat": "2 s ago",
        "Node": "node-1",
        "Containers": "3",
        "Starts": "5",
        "Exit": "",
    }
    assert (seen.row("worker:1")["Exit"], seen.row("worker:1")["Heartbeat"]) == ("code 3", "")
    assert (seen.row("worker:2")["Exit"], seen.row("worker:2")["Heartbeat"]) == ("SIGKILL", "1 min 30 s ago")
    assert seen.links == [
        ("TensorBoard", "tensorboard/"),
        ("Status as JSON", "status"),
        ("log", "logs/worker-0"),
        ("#2", "logs/worker-0?attempt=2"),
        ("#1", "logs/worker-0?attempt=1"),
        ("log", "logs/worker-1"),
        ("log", "logs/worker-2"),
    ]


async def test_what_is_measured_of_a_container_has_a_column_and_nothing_else() -> None:
    disks = {"read_bytes": 12.5 * (1 << 20), "written_bytes": 0.0}
    gpu = {"gpu_percent": 71.4, "gpu_bytes": 12 << 30, "read_bytes": 100.0}
    seen = Seen(await page_of(FULL, worker_0=gpu, worker_1=disks))
    after_cpu = seen.rows[0][seen.rows[0].index("CPU") + 1 : seen.rows[0].index("Heartbeat")]
    assert after_cpu == ["GPU", "GPU mem.", "Read", "Written"]
    assert seen.rows[0][-1] == "Exit"
    found = {task: [seen.row(task)[title] for title in after_cpu] for task in ("worker:0", "worker:1", "worker:2")}
    assert found["worker:0"] == ["71 %", "12 GiB", "100 B/s", ""]
    assert found["worker:1"] == ["", "", "12.5 MiB/s", "0 B/s"]
    assert found["worker:2"] == [""] * 4
    further = attrs.evolve(FULL.tasks[0], further=[ProcessStatus(1, 3, 1 << 30, 75.0)])
    seen = Seen(await page_of(attrs.evolve(FULL, tasks=[further]), worker_0=gpu))
    assert (seen.row("worker:0")["GPU"], seen.row("rank 3 (local rank 1)")["GPU"]) == ("71 %", "")
    assert "Exit" not in seen.rows[0]  # nobody has ended


async def test_a_job_that_has_nothing_to_tell_yet_has_a_page() -> None:
    seen = Seen(await page_of(JobStatus("application_1_0001", "digits", JobState.WAITING)))
    assert "WAITING" in seen.texts
    assert "progress" not in seen.tags


async def test_each_process_of_a_task_has_a_line_below_it() -> None:
    further = [ProcessStatus(1, 3, 1 << 30, 75.0, TaskProgress(249, 1000, 2.4)), ProcessStatus(2, 4)]
    tasks = [attrs.evolve(FULL.tasks[0], further=further), *FULL.tasks[1:]]
    seen = Seen(await page_of(attrs.evolve(FULL, tasks=tasks)))
    row = {name: text for name, text in seen.row("rank 3 (local rank 1)").items() if text}
    assert row == {
        "Task": "rank 3 (local rank 1)",
        "Step": "249 of 1,000",
        "Steps/s": "2.4",
        "Memory": "1 GiB",
        "CPU": "75 %",
    }
    assert set(seen.row("rank 4 (local rank 2)").values()) == {"rank 4 (local rank 2)", ""}


async def test_who_is_silent_too_long_is_marked() -> None:
    page = await page_of(FULL)
    assert '<span class="bad">1 min 30 s ago</span>' in page
    assert "<span>2 s ago</span>" in page
    assert page.count('<span class="bad">') == 1


async def test_what_a_job_says_is_text_and_never_html() -> None:
    evil = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'>"
    progress = TaskProgress(250, metrics={evil: 1.0})
    task = attrs.evolve(FULL.tasks[0], type=evil, node=evil, activity=evil, container_id=evil, progress=progress)
    status = attrs.evolve(
        FULL,
        application_id=evil,
        name=evil,
        message=evil,
        leader=task.name,
        warnings=[evil],
        checkpoint=ResumePoint(None, evil),
        export=ExportedModel(1, evil),
        export_request=ExportRequest(1, evil, 1),
        model_dir=evil,
        tasks=[task],
        failure=Failure(FailureKind.USER, evil, cause=evil),
    )
    page = await page_of(status, "", PageLink(evil, "tensorboard/"))
    seen = Seen(page)
    assert (seen.tags.count("script"), seen.tags.count("img")) == (1, 0)
    assert not {name for name in seen.attributes if name.startswith("on")}
    assert seen.texts.count(evil) >= 10
    assert "<script>alert" not in page
    assert f"{evil}:0" in [text for row in seen.rows for text in row]


async def test_a_failure_has_its_cause_as_title() -> None:
    assert "<h2>Failure: USER</h2>" in await page_of(FULL)
    failure = Failure(FailureKind.USER, "worker:1 ended with exit code 1", cause="ValueError: no data")
    assert "<h2>Failure: ValueError: no data</h2>" in await page_of(attrs.evolve(FULL, failure=failure))


async def facts_of(status: JobStatus) -> dict[str, str]:
    """The facts below the table, by their names."""
    return dict(re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", await page_of(status)))


async def test_the_generation_is_shown_after_a_restart_only() -> None:
    """Suspensions and lost masters count generations, too, and would look like restarts."""
    assert (await facts_of(FULL))["Generation"] == "3"
    assert "Generation" not in await facts_of(attrs.evolve(FULL, restarts=0))
    assert "Generation" not in await facts_of(attrs.evolve(FULL, generation=1))


async def test_the_size_of_the_newest_checkpoint_is_on_the_page() -> None:
    point = ResumePoint(200, "hdfs://n/c", 12, files=42, size=3 << 30, sent=120 << 20)
    shown = await facts_of(attrs.evolve(FULL, checkpoint=point))
    assert shown["Newest"] == "snapshot 12 (step 200): 3 GiB in 42 files, 120 MiB new"


async def test_the_newest_export_and_an_open_request_are_among_the_checkpoints() -> None:
    export = ExportedModel(250, "hdfs://n/exports/step-250", NOW)
    status = attrs.evolve(FULL, export=export, export_request=ExportRequest(NOW, "r", NOW))
    shown = await facts_of(status)
    assert shown["Newest export"].startswith("step 250, ")
    assert shown["Exported to"] == export.uri
    assert shown["Export requested"].endswith(" UTC")


async def test_how_much_of_an_input_is_done_is_told() -> None:
    queued = InputStatus("photos", "queue", 1200, 3 << 30, "hdfs://n/photos.jsonl", committed=800, failed=2)
    dealt = InputStatus("clicks", "static", 1, 512, "hdfs://n/clicks.jsonl")
    shown = await facts_of(attrs.evolve(FULL, inputs=[queued, dealt]))
    assert shown["Input photos"] == "1200 shards, 3 GiB; 800 committed, 2 failed"
    assert shown["Input clicks"] == "1 shard, 512 B"


@pytest.mark.parametrize(
    ("state", "commands"),
    [
        (JobState.RUNNING, ["save", "export", "suspend", "resize", "kill"]),
        (JobState.SUSPENDED, ["resume", "resize", "kill"]),
        (JobState.FINISHING, ["kill"]),
        (JobState.FAILED, []),
    ],
)
async def test_users_who_may_change_the_job_get_the_commands(state: JobState, commands: list[str]) -> None:
    """The page has no button, because a page of another application could press it."""

    async def may_modify(user: str) -> bool:
        return user == "alice"

    page = JobPage(lambda: attrs.evolve(FULL, state=state), tuple, may_modify=may_modify, resizable=["worker"])
    for user in ("alice", "bob"):
        seen = Seen((await page.whole(HttpRequest(Head("GET", "/"), user))).body.decode())
        shown = [each.split()[2] for each in seen.texts if each.startswith("airflow tony ")]
        assert shown == (commands if user == "alice" else [])
        assert all(each.endswith(" worker=3") for each in seen.texts if each.startswith("airflow tony resize"))
        assert "button" not in seen.tags


async def test_a_job_that_cannot_be_resized_offers_no_resize() -> None:
    async def may_modify(_user: str) -> bool:
        return True

    page = JobPage(lambda: FULL, tuple, may_modify=may_modify)
    body = (await page.whole(HttpRequest(Head("GET", "/"), "alice"))).body.decode()
    assert "airflow tony kill" in body
    assert "airflow tony resize" not in body


@settings(deadline=None)
@given(any_status)
async def test_any_status_makes_a_page_of_the_same_elements(status: JobStatus) -> None:
    """None of its texts adds one, and none of its numbers is too odd to be written."""
    seen = Seen(await page_of(status))
    rows = sum(1 + len(task.further) for task in status.tasks) + 1
    assert seen.tags.count("tr") == rows
    assert seen.tags.count("script") == 1
    assert set(seen.tags) <= set(Seen(await page_of(FULL)).tags)
    assert all(href.startswith(("status", "logs/")) for _, href in seen.links)


async def test_the_policy_allows_exactly_the_pages_own_style_and_script(server: WebServer) -> None:
    answered = await ask(server, "GET", "/", headers={"Accept": "text/html,*/*;q=0.8"})
    page = answered.body.decode()
    assert (answered.status, answered.headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = answered.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; ")
    for name in ("style", "script"):
        [content] = re.findall(f"<{name}>(.*?)</{name}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}';" in policy


async def test_every_address_is_relative_and_nothing_is_loaded_from_elsewhere() -> None:
    """YARN's proxy serves the page below /proxy/<application id>/, and a node may see no other network."""
    page = await page_of(FULL)
    for address in re.findall(rf'(?:{"|".join(_ADDRESSES)})="([^"]*)"', page):
        assert not address.startswith(("/", "http:", "https:"))
    assert "//" not in re.findall(r"<style>(.*?)</style>", page, re.DOTALL)[0]


async def test_the_parts_are_those_of_the_page_and_say_when_to_ask_again(server: WebServer) -> None:
    page = (await ask(server, "GET", "/")).body.decode()
    parts = (await ask(server, "GET", "/sections")).json()
    for name, html in parts["sections"].items():
        assert f'<section id="{name}">{html}</section>' in page
    assert parts["every"] == 3
    assert f"<title>{parts['title']}</title>" in page
    assert 'data-every="3"' in page
    assert "<noscript><meta http-equiv" in page


async def test_a_job_that_has_ended_is_not_asked_again() -> None:
    page = await page_of(attrs.evolve(FULL, state=JobState.SUCCEEDED, finished_ms=NOW))
    assert 'data-every="0"' in page
    assert "<noscript>" not in page


async def test_of_a_large_gang_those_are_shown_who_are_not_as_most_are() -> None:
    status = gang(1000, worker_700=TaskState.LOST, worker_900=TaskState.REQUESTED)
    seen = Seen(await page_of(status))
    assert [row[0] for row in seen.rows[1:4]] == ["worker:700", "worker:900", "worker:0"]
    assert len(seen.rows) == MOST_TASKS + 1
    assert "998 RUNNING, 1 LOST, 1 REQUESTED" in seen.texts
    assert ("show all", "?tasks=all") in seen.links
    every = Seen(await page_of(status, "tasks=all"))
    assert [row[0] for row in every.rows[1:]] == [f"worker:{index}" for index in range(1000)]
    assert "show all" not in every.texts


async def test_places_are_looked_for_each_time() -> None:
    places: list[PageLink] = []
    showing = web_app.make_router(Showing().as_master, Timeouts(), tails(), JobPage(Showing().status, lambda: places))
    async with serving(web_app.Routes(OpenGate(), showing).answer) as server:
        assert b"TensorBoard" not in (await ask(server, "GET", "/")).body
        places.append(PageLink("TensorBoard", "tensorboard/"))
        assert b'<a href="tensorboard/">TensorBoard</a>' in (await ask(server, "GET", "/")).body


async def test_a_browser_is_refused_in_words_and_a_program_in_json(server: WebServer) -> None:
    for headers, content_type in (({"Accept": "text/html"}, "text/html; charset=utf-8"), ({}, "application/json")):
        answered = await ask(server, "GET", "/<b>nowhere", headers=headers)
        assert (answered.status, answered.headers["content-type"]) == (404, content_type)
        assert b"there is no such page" in answered.body
    assert (await ask(server, "POST", "/status", headers={"Accept": "text/html"})).headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize("odd", ["\u202e", "\u200b", "\x1b[2J", "\x07", "\x9b", "\ud800"])
async def test_nothing_on_the_page_is_unseen_or_turns_the_text_around_it(odd: str) -> None:
    said = f"a{odd}z"
    task = attrs.evolve(FULL.tasks[0], node=said, activity=said)
    failure = Failure(FailureKind.USER, said)
    page = await page_of(attrs.evolve(FULL, name=said, message=said, warnings=[said], tasks=[task], failure=failure))
    assert odd not in page
    assert page.count("a?z" if odd == "\ud800" else "az") >= 5


def test_only_html_is_not_escaped() -> None:
    assert element("a", "<", Html("<i>"), 5, None, href='"', hidden=True, title=None) == (
        '<a href="&quot;" hidden>&lt;<i>5</a>'
    )
    assert join(element("br"), "&") == "<br>&amp;"
