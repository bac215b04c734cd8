"""HTTP over real connections, as badly as anybody may speak it."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.runtime.am.flood import flooding
from tests.runtime.am.web.site import DEADLINE, HOST, PORTS, Master, OpenGate, ask, parsed, router, send, serving
from tests.waiting import until
from tony_provider.runtime.am.web import server as connection_module
from tony_provider.runtime.am.web import server as server_module
from tony_provider.runtime.am.web.authentication import YarnAuthenticator
from tony_provider.runtime.am.web.server import MOST_BODY, MOST_HEAD, Answer, Head, HttpResponse, ReadBody, WebServer
from tony_provider.runtime.am.web.web_app import Routes
from tony_provider.runtime.application import YarnAccess
from tony_provider.runtime.jobspec.model import PortRange


def site() -> Answer:
    return Routes(OpenGate(), router(Master())).answer


async def echo(source: str, head: Head, read_body: ReadBody) -> HttpResponse:
    return HttpResponse(
        200, "text/plain", f"{source} {head.method} {head.path} {head.query} ".encode() + await read_body()
    )


async def connections(server: WebServer, number: int) -> None:
    """Wait until it has so many."""
    await asyncio.to_thread(until, lambda: len(server._connections) == number, f"{number} connections", DEADLINE)


async def test_says_what_it_was_asked() -> None:
    async with serving(echo) as server:
        answered = await ask(server, "PUT", "/a%20b/?c=d%20e", b"body")
    assert answered.status == 200
    assert answered.body == b"127.0.0.1 PUT /a b/ c=d%20e body"
    assert answered.headers["connection"] == "close"


async def test_a_head_has_no_body_but_its_length() -> None:
    async with serving(site()) as server:
        full, head = await ask(server, "GET", "/status"), await ask(server, "HEAD", "/status")
    assert head.status == 200
    assert not head.body
    assert head.headers["content-length"] == full.headers["content-length"]


async def test_who_waits_for_100_gets_it() -> None:
    async with serving(echo) as server:
        reader, writer = await asyncio.open_connection(HOST, server.address.port)
        writer.write(b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        async with asyncio.timeout(DEADLINE):
            assert (await reader.readline()).startswith(b"HTTP/1.1 100")
            writer.write(b"ok")
            rest = await reader.read()
        writer.transport.abort()
    assert rest.endswith(b"ok")


async def test_a_chunked_body_is_read() -> None:
    async with serving(echo) as server:
        head = b"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        answered = parsed(await send(server, head + b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"))
    assert answered.body.endswith(b" abc")


async def test_what_is_too_large_is_refused() -> None:
    async with serving(echo) as server:
        assert (await ask(server, "PUT", "/", b"x" * MOST_BODY)).status == 200
        assert (await ask(server, "PUT", "/", b"x" * (MOST_BODY + 1))).status == 413
        assert (await ask(server, "GET", "/", headers={"X-Large": "x" * 4 * MOST_HEAD})).status == 431


async def test_a_long_answer_arrives_whole() -> None:
    async def much(source: str, head: Head, read_body: ReadBody) -> HttpResponse:
        return HttpResponse(200, "text/plain", b"x" * (8 << 20))

    async with serving(much) as server:
        assert len((await ask(server, "GET", "/")).body) == 8 << 20


async def test_a_fault_of_ours_is_an_answer_too() -> None:
    async def faulty(source: str, head: Head, read_body: ReadBody) -> HttpResponse:
        raise FileNotFoundError("of ours")

    async with serving(faulty) as server:
        answered = await ask(server, "GET", "/")
    assert answered.status == 500
    assert "of ours" not in answered.json()["error"]


@pytest.mark.parametrize(
    ("sent", "constant"),
    [
        (b"", "_HEAD_SECONDS"),
        (b"GET / HTTP/1.1\r\nHos", "_HEAD_SECONDS"),
        (b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc", "_BODY_SECONDS"),
    ],
)
async def test_who_does_not_go_on_is_not_waited_for(
    sent: bytes, constant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, constant, 0.2)
    async with serving(echo) as server:
        assert parsed(await send(server, sent)).status == 408


async def test_an_answer_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "_ANSWER_SECONDS", 0.1)

    async def never(source: str, head: Head, read_body: ReadBody) -> HttpResponse:
        await asyncio.Event().wait()
        raise AssertionError

    async with serving(never) as server:
        assert (await ask(server, "GET", "/")).status == 503


async def test_who_takes_no_answer_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "_SEND_SECONDS", 0.2)

    async def much(source: str, head: Head, read_body: ReadBody) -> HttpResponse:
        return HttpResponse(200, "text/plain", b"x" * (32 << 20))  # more than the kernel takes

    async with serving(much) as server:
        reader, writer = await asyncio.open_connection(HOST, server.address.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        async with asyncio.timeout(DEADLINE):
            await reader.read(1)
            await connections(server, 0)
        writer.transport.abort()


HALVES = [b"", b"GET /status HTTP/1.1\r\nHos", b"PUT /control/stop HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nab"]


@pytest.mark.parametrize(
    ("half", "first", "sources"),
    [*((half, 10, 40) for half in HALVES), (HALVES[0], 2, 1), (HALVES[1], 2, 1)],
    ids=["nothing", "head", "body", "nothing-from-its-host", "head-from-its-host"],
)
async def test_half_requests_do_not_keep_the_proxy_out(half: bytes, first: int, sources: int) -> None:
    """More of them than there are places, from many addresses, or from the proxy's own."""
    gate, cookie = YarnAuthenticator(YarnAccess([], ["127.0.0.2"]), ["alice"]), {"Cookie": "proxy-user=alice"}
    await gate.look_up()
    async with serving(Routes(gate, router(Master())).answer, gate) as server:
        with flooding(HOST, server.address.port, 300, first=first, sources=sources, said=half) as flood:
            await asyncio.to_thread(flood.until_closed, 300)
            for _ in range(10):
                answered = await ask(server, "GET", "/status", headers=cookie, source="127.0.0.2")
                assert answered.status == 200


async def test_whoever_waits_longest_leaves_where_all_places_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_MOST_EXPECTED", 3)
    async with serving(site()) as server, asyncio.timeout(DEADLINE):
        idle = []
        for number in range(3):
            idle.append(await asyncio.open_connection(HOST, server.address.port))
            await connections(server, number + 1)
        assert (await ask(server, "GET", "/status")).status == 200
        assert await idle[0][0].read() == b""  # it has left
        idle[2][1].write(b"GET /status HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (await idle[2][0].read()).startswith(b"HTTP/1.1 200")
        for _, writer in idle:
            writer.transport.abort()


async def test_whole_requests_leave_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_MOST_EXPECTED", 2)
    begun, go_on = asyncio.Semaphore(0), asyncio.Event()

    async def slow(source: str, head: Head, read_body: ReadBody) -> HttpResponse:
        begun.release()
        await go_on.wait()
        return HttpResponse(200, "text/plain", b"done")

    async with serving(slow) as server, asyncio.timeout(DEADLINE):
        asking = [asyncio.ensure_future(ask(server, "GET", "/")) for _ in range(2)]
        for _ in range(2):
            await begun.acquire()
        assert await send(server, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n") == b""
        go_on.set()
        assert [answered.body for answered in await asyncio.gather(*asking)] == [b"done"] * 2


OUT_OF_FILES = """
import asyncio, logging, resource, sys
from tests.runtime.am.flood import flooding
from tests.runtime.am.web.site import PORTS
from tony_provider.runtime.am.web.server import HttpResponse
from tony_provider.runtime.am.web.server import WebServer
from tony_provider.runtime.am.web.authentication import YarnAuthenticator
from tony_provider.runtime.application import YarnAccess

async def echo(source, head, read_body):
    return HttpResponse(200, "text/plain", b"here")

async def main():
    logging.basicConfig(stream=sys.stdout, format="%(message)s")
    server = await WebServer.bind("127.0.0.1", PORTS)
    await server.start(echo)
    taken = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    try:
        while True:
            taken.append(open("/dev/null"))
    except OSError:
        pass
    print(server.address.port, flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    for each in taken:
        each.close()
    await asyncio.to_thread(sys.stdin.readline)
    await server.stop()

asyncio.run(main())
"""


async def test_no_descriptor_for_a_while_is_survived_and_told_once() -> None:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OUT_OF_FILES, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert child.stdin is not None
    assert child.stdout is not None
    async with asyncio.timeout(DEADLINE):
        port = int(await child.stdout.readline())
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        told = await child.stdout.readline()
        assert b"cannot accept connections to the page at present" in told
        child.stdin.write(b"free\n")
        assert (await reader.read()).endswith(b"here")  # the same connection, which has waited
        child.stdin.write(b"end\n")
        assert await child.stdout.read() == b""
        assert await child.wait() == 0
    writer.transport.abort()


async def test_its_port_is_held_from_the_beginning_and_given_back() -> None:
    server = await WebServer.bind(HOST, PORTS)
    port = server.address.port
    only = PortRange(port, port)
    with pytest.raises(OSError, match="no free port"):
        await WebServer.bind(HOST, only)
    await server.start(echo)
    with pytest.raises(OSError, match="no free port"):
        await WebServer.bind(HOST, only)
    await server.stop()
    await server.stop()
    with socket.socket() as probe:
        probe.bind((HOST, port))


async def test_it_listens_on_its_own_address_only() -> None:
    async with serving(echo) as server:
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.9", server.address.port)


async def test_answers_on_their_way_are_sent_before_it_ends() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(source: str, head: Head, read_body: ReadBody) -> HttpResponse:
        begun.set()
        await go_on.wait()
        return HttpResponse(200, "text/plain", b"done")

    server = await WebServer.bind(HOST, PORTS)
    await server.start(slow)
    asking = asyncio.ensure_future(ask(server, "GET", "/"))
    await asyncio.wait_for(begun.wait(), DEADLINE)
    stopping = asyncio.ensure_future(server.stop())
    go_on.set()
    assert (await asking).body == b"done"
    await asyncio.wait_for(stopping, DEADLINE)


_pieces = st.sampled_from(
    [
        b"GET / HTTP/1.1\r\n",
        b"PUT /control/stop HTTP/1.1\r\n",
        b"PUT /control/stop HTTP/1.1\r\nContent-Type: application/json\r\n",
        b"CONNECT a:1 HTTP/1.1\r\n",
        b"OPTIONS * HTTP/1.1\r\n",
        b"GET /status HTTP/1.0\r\n",
        b"Host: a\r\n",
        b"Content-Length: 4\r\n",
        b"Content-Length: -1\r\n",
        b"Content-Length: 99999999999999999999\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Expect: 100-continue\r\n",
        b"Upgrade: websocket\r\nConnection: Upgrade\r\n",
        b"\r\n",
        b"4\r\nabcd\r\n",
        b"0\r\n\r\n",
        b"FFFFFFFFFFFFFFFFF\r\n",
        b'{"reason": "r"}',
        b"[" * 5000,
        b"\x00\xff",
        b"\n",
    ]
)
_sent = st.lists(_pieces | st.binary(max_size=40), max_size=12).map(b"".join)


DEEP = b"PUT /control/stop HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 60000\r\n\r\n"
DEEP += b"[" * 60000


@given(sent=_sent)
@example(sent=DEEP)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_is_sent_is_answered_or_dropped(sent: bytes) -> None:
    async def scenario() -> None:
        async with serving(site()) as server:
            got = await send(server, sent, eof=True)
            while got.startswith(b"HTTP/1.1 100"):
                got = got.partition(b"\r\n\r\n")[2]
            if got:
                assert parsed(got).status in (200, 202, 400, 404, 405, 413, 415, 431, 501), got
            assert (await ask(server, "GET", "/status")).status == 200

    asyncio.run(scenario())
