"""A site on a real port, with a master that only remembers what it is asked, and a client that speaks plain bytes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import attrs

from tony_provider.runtime.am.gateway import ExecutorRequests, ExecutorStreams
from tony_provider.runtime.am.master import Master as LeadingMaster
from tony_provider.runtime.am.session.actions import Verdict
from tony_provider.runtime.am.session.session_events import Event
from tony_provider.runtime.am.web import web_app
from tony_provider.runtime.am.web.authentication import Authenticator
from tony_provider.runtime.am.web.page import JobPage
from tony_provider.runtime.am.web.server import AccessType, Answer, Head, Router, WebServer
from tony_provider.runtime.am.web.task_logs import LogTails
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.jobspec.model import PortRange, Timeouts
from tony_provider.runtime.protocol.status import JobState, JobStatus
from tony_provider.runtime.storage import LocalStorage

HOST = "127.0.0.1"
PORTS = PortRange(20000, 31999)
DEADLINE = 30.0  # seconds that anything here may take


@attrs.define
class Resizing:
    """Of a job with two workers, which may be five."""

    is_too_late: bool = False

    def refusal(self, counts: Mapping[str, int]) -> str | None:
        return None if counts.keys() == {"worker"} and counts["worker"] <= 5 else f"not {dict(counts)}"


class Sizes:
    def number(self, name: str) -> int:
        return 2


@attrs.define
class Session:
    verdict: Verdict | None = None
    phase: JobState = JobState.RUNNING
    resizing: Resizing = attrs.field(factory=Resizing)
    sizes: Sizes = attrs.field(factory=Sizes)


@attrs.define
class Master:
    """What it was asked, in order."""

    session: Session = attrs.field(factory=Session)
    asked: list[Event] = attrs.field(factory=list)

    def status(self) -> JobStatus:
        return JobStatus("application_1_0001", "digits", JobState.RUNNING, checkpoint=ResumePoint(40, "hdfs://n/c"))

    def post(self, event: Event) -> None:
        self.asked.append(event)

    @property
    def as_master(self) -> LeadingMaster:
        return cast(LeadingMaster, self)


def router(master: Master, timeouts: Timeouts | None = None) -> Router:
    """All that there is."""
    return web_app.make_router(master.as_master, timeouts or Timeouts(), tails(), JobPage(master.status))


def tails() -> LogTails:
    """Nobody has an executor or has kept a log."""
    return LogTails(ExecutorRequests(ExecutorStreams()), LocalStorage(), "file:///nowhere")


class OpenGate(Authenticator):
    """Everybody is alice."""

    def expects(self, source: str) -> bool:
        return True

    async def look_up(self) -> None:
        pass

    async def visitor(self, source: str, head: Head) -> str:
        return "alice"

    async def check(self, user: str, access: AccessType) -> None:
        pass

    def learn(self, access_lists: Mapping[str, str]) -> None:
        pass


@attrs.frozen
class Answered:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        assert self.headers["content-type"] == "application/json"
        return json.loads(self.body)


@asynccontextmanager
async def serving(answer: Answer, authenticator: Authenticator | None = None) -> AsyncIterator[WebServer]:
    """``authenticator`` says who is expected; else everybody is."""
    server = await WebServer.bind(HOST, PORTS)
    try:
        await server.start(answer, (authenticator or OpenGate()).expects)
        yield server
    finally:
        await server.stop()


async def send(server: WebServer, sent: bytes, *, eof: bool = False, source: str = HOST) -> bytes:
    """Everything that comes back until the server closes, which it has to."""
    async with asyncio.timeout(DEADLINE):
        reader, writer = await asyncio.open_connection(HOST, server.address.port, local_addr=(source, 0))
        try:
            writer.write(sent)
            if eof:
                writer.write_eof()
            got = bytearray()
            try:
                while data := await reader.read(65536):
                    got += data
            except ConnectionError:
                pass
            return bytes(got)
        finally:
            writer.transport.abort()


def parsed(answer: bytes) -> Answered:
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    assert first.startswith("HTTP/1.1 "), answer
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    assert len(body) == int(headers["content-length"]) or not body
    return Answered(int(first.split()[1]), headers, body)


async def ask(
    server: WebServer,
    method: str,
    path: str,
    body: object = None,
    headers: Mapping[str, str] | None = None,
    source: str = HOST,
) -> Answered:
    content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: am", f"Content-Length: {len(content)}"]
    kind = {"Content-Type": "application/json"} if method == "PUT" else {}
    lines += [f"{name}: {value}" for name, value in {**kind, **(headers or {})}.items() if value]
    return parsed(await send(server, "\r\n".join([*lines, "", ""]).encode("latin-1") + content, source=source))
