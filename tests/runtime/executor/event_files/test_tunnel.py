"""A real executor, its stream to a master, and behind it a server on the loopback in TensorBoard's place."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import socket
import urllib.request
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import attrs
import pytest

from tests.runtime.executor.conftest import Launch, Running
from tests.runtime.executor.containers import job, until
from tests.runtime.executor.master import DEADLINE, address
from tony_provider.runtime.common import contract
from tony_provider.runtime.executor.tunnel_ends import LARGEST_PAGE
from tony_provider.runtime.frameworks.base import MAIN_PORT
from tony_provider.runtime.jobspec.container_content import TENSORBOARD_TASK, tensorboard_task
from tony_provider.runtime.jobspec.model import TENSORBOARD, JobSpec, TensorBoardSpec
from tony_provider.runtime.protocol import tony_pb2

STAND_IN = Path(__file__).with_name("stand_in.py")


def watched() -> JobSpec:
    """A job whose TensorBoard is the stand-in."""
    plain = job("true")
    own = attrs.evolve(tensorboard_task(TensorBoardSpec()), command=f"exec python {STAND_IN}")
    return attrs.evolve(plain, tensorboard=TensorBoardSpec(), tasks={**plain.tasks, TENSORBOARD: own})


async def show(launch: Launch) -> tuple[Running, int]:
    """The executor of a TensorBoard, and its port."""
    running = await launch(watched(), task=TENSORBOARD_TASK)
    registration = await running.master.first("registration")
    return running, registration.ports[MAIN_PORT]


async def start(running: Running, port: int) -> None:
    running.master.rendezvous(address("worker", 0, 20001), address(TENSORBOARD, 0, port, role="sidecar"))
    await running.master.first("started")
    await until(lambda: _listens(port), "the server to listen")


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def ask(running: Running, question: int, method: str, target: str, body: bytes = b"", **headers: str) -> Any:
    wanted = tony_pb2.PageWanted(question=question, method=method, target=target, headers=headers, body=body)
    running.master.say(tony_pb2.ToExecutor(page_wanted=wanted))
    parts: list[Any] = []
    count = 0
    while not (parts and parts[-1].last):
        count += 1
        everything = await running.master.all_of("page", count, deadline=DEADLINE)
        count = len(everything)
        parts = [page for page in everything if page.question == question]
    whole = tony_pb2.Page(status=parts[0].status, headers=parts[0].headers, problem=parts[-1].problem)
    whole.data = b"".join(part.data for part in parts)
    return whole


_NEIGHBOUR = """
import os, socket
os.setuid(65534)
server = socket.create_server(("127.0.0.1", int(os.environ["TONY_PORT"])))
while True:
    connection, _ = server.accept()
    print("heard", connection.recv(1000), flush=True)
    connection.close()
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
async def test_a_neighbour_who_took_the_port_is_told_nothing(launch: Launch) -> None:
    spec = watched()
    taken = attrs.evolve(spec.tasks[TENSORBOARD], command=f"exec python -c {shlex.quote(_NEIGHBOUR)}")
    running = await launch(attrs.evolve(spec, tasks={**spec.tasks, TENSORBOARD: taken}), task=TENSORBOARD_TASK)
    registration = await running.master.first("registration")
    await start(running, registration.ports[MAIN_PORT])
    page = await ask(running, 1, "GET", "/")
    assert (page.status, page.data) == (502, b"")
    assert "another user of this node" in page.problem
    assert "heard b'GET" not in (running.container.directory / "tony-work" / "output.log").read_text()


async def test_requests_go_there_and_back(launch: Launch) -> None:
    running, port = await show(launch)
    await start(running, port)
    page = await ask(running, 1, "POST", "/data/x?a=%20b&c=d", b"a=1", **{"content-type": "text/plain"})
    said = json.loads(page.data)
    assert (said["method"], said["target"], said["body"]) == ("POST", "/data/x?a=%20b&c=d", "a=1")
    assert said["headers"]["content-type"] == "text/plain"
    assert said["headers"]["host"] == f"127.0.0.1:{port}"
    assert page.status == 200
    assert dict(page.headers) == {"content-type": "application/json", "cache-control": "private"}
    assert await running.end() == 0


async def test_a_large_answer_comes_in_pieces_and_one_that_is_too_large_not_at_all(launch: Launch) -> None:
    running, port = await show(launch)
    await start(running, port)
    assert len((await ask(running, 1, "GET", "/bytes/5000001")).data) == 5000001
    assert len((await ask(running, 2, "GET", "/bytes/0")).data) == 0
    refused = await ask(running, 3, "GET", f"/bytes/{LARGEST_PAGE + 1}")
    assert refused.status == 502
    assert "more than" in refused.problem
    await running.master.all_of("heartbeat")
    assert await running.end() == 0


async def test_before_it_listens_that_is_said(launch: Launch) -> None:
    running, _ = await show(launch)
    page = await ask(running, 1, "GET", "/")
    assert page.status == 503
    assert page.problem == "TensorBoard does not listen yet"


async def test_what_cannot_be_asked_harms_nobody(launch: Launch) -> None:
    running, port = await show(launch)
    await start(running, port)
    for question, target in enumerate(["/a b", "/a\r\nHost: x", "/\u00e4"], 1):
        assert (await ask(running, question, "GET", target)).status == 502
    assert (await ask(running, 9, "GET", "/")).status == 200


async def test_others_on_the_node_see_nothing(launch: Launch) -> None:
    running, port = await show(launch)
    await start(running, port)
    with pytest.raises(HTTPError, match="404"):
        await asyncio.to_thread(urllib.request.urlopen, f"http://127.0.0.1:{port}/data/runs")


async def test_event_files_of_all_tasks_are_brought_to_it(launch: Launch) -> None:
    running, port = await show(launch)
    kept = running.container.root / "store" / "chain" / contract.TENSORBOARD_DIR / "worker-1"
    kept.mkdir(parents=True)
    (kept / "events.out.tfevents.1").write_bytes(b"curve")
    await start(running, port)
    directory = running.container.directory / "tony-work" / "tensorboard"
    await until((directory / "worker-1" / "events.out.tfevents.1").exists, "the file is there")
    assert json.loads((await ask(running, 1, "GET", "/")).data)["files"] == ["worker-1/events.out.tfevents.1"]
    assert await running.end() == 0
    assert not kept.with_name("tensorboard-0").exists()  # what it shows is not kept again


async def test_what_a_process_writes_last_is_kept_when_it_ends(launch: Launch) -> None:
    running = await launch('echo one > "$TONY_TENSORBOARD_DIR/events.out.tfevents.1"; sleep 1000')
    await running.begin()
    kept = running.container.root / "store" / "chain" / contract.TENSORBOARD_DIR / "worker-0"
    await until((kept / "events.out.tfevents.1").exists, "the first look")
    (running.container.directory / "tony-work" / "tensorboard" / "events.out.tfevents.2").write_text("two")
    assert await running.end() == 0
    assert sorted(path.name for path in kept.iterdir()) == ["events.out.tfevents.1", "events.out.tfevents.2"]
