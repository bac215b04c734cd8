"""Orders are a program's: whatever page a browser shows, it cannot give any with the name of who looks at it."""

from __future__ import annotations

import pytest

from tests.runtime.am.web.site import Answered, Master, OpenGate, ask, router, serving
from tony_provider.runtime.am.session.session_events import CheckpointOrder, Event
from tony_provider.runtime.am.web.web_app import Routes

ORDER = {"reason": "r"}
CHROME = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36"


async def put(path: str, **headers: str) -> tuple[Answered, list[Event]]:
    master = Master()
    async with serving(Routes(OpenGate(), router(master)).answer) as server:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await ask(server, "PUT", path, ORDER, named), master.asked


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://rm.example:8088"},  # also of the same origin: everybody's pages are
        {"Origin": "null"},  # of a page with a policy of no referrers, or in a sandbox
        {"Accept_Language": "de"},
        {"Accept_Language": "x", "User_Agent": "curl/8"},
        {"User_Agent": CHROME},
        {"Sec_Fetch_Site": "same-origin"},
        {"Referer": "http://rm.example:8088/proxy/application_1_0002/"},
    ],
)
@pytest.mark.parametrize(
    "path",
    [
        "/control/stop",
        "/control/checkpoint",
        "/control/export",
        "/control/suspend",
        "/control/resume",
        "/control/resize",
    ],
)
async def test_no_order_is_taken_from_a_browser(path: str, headers: dict[str, str]) -> None:
    answered, asked = await put(path, **headers)
    assert (answered.status, asked) == (403, [])
    assert "orders from a browser are rejected" in answered.json()["error"]


@pytest.mark.parametrize("kind", ["", "text/plain", "text/plain;charset=UTF-8", "application/x-www-form-urlencoded"])
async def test_an_order_is_json_and_says_so(kind: str) -> None:
    answered, asked = await put("/control/stop", Content_Type=kind)
    assert (answered.status, asked) == (415, [])
    assert "Content-Type: application/json" in answered.json()["error"]


@pytest.mark.parametrize(
    "headers",
    [
        {"User_Agent": "python-requests/2.32", "Accept_Encoding": "gzip, deflate", "Accept": "application/json"},
        {"User_Agent": "curl/8.5.0", "Accept": "*/*", "Content_Type": "application/json; charset=utf-8"},
    ],
)
async def test_programs_are_obeyed(headers: dict[str, str]) -> None:
    answered, asked = await put("/control/checkpoint", **headers)
    assert (answered.status, asked) == (202, [CheckpointOrder("r")])


@pytest.mark.parametrize("path", ["/", "/status", "/sections", "/logs/worker-0", "/metrics", "/nowhere"])
@pytest.mark.parametrize("accept", ["*/*", "text/html"])
async def test_nobody_else_shows_our_pages_in_a_frame(path: str, accept: str) -> None:
    async with serving(Routes(OpenGate(), router(Master())).answer) as server:
        answered = await ask(server, "GET", path, headers={"Accept": accept})
    if answered.status == 200 or accept == "text/html":
        assert "frame-ancestors 'none'" in answered.headers["content-security-policy"]
        assert answered.headers["referrer-policy"] == "no-referrer"
    assert answered.headers["x-content-type-options"] == "nosniff"
