"""What may stand between us and an application's master: proxies, standbys, pages. Played by small HTTP servers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import attrs
import pytest

from tests.hadoop.ports import free_ports
from tony_provider.cluster.errors import ClusterAuthError, ClusterError, MasterOutOfReach, UnexpectedAnswer
from tony_provider.cluster.yarn.rest import MasterProxy, RestConfig, YarnRest

ID = "application_1_0001"
JSON = "application/json"


@attrs.frozen
class Says:
    status: int
    body: str
    content_type: str = "text/html; charset=utf-8"
    location: str = ""


TAKEN = Says(202, '{"ends_within": 5.0}', f"{JSON};charset=utf-8")
PAGE = Says(200, "<html>this application has ended</html>")
NOT_THERE = Says(404, "<html>no such servlet</html>")
NO_MASTER = Says(302, "", location="http://127.0.0.1:1/cluster/app/x")


@attrs.define
class Place:
    """One web server, and what it was asked."""

    says: Says
    url: str = ""
    asked: list[tuple[str, dict[str, list[str]], Any]] = attrs.field(factory=list)


@pytest.fixture
def place() -> Iterator[Callable[[Says], Place]]:
    servers: list[ThreadingHTTPServer] = []

    def start(says: Says) -> Place:
        made = Place(says)

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                parts = urlsplit(self.path)
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert body.isascii()
                made.asked.append((parts.path, parse_qs(parts.query), json.loads(body)))
                self.send_response(made.says.status)
                self.send_header("Content-Type", made.says.content_type)
                if made.says.location:
                    self.send_header("Location", made.says.location)
                self.end_headers()
                self.wfile.write(made.says.body.encode())

            def log_message(self, *_: object) -> None:
                """Quiet."""

        [port] = free_ports(1)
        servers.append(ThreadingHTTPServer(("127.0.0.1", port), Handler))
        made.url = f"http://127.0.0.1:{port}"
        threading.Thread(target=servers[-1].serve_forever, args=(0.05,), daemon=True).start()
        return made

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def ask(*addresses: str, tracking_url: str | None = None, seconds: float = 5.0, **config: Any) -> dict[str, Any]:
    proxy = MasterProxy(YarnRest(RestConfig(list(addresses), **config)), lambda _: tracking_url)
    answer: dict[str, Any] = proxy.ask(ID, "control/stop", seconds, body={"reason": "naïve"})
    return answer


def test_the_masters_answer_comes_through(place: Callable[[Says], Place]) -> None:
    server = place(TAKEN)
    assert ask(f"{server.url}/gateway/", user="alice") == {"ends_within": 5.0}
    identity = {"proxyapproved": ["true"], "user.name": ["alice"]}
    assert server.asked == [(f"/gateway/proxy/{ID}/control/stop", identity, {"reason": "naïve"})]


@pytest.mark.parametrize("other", [NO_MASTER, NOT_THERE, PAGE, Says(307, "standby", location="http://127.0.0.1:1/")])
def test_a_standby_is_not_the_end(place: Callable[[Says], Place], other: Says) -> None:
    assert ask(place(other).url, place(TAKEN).url) == {"ends_within": 5.0}


def test_a_proxy_of_its_own_is_found_by_the_tracking_url(place: Callable[[Says], Place]) -> None:
    manager, proxy = place(NOT_THERE), place(TAKEN)
    assert ask(manager.url, tracking_url=f"{proxy.url}/proxy/{ID}/") == {"ends_within": 5.0}
    assert [path for path, _, _ in proxy.asked] == [f"/proxy/{ID}/control/stop"]


def test_nobody_is_asked_at_an_address_that_is_no_proxy(place: Callable[[Says], Place]) -> None:
    manager, other = place(NO_MASTER), place(TAKEN)
    for url in (None, "", f"{other.url}/cluster/app/{ID}", other.url):
        with pytest.raises(MasterOutOfReach, match="redirects: it has no application master there"):
            ask(manager.url, tracking_url=url)
    assert not other.asked


@pytest.mark.parametrize(
    ("says", "error", "words"),
    [
        (PAGE, MasterOutOfReach, "answers with a web page"),
        (Says(200, "[1]", JSON), MasterOutOfReach, "answers with a web page"),
        (Says(200, "{", JSON), MasterOutOfReach, "answers with a web page"),
        (Says(500, "<html>Connection refused</html>"), MasterOutOfReach, "answered 500"),
        (Says(503, '{"error": "too busy"}', JSON), MasterOutOfReach, "too busy"),
        (Says(401, "<html>no</html>"), ClusterAuthError, "does not accept our identity"),
        (Says(403, "<html>no</html>"), ClusterAuthError, "refuses access"),
        (Says(403, '{"error": "bob may not"}', JSON), ClusterAuthError, "^bob may not$"),
        (Says(400, '{"error": "reason: text"}', JSON), UnexpectedAnswer, "rejected the request: reason: text"),
        (Says(400, r'{"error": "a\u001b[2J\u202ez"}', JSON), UnexpectedAnswer, "rejected the request: az$"),
    ],
)
def test_what_is_no_answer_of_the_master(
    place: Callable[[Says], Place], says: Says, error: type[ClusterError], words: str
) -> None:
    with pytest.raises(error, match=words):
        ask(place(says).url)


def test_an_outage_is_waited_out_until_the_time_is_over() -> None:
    [port] = free_ports(1)
    with pytest.raises(MasterOutOfReach, match=r"does not answer \(ConnectionError\)"):
        ask(f"http://127.0.0.1:{port}", tracking_url="http://127.0.0.1:1/proxy/x/", seconds=0.2)
