"""Tunnels with both of their ends, over HTTP that loses and repeats; the master's cluster is a stand-in."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.runtime.am.web.site import DEADLINE, OpenGate, ask, serving
from tests.runtime.executor.other_container import other_container
from tony_provider.cluster.application_secrets import application_secrets
from tony_provider.cluster.errors import MasterOutOfReach, TunnelEnded, TunnelLost, UnexpectedAnswer
from tony_provider.cluster.interface import Application, ApplicationState
from tony_provider.cluster.task_tunnel import MasterOfTunnel, TaskTunnel, TunnelConnection
from tony_provider.runtime.am.executor_server import Stream
from tony_provider.runtime.am.gateway import ExecutorStreams, TunnelStreams
from tony_provider.runtime.am.web import tunnels as tunnel_route
from tony_provider.runtime.am.web.server import AccessType, Head, Router, WebServer
from tony_provider.runtime.am.web.tunnels import TUNNEL_PATH, Tunnels
from tony_provider.runtime.am.web.web_app import Routes
from tony_provider.runtime.common import contract
from tony_provider.runtime.executor.tunnel_ends import TunnelEnds
from tony_provider.runtime.jobspec.model import PortRange
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.protocol.http_messages import master_context
from tony_provider.runtime.protocol.limits import MOST_TUNNELS, TUNNEL_STREAMS, TUNNEL_WINDOW, TUNNELS_OF_ONE
from tony_provider.runtime.protocol.task_identity import TaskIdentity

ID = "application_1700000000000_0001"
TASK = "worker:0"
PORTS = PortRange(20000, 31999)


class ByHeader(OpenGate):
    async def visitor(self, source: str, head: Head) -> str:
        return head.values("x-user")[0]


@attrs.define
class StandInLink:
    """An executor's link that leads to the streams of a master in this process."""

    streams: TunnelStreams
    stream: Stream
    sent_frames: list[Any] = attrs.field(factory=list)

    def send(self, message: tony_pb2.FromExecutor) -> None:
        self.sent_frames += message.tunnel.frames
        self.streams.received(self.stream, message.tunnel)

    async def flush(self) -> None:
        pass


@attrs.define
class StandInCluster:
    """Brings requests to the master as HTTP; some it loses, before or after they have arrived, and some it repeats."""

    server: WebServer
    loop: asyncio.AbstractEventLoop
    chance: random.Random | None = None
    user: str = "alice"
    seen: bytearray = attrs.field(factory=bytearray)
    is_final: bool = False
    is_away: bool = False
    asked: int = 0

    def control(self, application_id: str, action: str, body: Any, *, seconds: float) -> dict[str, Any]:
        self.asked += 1
        if self.is_away:
            raise MasterOutOfReach("another master is starting")
        lot = self.chance.random() if self.chance else 1.0
        if lot < 0.1:
            raise MasterOutOfReach("the request was lost")
        if lot < 0.2:
            self._put(body)
        answer = self._put(body)
        if lot > 0.9 and self.chance:
            raise MasterOutOfReach("the answer was lost")
        return answer

    def _put(self, body: Any) -> dict[str, Any]:
        asking = ask(self.server, "PUT", TUNNEL_PATH, body, {"X-User": self.user})
        answer = asyncio.run_coroutine_threadsafe(asking, self.loop).result(DEADLINE)
        self.seen += str(body).encode() + answer.body
        if answer.status >= 500:
            raise MasterOutOfReach(answer.json()["error"])
        if answer.status != 200:
            raise UnexpectedAnswer(answer.json()["error"])
        found: dict[str, Any] = answer.json()
        return found

    def application(self, application_id: str) -> Application:
        return Application(ID, ApplicationState.FINISHED if self.is_final else ApplicationState.RUNNING)


@attrs.define
class Site:
    cluster: StandInCluster
    authority: str
    tunnels: Tunnels
    streams: TunnelStreams
    link: StandInLink
    heard: list[Any] = attrs.field(factory=list)

    @property
    def master(self) -> MasterOfTunnel:
        return MasterOfTunnel(self.cluster, ID, self.authority)  # type: ignore[arg-type]

    @asynccontextmanager
    async def carrier(self) -> AsyncIterator[TunnelConnection]:
        """A tunnel that is open, and whose run has not ended."""
        carrier = TunnelConnection(self.master, self.heard.append)
        running = asyncio.ensure_future(carrier.run())
        opening = asyncio.ensure_future(carrier.is_open.wait())
        try:
            await asyncio.wait({running, opening}, timeout=DEADLINE, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
            assert opening.done()
            self.running = running
            yield carrier
        finally:
            for each in (running, opening):
                each.cancel()
            await asyncio.gather(running, opening, return_exceptions=True)

    running: Any = None

    async def until(self, look: Callable[[], object]) -> None:
        async with asyncio.timeout(DEADLINE):
            while not look():  # noqa: ASYNC110 - of several ends
                await asyncio.sleep(0.01)

    def data(self, stream: int) -> bytes:
        return b"".join(frame.data for frame in self.heard if frame.stream == stream)

    def why(self, stream: int) -> list[str]:
        closed = [frame for frame in self.heard if frame.WhichOneof("kind") == "closed"]
        return [frame.closed for frame in closed if frame.stream == stream]


@pytest.fixture
async def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tony_provider.cluster.task_tunnel._PAUSE", 0.01)
    monkeypatch.setattr(tunnel_route, "_LOOK", 0.1)
    secrets = application_secrets(ID, {})
    executors = ExecutorStreams()
    stream = Stream(TaskIdentity(ID, "container_1700000000000_0001_01_000002", TASK, 1))
    executors.attach(stream)
    streams = TunnelStreams(executors)
    tunnels = Tunnels(master_context(secrets), streams)
    link = StandInLink(streams, stream)
    ends = TunnelEnds(link, {"main": 20001}, PORTS, "127.0.0.1")  # type: ignore[arg-type]
    passing = asyncio.ensure_future(_pass_on(stream, ends))
    async with serving(Routes(ByHeader(), Router([tunnels.route])).answer) as server:
        cluster = StandInCluster(server, asyncio.get_running_loop())
        yield Site(cluster, secrets[contract.SECRET_CA].decode(), tunnels, streams, link)
        tunnels.close()
    passing.cancel()
    await ends.close()


async def _pass_on(stream: Stream, ends: TunnelEnds) -> None:
    async for message in stream.outgoing():
        assert not callable(message)
        ends.take(message.tunnel)


@pytest.fixture
async def echo() -> AsyncIterator[int]:
    """The port of a server that gives back what it gets."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    server = await _somewhere(serve)
    yield server.sockets[0].getsockname()[1]
    server.close()


async def _somewhere(serve: Callable[..., Awaitable[None]]) -> asyncio.Server:
    while True:
        try:
            return await asyncio.start_server(serve, "127.0.0.1", random.randint(PORTS.first, PORTS.last))
        except OSError:
            continue


def opened(stream: int, port: int, task: str = TASK) -> tony_pb2.TunnelFrame:
    return tony_pb2.TunnelFrame(stream=stream, open=tony_pb2.TunnelOpen(task=task, port=port))


async def begun(site: Site, user: str, name: str) -> Any:
    """The answer to the first request of a tunnel."""
    return await ask(site.cluster.server, "PUT", TUNNEL_PATH, {"tunnel": name, "data": "FgMB"}, {"X-User": user})


def data(stream: int, content: bytes) -> tony_pb2.TunnelFrame:
    return tony_pb2.TunnelFrame(stream=stream, data=content)


async def test_what_is_lost_and_repeated_on_the_way_arrives_once_and_in_order(site: Site, echo: int) -> None:
    site.cluster.chance = random.Random(7)
    said = b""
    async with site.carrier() as carrier:
        carrier.send([opened(1, echo)])
        for number in range(60):
            piece = f"{number} of sixty; ".encode() * 40
            said += piece
            carrier.send([data(1, piece)])
            await asyncio.sleep(0)
        await site.until(lambda: len(site.data(1)) >= len(said))
        assert site.data(1) == said
        carrier.send([tony_pb2.TunnelFrame(stream=1, end=True)])
        await site.until(lambda: any(frame.end for frame in site.heard))


async def test_whoever_stands_between_reads_nothing(site: Site, echo: int) -> None:
    async with site.carrier() as carrier:
        carrier.send([opened(1, echo), data(1, b"the token")])
        await site.until(lambda: site.data(1) == b"the token")
    assert b"token" not in bytes(site.cluster.seen)


async def test_more_than_was_agreed_ends_a_stream_and_no_other(site: Site, echo: int) -> None:
    async with site.carrier() as carrier:
        carrier.send([opened(1, echo), opened(2, echo)])
        carrier.send([tony_pb2.TunnelFrame(stream=1, credit=1)])  # of what was never sent
        carrier.send([data(2, b"x")])
        await site.until(lambda: site.data(2))
        assert "never sent" in site.why(1)[0]
        carrier.send([data(2, bytes(TUNNEL_WINDOW)), data(2, bytes(TUNNEL_WINDOW))])
        await site.until(lambda: site.why(2))
        assert "were sent, but only" in site.why(2)[0]


async def test_an_executor_that_sends_more_than_was_agreed_is_cut_off(site: Site, echo: int) -> None:
    async with site.carrier() as carrier:
        carrier.send([opened(1, echo), data(1, b"x")])
        await site.until(lambda: site.data(1))
        (number,) = {frame.stream for frame in site.link.sent_frames}
        for _ in range(3):
            site.link.send(tony_pb2.FromExecutor(tunnel=tony_pb2.TunnelFrames(frames=[data(number, bytes(60000))])))
        await site.until(lambda: site.why(1))
        assert "were sent, but only" in site.why(1)[0]
        site.link.send(tony_pb2.FromExecutor(tunnel=tony_pb2.TunnelFrames(frames=[data(number + 1, b"nobody's")])))


async def test_streams_are_bounded(site: Site, echo: int) -> None:
    async with site.carrier() as carrier:
        carrier.send([opened(number, echo) for number in range(TUNNEL_STREAMS + 1)])
        await site.until(lambda: site.why(TUNNEL_STREAMS))
        assert "already has 64 open connections" in site.why(TUNNEL_STREAMS)[0]
        carrier.send([tony_pb2.TunnelFrame(stream=0, closed=""), opened(99, echo), data(99, b"there is room again")])
        await site.until(lambda: site.data(99))


@pytest.mark.parametrize(
    ("task", "port", "why"),
    [
        ("worker:7", 20001, "no executor of worker:7 is connected"),
        (TASK, 80, "port 80 is not of this task"),
        (TASK, 0, "no process listens on port 20001"),
    ],
)
async def test_why_a_stream_cannot_be_opened_is_told(site: Site, task: str, port: int, why: str) -> None:
    async with site.carrier() as carrier:
        carrier.send([opened(1, port, task)])
        await site.until(lambda: site.why(1))
    assert why in site.why(1)[0]


async def test_a_server_of_another_container_of_the_same_user_is_not_reached(site: Site) -> None:
    with other_container() as port:
        async with site.carrier() as carrier:
            carrier.send([opened(1, port), data(1, b"open")])
            await site.until(lambda: site.why(1) or site.data(1))
    assert site.data(1) == b""
    assert site.why(1) == [f"port {port} belongs to a process outside of this task's container"]


async def test_the_end_of_an_executor_ends_its_streams(site: Site, echo: int) -> None:
    async with site.carrier() as carrier:
        carrier.send([opened(1, echo), data(1, b"x")])
        await site.until(lambda: site.data(1))
        site.streams.ended(site.link.stream)
        await site.until(lambda: site.why(1))
    assert site.why(1) == [f"the executor of {TASK} disconnected"]


async def test_a_tunnel_is_for_those_who_may_modify_the_application(site: Site) -> None:
    assert site.tunnels.route.access is AccessType.MODIFY


async def test_tunnels_are_bounded_for_one_user_and_for_all(site: Site) -> None:
    for number in range(TUNNELS_OF_ONE):
        assert (await begun(site, "alice", f"a{number}")).status == 200
    refused = await begun(site, "alice", "one more")
    assert (refused.status, "'alice' already has 4 tunnels" in refused.json()["error"]) == (429, True)
    for number in range(MOST_TUNNELS - TUNNELS_OF_ONE):
        assert (await begun(site, "bob", f"b{number}")).status == 200
    assert "already has 8 open tunnels" in (await begun(site, "carol", "c")).json()["error"]
    somebody_elses = await begun(site, "bob", "a0")
    assert (somebody_elses.status, somebody_elses.json()["error"]) == (403, "this tunnel belongs to another user")


async def test_a_tunnel_that_the_master_does_not_know_is_lost(site: Site) -> None:
    async with site.carrier():
        site.tunnels._open.clear()
        with pytest.raises(TunnelLost, match="this tunnel does not exist any more"):
            await asyncio.wait_for(site.running, DEADLINE)


async def test_connections_go_through_again_by_a_tunnel_to_the_next_master(site: Site, echo: int) -> None:
    news: list[str] = []
    way = TaskTunnel(site.master, TASK, echo, report=news.append)
    await asyncio.to_thread(way.__enter__)
    try:
        assert await echoed(way) == b"hello"
        site.tunnels._open.clear()
        await site.until(lambda: news)
        async with asyncio.timeout(DEADLINE):
            while await echoed(way) != b"hello":
                pass
        assert news[0].startswith("reopening the tunnel after an interruption: ")
    finally:
        await asyncio.to_thread(way.__exit__)


async def echoed(way: TaskTunnel) -> bytes:
    """What comes back of a greeting; nothing where the tunnel is not open."""
    reader, writer = await asyncio.open_connection("127.0.0.1", way.port)
    try:
        writer.write(b"hello")
        return await reader.read(100)
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def test_nobody_has_to_wait_for_a_tunnel_that_does_not_open(site: Site) -> None:
    site.cluster.is_away = True
    over = threading.Event()
    way = TaskTunnel(site.master, TASK, over=over)
    entering = asyncio.ensure_future(asyncio.to_thread(way.__enter__))
    await site.until(lambda: site.cluster.asked)
    over.set()
    assert await asyncio.wait_for(entering, DEADLINE) is way
    await asyncio.to_thread(way.__exit__)


async def test_an_idle_tunnel_gives_its_place_to_another_one_and_says_so(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site.carrier():
        for number in range(TUNNELS_OF_ONE - 1):
            assert (await begun(site, "alice", f"a{number}")).status == 200
        assert (await begun(site, "alice", "one more")).status == 429
        monkeypatch.setattr(tunnel_route, "_IDLE", -1.0)
        assert (await begun(site, "alice", "one more")).status == 200
        with pytest.raises(TunnelEnded, match=r"no data was sent for .* a new tunnel needed its place"):
            await asyncio.wait_for(site.running, DEADLINE)


async def test_an_idle_tunnel_stays_as_long_as_nobody_needs_its_place(
    site: Site, echo: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tunnel_route, "_IDLE", -1.0)
    async with site.carrier() as carrier:
        await begun(site, "bob", "silent")
        site.tunnels._open["silent"].heard -= 1000.0
        await site.until(lambda: "silent" not in site.tunnels._open)  # it was looked who is needed
        carrier.send([opened(1, echo), data(1, b"after lunch")])
        await site.until(lambda: site.data(1) == b"after lunch")


async def test_whoever_comes_back_from_silence_may_open_another_one(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await begun(site, "alice", "of a machine that sleeps")).status == 200
    monkeypatch.setattr(tunnel_route, "_SILENCE", -1.0)
    await site.until(lambda: not site.tunnels._open)
    body = {"tunnel": "of a machine that sleeps", "offset": 3, "received": 0}
    back = await ask(site.cluster.server, "PUT", TUNNEL_PATH, body, {"X-User": "alice"})
    assert (back.status, back.json()["error"]) == (410, "this tunnel does not exist any more")


async def test_a_tunnel_to_an_application_that_has_ended_says_so(site: Site) -> None:
    async with site.carrier():
        site.cluster.is_final = True
        site.tunnels.close()
        with pytest.raises(TunnelEnded, match=f"{ID} has ended as FINISHED"):
            await asyncio.wait_for(site.running, DEADLINE)


async def test_what_is_no_request_of_a_tunnel_is_refused(site: Site) -> None:
    for body, status in (({"tunnel": "x"}, 410), ({"tunnel": "x", "data": "?"}, 400), ({"data": "aGVsbG8="}, 400)):
        answer = await ask(site.cluster.server, "PUT", TUNNEL_PATH, body, {"X-User": "alice"})
        assert (answer.status, bool(answer.json()["error"])) == (status, True)
    broken = {"tunnel": "x", "data": "aGVsbG8gdGhlcmUsIHRoaXMgaXMgbm8gVExT"}
    assert (await ask(site.cluster.server, "PUT", TUNNEL_PATH, broken, {"X-User": "alice"})).status == 400
