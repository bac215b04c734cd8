"""Tunnels to the servers of real jobs: through YARN's own proxy, and on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from websockets.sync.client import connect

from tests.jobs.job import Job
from tests.jobs.left import assert_nothing_left
from tests.jobs.places import LocalPlace, Place, YarnPlace
from tests.jobs.test_page import go as go
from tests.waiting import until
from tony_provider.cluster.errors import ClusterAuthError, TunnelEnded, UnexpectedAnswer
from tony_provider.cluster.task_tunnel import HOST, TaskTunnel
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.protocol.limits import TUNNEL_WINDOW, TUNNELS_OF_ONE
from tony_provider.runtime.protocol.status import JobState

PROGRAM = Path(__file__).with_name("tunnelled.py")
SECONDS = 60.0
IN_ALL = 4 * TUNNEL_WINDOW + (16 << 20)  # bytes: of windows, and of sockets' own buffers


def serving(place: Place, go: Path) -> Job:
    worker = {"memory": "256MiB", "command": f"exec {sys.executable} {PROGRAM.name}"}
    job = place.submit({"env": {"GO": str(go)}, "files": [str(PROGRAM)], "tasks": {"worker": worker}})
    job.until(JobState.RUNNING)
    job.until_said("worker:0", "listening")
    return job


def port_of(job: Job, name: str) -> int:
    (line,) = [line for line in job.output("worker:0").splitlines() if line.startswith(f"{name} ")]
    return int(line.split()[1])


def tunnel(job: Job, port: int = 0, news: list[str] | None = None) -> TaskTunnel:
    report = print if news is None else news.append
    return job.handle.tunnel("worker:0", port, report=report)


def connection(way: TaskTunnel) -> socket.socket:
    return socket.create_connection((HOST, way.port), SECONDS)


def exchanged(way: TaskTunnel, data: bytes) -> bytes:
    """What comes back until the other end closes its way, as ours is closed."""

    async def exchange() -> bytes:
        reader, writer = await asyncio.open_connection(HOST, way.port)
        writer.write(data)
        writer.write_eof()
        found = await asyncio.wait_for(reader.read(), SECONDS)
        writer.close()
        return found

    return asyncio.run(exchange())


def test_bytes_go_there_and_back(place: Place, go: Path) -> None:
    job = serving(place, go)
    large = random.Random(3).randbytes(1 << 20)
    with tunnel(job) as way:
        assert exchanged(way, b"hello") == b"hello|over"
        assert exchanged(way, large) == large + b"|over"
        with contextlib.ExitStack() as stack:  # many at a time
            many = [stack.enter_context(connection(way)) for _ in range(20)]
            for number, each in enumerate(many):
                each.sendall(f"I am {number}".encode())
            for number, each in reversed(list(enumerate(many))):
                assert each.recv(100) == f"I am {number}".encode()
    with pytest.raises(OSError, match="refused"):
        connection(way)
    with tunnel(job, port_of(job, "websocket")) as way, connect(f"ws://{HOST}:{way.port}/") as there:
        for word in ("first", "second"):
            there.send(word)
            assert there.recv(SECONDS) == word.upper()
    go.touch()
    job.succeeded()
    assert_nothing_left(place, job)


@pytest.mark.long
def test_a_server_that_says_more_than_anybody_reads_is_held_up(local: LocalPlace, go: Path) -> None:
    job = serving(local, go)
    with tunnel(job, port_of(job, "flood")) as way:
        with connection(way) as there:
            assert there.recv(1) == b"\0"
            until(lambda: "sent" in job.output("worker:0"), job.describe)
            with tunnel(job) as other:  # nobody else is held up
                assert exchanged(other, bytes(1 << 20)) == bytes(1 << 20) + b"|over"
            assert max(int(line.split()[1]) for line in job.output("worker:0").splitlines() if "sent" in line) < IN_ALL
        job.until_said("worker:0", "broken off")
    go.touch()
    job.succeeded()


@pytest.mark.long
def test_a_tunnel_leads_to_ports_of_its_task_alone(local: LocalPlace, go: Path) -> None:
    job = serving(local, go)
    for port, why in ((22, "not of this task"), (31999, "no process listens")):
        news: list[str] = []
        with tunnel(job, port, news) as way, connection(way) as there:
            assert there.recv(1) == b""
            until(lambda news=news: news, "the reason")  # type: ignore[misc]
        assert why in news[0]
    go.touch()
    job.succeeded()


@pytest.mark.long
def test_more_tunnels_than_there_may_be_are_refused_and_one_whose_job_ends_says_so(local: LocalPlace, go: Path) -> None:
    job = serving(local, go)
    with contextlib.ExitStack() as stack:
        ways = [stack.enter_context(tunnel(job)) for _ in range(TUNNELS_OF_ONE)]
        with pytest.raises(UnexpectedAnswer, match="already has 4 tunnels to this job"), tunnel(job):
            pass
        ways[0].__exit__()
        with tunnel(job) as way:  # the place of the one that was closed
            assert exchanged(way, b"hello") == b"hello|over"
        go.touch()
        job.succeeded()
        with pytest.raises(TunnelEnded, match=f"{job.id} has ended as FINISHED"):
            ways[1].wait(SECONDS)
    with pytest.raises(TunnelEnded, match="has ended"), tunnel(job):
        pass


@pytest.mark.long
def test_somebody_else_is_not_let_through(yarn: YarnPlace, go: Path) -> None:
    job = serving(yarn, go)
    refused = pytest.raises(ClusterAuthError, match="bob may not modify this application of alice")
    with TonyHook(job.hook.tony_conn_id, "bob") as hook, refused:
        hook.control(job.id, "tunnel", {"tunnel": "mine", "data": "aGVsbG8="})
    go.touch()
    job.succeeded()


@pytest.mark.long
def test_the_next_master_is_reached_by_the_same_port(yarn: YarnPlace, go: Path) -> None:
    job = serving(yarn, go)
    news: list[str] = []
    with tunnel(job, news=news) as way:
        assert exchanged(way, b"hello") == b"hello|over"
        os.kill(job.master().pid, signal.SIGKILL)
        until(lambda: any("reopening the tunnel" in each for each in news), lambda: f"{news}\n{job.describe()}")
        until(lambda: goes_through(way), lambda: f"{news}\n{job.describe()}")
    go.touch()
    job.succeeded()


def goes_through(way: TaskTunnel) -> bool:
    try:
        return exchanged(way, b"hello") == b"hello|over"
    except ConnectionError:
        return False


def test_the_command_ends_with_ctrl_c_and_leaves_nothing(local: LocalPlace, go: Path) -> None:
    job = serving(local, go)
    words = [sys.executable, "-m", "airflow", "tony", "tunnel", job.id, "worker:0", "--conn-id", job.hook.tony_conn_id]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = next(line for line in process.stdout if " forwards to " in line)
        port = int(line.partition(" forwards to ")[0].rpartition(":")[2])
        with socket.create_connection((HOST, port), SECONDS) as there:
            there.sendall(b"hello")
            assert there.recv(100) == b"hello"
            process.send_signal(signal.SIGINT)
            assert process.wait(SECONDS) == 0
    go.touch()
    job.succeeded()
