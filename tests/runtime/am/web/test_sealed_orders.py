"""Orders that only the master can read: both ends, with HTTP between them."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.runtime.am.web.site import OpenGate, ask, serving
from tony_provider.cluster.application_secrets import application_secrets
from tony_provider.cluster.errors import UnexpectedAnswer
from tony_provider.cluster.token_refresh import send_sealed
from tony_provider.runtime.am.web.control import SealedOrders
from tony_provider.runtime.am.web.server import AccessType, Head, HttpError, Route, Router, WebServer
from tony_provider.runtime.am.web.web_app import Routes
from tony_provider.runtime.common import contract
from tony_provider.runtime.protocol.http_messages import LONGEST_MESSAGE, TlsPipe, client_context, master_context

ID, OTHER = "application_1700000000000_0001", "application_1700000000000_0002"
ORDER = b'{"token":"the secret"}'


@attrs.frozen
class Between:
    """What stands between both ends, and reads it all."""

    server: WebServer
    authority: str
    seen: list[dict[str, Any]] = attrs.field(factory=list)
    change: Callable[[dict[str, Any]], dict[str, Any]] = lambda part: part

    async def put(self, body: object) -> Any:
        return await ask(self.server, "PUT", "/sealed", body, {"X-User": "alice"})

    async def send(self, order: bytes = ORDER, *, application_id: str = ID, authority: str = "") -> bytes:
        loop = asyncio.get_running_loop()

        def carry(body: dict[str, Any]) -> dict[str, Any]:
            answer = asyncio.run_coroutine_threadsafe(self.put(self.change(body)), loop).result()
            if answer.status != HTTPStatus.OK:
                raise UnexpectedAnswer(answer.json()["error"])
            self.seen.extend([body, answer.json()])
            return dict(answer.json())

        return await asyncio.to_thread(send_sealed, carry, application_id, authority or self.authority, order)


class ByHeader(OpenGate):
    async def visitor(self, source: str, head: Head) -> str:
        return head.values("x-user")[0]


@pytest.fixture
def obeyed() -> list[tuple[str, bytes]]:
    return []


@pytest.fixture
async def between(
    obeyed: list[tuple[str, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Between]:
    monkeypatch.chdir(tmp_path)
    secrets = application_secrets(ID, {})

    async def obey(user: str, order: bytes) -> bytes:
        if order == b"refuse":
            raise HttpError(HTTPStatus.BAD_REQUEST, "it is not taken")
        obeyed.append((user, order))
        return b'{"done":true}'

    orders = SealedOrders(master_context(secrets), obey)
    assert _files(tmp_path) == []  # the key that TLS has read from a file is not left there
    router = Router([Route("PUT", "/sealed", AccessType.MODIFY, orders.put)])
    async with serving(Routes(ByHeader(), router).answer) as server:
        yield Between(server, secrets[contract.SECRET_CA].decode())


async def test_an_order_arrives_and_is_answered(between: Between, obeyed: list[tuple[str, bytes]]) -> None:
    assert await between.send() == b'{"done":true}'
    assert obeyed == [("alice", ORDER)]
    assert len(between.seen) == 4  # two requests


async def test_whoever_stands_between_reads_nothing(between: Between) -> None:
    await between.send()
    carried = b"".join(base64.b64decode(part["data"]) for part in between.seen)
    assert b"secret" not in carried
    assert b"done" not in carried


async def test_one_of_the_largest_arrives(between: Between, obeyed: list[tuple[str, bytes]]) -> None:
    await between.send(b"x" * LONGEST_MESSAGE)
    assert obeyed == [("alice", b"x" * LONGEST_MESSAGE)]


async def test_a_larger_one_is_refused(between: Between, obeyed: list[tuple[str, bytes]]) -> None:
    with pytest.raises(UnexpectedAnswer, match="a message has more than 16384 bytes"):
        await between.send(b"x" * (LONGEST_MESSAGE + 1))
    assert obeyed == []


async def test_why_an_order_is_not_taken_is_told(between: Between) -> None:
    with pytest.raises(UnexpectedAnswer, match="it is not taken"):
        await between.send(b"refuse")


async def test_nothing_is_sent_to_the_master_of_another_application(
    between: Between, obeyed: list[tuple[str, bytes]]
) -> None:
    with pytest.raises(UnexpectedAnswer, match=f"not the application's master.*{OTHER}"):
        await between.send(application_id=OTHER)
    strangers = application_secrets(ID, {})[contract.SECRET_CA].decode()
    with pytest.raises(UnexpectedAnswer, match="not the application's master"):
        await between.send(authority=strangers)
    assert obeyed == []


async def test_what_was_changed_on_its_way_is_not_obeyed(between: Between, obeyed: list[tuple[str, bytes]]) -> None:
    def tamper(part: dict[str, Any]) -> dict[str, Any]:
        data = bytearray(base64.b64decode(part["data"]))
        data[-1] ^= 1
        return {**part, "data": base64.b64encode(bytes(data)).decode()}

    changed = attrs.evolve(between, change=lambda part: tamper(part) if between.seen else part)
    with pytest.raises(UnexpectedAnswer):
        await changed.send()
    assert obeyed == []


async def test_an_order_cannot_be_replayed(between: Between, obeyed: list[tuple[str, bytes]]) -> None:
    await between.send()
    for part in between.seen[::2]:
        await between.put(part)
    assert len(obeyed) == 1


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param({"conversation": "a"}, id="no data"),
        pytest.param({"conversation": "a", "data": "no base64!"}, id="no base64"),
        pytest.param({"conversation": "a", "data": "aGVsbG8gdGhlcmUsIHRoaXMgaXMgbm8gVExT"}, id="no TLS"),
    ],
)
async def test_anything_else_is_refused(between: Between, body: object) -> None:
    answer = await between.put(body)
    assert answer.status == HTTPStatus.BAD_REQUEST
    assert answer.json()["error"]
    assert await between.send() == b'{"done":true}'


async def test_a_conversation_is_its_beginners_alone(between: Between) -> None:
    hello = {"conversation": "mine", "data": _hello(between.authority)}
    await between.put(hello)
    answer = await ask(between.server, "PUT", "/sealed", hello, {"X-User": "bob"})
    assert answer.status == HTTPStatus.FORBIDDEN


async def test_many_that_are_begun_keep_nobody_out(between: Between) -> None:
    for number in range(100):
        answer = await between.put({"conversation": str(number), "data": _hello(between.authority)})
        assert answer.status == HTTPStatus.OK
    assert json.loads(await between.send()) == {"done": True}


def _files(directory: Path) -> list[Path]:
    return list(directory.iterdir())


def _hello(authority: str) -> str:
    return base64.b64encode(TlsPipe(client_context(authority), ID).give()).decode()
