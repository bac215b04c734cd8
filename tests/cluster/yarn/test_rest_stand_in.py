"""What a ResourceManager can answer and a real one will not at a test's wish: played by a small HTTP server."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import requests

from tests.hadoop.ports import free_ports
from tony_provider.cluster.errors import ClusterAuthError, ClusterUnreachable, ConfigurationHidden, UnexpectedAnswer
from tony_provider.cluster.interface import ApplicationFilter
from tony_provider.cluster.yarn.rest import RestConfig, RestError, YarnRest
from tony_provider.cluster.yarn.yarn_cluster import YarnCluster

ACTIVE = {"clusterInfo": {"haState": "ACTIVE"}}
STANDBY = {"clusterInfo": {"haState": "STANDBY"}}


class StandIn:
    """``answers``: path -> (status, body); asked paths and queries are kept."""

    def __init__(self, port: int) -> None:
        self.answers: dict[str, tuple[int, Any]] = {"/ws/v1/cluster/info": (200, ACTIVE)}
        self.asked: list[tuple[str, dict[str, list[str]]]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                outer.asked.append((parts.path, parse_qs(parts.query)))
                status, body = outer.answers.get(parts.path, (404, "nothing here"))
                content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
                self.send_response(status)
                if status == 307:
                    self.send_header("Location", "http://127.0.0.1:1/elsewhere")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{port}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()


@pytest.fixture
def stand_in() -> Iterator[Callable[[], StandIn]]:
    started: list[StandIn] = []

    def start() -> StandIn:
        [port] = free_ports(1)
        started.append(StandIn(port))
        return started[-1]

    yield start
    for each in started:
        each.server.shutdown()
        each.server.server_close()


def rest(*addresses: str, timeout: float = 1.0, **fields: Any) -> YarnRest:
    return YarnRest(RestConfig(list(addresses), timeout=timeout, **fields))


def test_it_goes_to_the_active_one_and_stays_there(stand_in: Callable[[], StandIn]) -> None:
    standby, active = stand_in(), stand_in()
    standby.answers["/ws/v1/cluster/info"] = (200, STANDBY)
    active.answers["/x"] = (200, {"answer": 1})
    client = rest(standby.url, active.url, user="alice")
    assert [client.request("/x") for _ in range(2)] == [{"answer": 1}] * 2
    assert [path for path, _ in standby.asked] == ["/ws/v1/cluster/info"]
    assert [path for path, _ in active.asked] == ["/ws/v1/cluster/info", "/x", "/x"]
    assert all(query == {"user.name": ["alice"]} for _, query in active.asked)


@pytest.mark.parametrize(
    "sign",
    [
        (307, "This is standby RM. The redirect url is: http://127.0.0.1:1/"),
        (503, ""),
        (500, {"RemoteException": {"exception": "StandbyException", "message": "not active"}}),
    ],
)
def test_it_finds_the_new_active_one_after_a_failover(stand_in: Callable[[], StandIn], sign: tuple[int, Any]) -> None:
    first, second = stand_in(), stand_in()
    second.answers["/ws/v1/cluster/info"] = (200, STANDBY)
    first.answers["/x"] = second.answers["/x"] = (200, {})
    client = rest(first.url, second.url)
    client.request("/x")
    first.answers.update({"/x": sign, "/ws/v1/cluster/info": (200, STANDBY)})
    second.answers["/ws/v1/cluster/info"] = (200, ACTIVE)
    client.request("/x")
    assert second.asked[-1][0] == "/x"


def test_none_is_active_until_the_deadline(stand_in: Callable[[], StandIn]) -> None:
    standby = stand_in()
    standby.answers["/ws/v1/cluster/info"] = (200, STANDBY)
    [port] = free_ports(1)
    with pytest.raises(ClusterUnreachable, match=r"is a standby; http://127.0.0.1:\d+: .*refused"):
        rest(standby.url, f"http://127.0.0.1:{port}", timeout=0.3).request("/x")


def test_a_path_before_the_calls_is_kept(stand_in: Callable[[], StandIn]) -> None:
    gateway = stand_in()
    gateway.answers = {"/gateway/yarn/ws/v1/cluster/info": (200, ACTIVE), "/gateway/yarn/x": (200, {})}
    assert rest(f"{gateway.url}/gateway/yarn/").request("/x") == {}


@pytest.mark.parametrize(
    ("answer", "error", "expected"),
    [
        ((401, "<html><title>Error 401 no</title>"), ClusterAuthError, "requires Kerberos; set `kerberos` to true"),
        ((403, {"RemoteException": {"message": "not you"}}), ClusterAuthError, "not allow alice to do this: not you"),
        ((404, {"RemoteException": {"exception": "NotFoundException", "message": "gone"}}), RestError, "404: gone"),
        ((500, ""), RestError, "500: Internal Server Error"),
        ((200, "<html>hello"), UnexpectedAnswer, "does not answer with JSON"),
        ((200, "[" * 200_000), UnexpectedAnswer, "does not answer with JSON"),
    ],
)
def test_answers_become_typed_errors(
    stand_in: Callable[[], StandIn], answer: tuple[int, Any], error: type[Exception], expected: str
) -> None:
    server = stand_in()
    server.answers["/x"] = answer
    with pytest.raises(error, match=expected):
        rest(server.url, user="alice").request("/x")


def test_a_yarn_router_is_no_resource_manager(stand_in: Callable[[], StandIn]) -> None:
    """tests/gateways/test_yarn_router.py has a real one."""
    router = stand_in()
    router.answers["/ws/v1/cluster/info"] = (200, {"id": "0", "subCluster": {"haState": "ACTIVE"}})
    with pytest.raises(UnexpectedAnswer, match=r" is a YARN Router, .*; name the ResourceManagers of one sub-cluster "):
        rest(router.url).request("/x")


def test_a_configuration_that_is_not_shown(stand_in: Callable[[], StandIn]) -> None:
    server = stand_in()
    server.answers["/conf"] = (403, "Unauthorized user alice")
    client = rest(server.url, user="alice")
    for status, said in ((403, "Unauthorized user alice"), (404, "")):
        server.answers["/conf"] = (status, said)
        with pytest.raises(ConfigurationHidden, match="does not show its configuration"):
            client.setting("fs.defaultFS")
    answers: list[object] = [{}, [], {"properties": [{"value": "x"}]}]
    for answer in answers:
        server.answers["/conf"] = (200, answer)
        with pytest.raises(UnexpectedAnswer, match="did not answer with its configuration"):
            client.setting("fs.defaultFS")


def test_a_configuration_is_asked_for_once(stand_in: Callable[[], StandIn]) -> None:
    server = stand_in()
    server.answers["/conf"] = (200, {"properties": [{"key": "fs.defaultFS", "value": "hdfs://nn", "resource": "a"}]})
    client = rest(server.url, user="alice")
    assert client.setting("fs.defaultFS") == "hdfs://nn"
    assert client.setting("yarn.acl.enable") is None
    assert [path for path, _ in server.asked].count("/conf") == 1


def test_with_kerberos_the_proxy_user_is_asked_for(stand_in: Callable[[], StandIn]) -> None:
    server = stand_in()
    server.answers["/x"] = (200, {})
    auth = requests.auth.HTTPBasicAuth("a", "b")  # in the place of SPNEGO
    rest(server.url, user="airflow", proxy_user="bob", auth=auth).request("/x")
    assert all(query == {"doAs": ["bob"]} for _, query in server.asked)


@pytest.mark.parametrize(
    "app", [{}, {"id": 5, "state": "DANCING"}, [], "app", {"state": "RUNNING", "startedTime": "x"}]
)
def test_an_application_told_in_other_words_is_no_answer(stand_in: Callable[[], StandIn], app: Any) -> None:
    server = stand_in()
    server.answers["/ws/v1/cluster/apps/application_1_0001"] = (200, {"app": app})
    server.answers["/ws/v1/cluster/apps"] = (200, {"apps": {"app": [app]}})
    cluster = YarnCluster(rest(server.url), user="alice", scheduler=[])
    with pytest.raises(UnexpectedAnswer, match="report on an application is not valid"):
        cluster.application("application_1_0001")
    with pytest.raises(UnexpectedAnswer, match="report on an application is not valid"):
        cluster.applications(ApplicationFilter())
