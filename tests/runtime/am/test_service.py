"""Who may speak to the application master, over real connections."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import grpc
import grpc.aio
import pytest

from tests.runtime.am.flood import Flood, flooding
from tests.runtime.certificates import make_certificates
from tests.waiting import until
from tony_provider.runtime.am import message_limits
from tony_provider.runtime.am.executor_server import ExecutorService, Listener, Server, Stream
from tony_provider.runtime.jobspec.model import PortRange
from tony_provider.runtime.protocol import limits, task_identity, tony_pb2, tony_pb2_grpc
from tony_provider.runtime.protocol import limits as timing
from tony_provider.runtime.protocol.task_identity import (
    TaskIdentity,
    call_metadata,
    channel_credentials,
    channel_options,
    make_token,
)

APPLICATION_ID = "application_1700000000000_0007"
KEY = b"k" * 32
PORTS = PortRange(20000, 31999)
DEADLINE = 30
IDENTITY = TaskIdentity(APPLICATION_ID, "container_1700000000000_0007_01_000002", "worker:0", 1)
REGISTRATION = tony_pb2.FromExecutor(registration=tony_pb2.Registration(host="h", ports={"main": 1}))


@attrs.define(eq=False)
class Recorder(Listener):
    refused: str | None = None
    asked: int = 0
    events: asyncio.Queue[tuple[str, Any]] = attrs.field(factory=asyncio.Queue)

    def refusal(self, identity: TaskIdentity) -> str | None:
        self.asked += 1
        return self.refused

    def attached(self, stream: Stream, registration: tony_pb2.Registration) -> None:
        self.events.put_nowait(("attached", stream))

    def received(self, stream: Stream, message: tony_pb2.FromExecutor) -> None:
        self.events.put_nowait(("received", message))

    def detached(self, stream: Stream) -> None:
        self.events.put_nowait(("detached", stream))

    async def next(self, kind: str) -> Any:
        got, value = await asyncio.wait_for(self.events.get(), DEADLINE)
        assert got == kind
        return value


@attrs.define
class Setting:
    server: Server
    listener: Recorder
    secrets: dict[str, bytes]

    def channel(self, secrets: dict[str, bytes] | None = None) -> Any:
        return grpc.aio.secure_channel(
            str(self.server.address),
            channel_credentials(secrets or self.secrets),
            options=channel_options(APPLICATION_ID),
        )


@pytest.fixture
async def setting() -> AsyncIterator[Setting]:
    secrets = make_certificates(APPLICATION_ID)
    listener = Recorder()
    service = ExecutorService(APPLICATION_ID, KEY, listener)
    server = Server.bind(secrets, "127.0.0.1", PORTS)
    await server.start(service)
    yield Setting(server, listener, secrets)
    await server.stop()


def attach(channel: Any, identity: TaskIdentity = IDENTITY, token: str | None = None) -> Any:
    metadata = call_metadata(identity, make_token(KEY, identity) if token is None else token)
    return tony_pb2_grpc.ApplicationMasterStub(channel).Attach(metadata=metadata, timeout=DEADLINE)


async def refusal(call: Any, first: tony_pb2.FromExecutor | None = None) -> tuple[grpc.StatusCode, str]:
    """With what the call ends. What is refused by its metadata gets no message: gRPC overwrites the server's status by
    INTERNAL where a write meets the end of the call (the executor's link tries again then)."""
    try:
        if first is not None:
            await call.write(first)
        await call.read()
    except grpc.aio.AioRpcError:
        pass
    return await call.code(), await call.details()


async def test_messages_go_both_ways(setting: Setting) -> None:
    async with setting.channel() as channel:
        call = attach(channel)
        await call.write(REGISTRATION)
        stream: Stream = await setting.listener.next("attached")
        assert stream.identity == IDENTITY
        await call.write(tony_pb2.FromExecutor(heartbeat=tony_pb2.Heartbeat(rss_bytes=5)))
        assert (await setting.listener.next("received")).heartbeat.rss_bytes == 5
        stream.send(tony_pb2.ToExecutor(shutdown=tony_pb2.Shutdown(reason="over")))
        assert (await call.read()).shutdown.reason == "over"
        await call.done_writing()
        await setting.listener.next("detached")
        assert await call.code() is grpc.StatusCode.OK


async def test_lost_connection_is_noticed(setting: Setting) -> None:
    channel = setting.channel()
    call = attach(channel)
    await call.write(REGISTRATION)
    stream = await setting.listener.next("attached")
    await channel.close()
    assert await setting.listener.next("detached") is stream


@pytest.mark.parametrize("token", ["", "0" * 64, make_token(b"other", IDENTITY)])
async def test_wrong_token_is_denied(setting: Setting, token: str) -> None:
    async with setting.channel() as channel:
        code, _ = await refusal(attach(channel, token=token))
    assert code is grpc.StatusCode.PERMISSION_DENIED
    assert setting.listener.events.empty()


@pytest.mark.parametrize("change", [{"task": "worker:1"}, {"attempt": 2}, {"container_id": "container_1_1_01_000003"}])
async def test_task_cannot_act_as_another(setting: Setting, change: dict[str, Any]) -> None:
    own = make_token(KEY, IDENTITY)
    async with setting.channel() as channel:
        code, _ = await refusal(attach(channel, attrs.evolve(IDENTITY, **change), own))
    assert code is grpc.StatusCode.PERMISSION_DENIED


async def test_former_attempt_is_told_so(setting: Setting) -> None:
    setting.listener.refused = "attempt 1 was replaced"
    async with setting.channel() as channel:
        assert await refusal(attach(channel)) == (grpc.StatusCode.FAILED_PRECONDITION, "attempt 1 was replaced")


async def send_when_replaced(
    setting: Setting, channel: grpc.aio.Channel, *messages: tony_pb2.FromExecutor, dismissed: bool = False
) -> Any:
    """The stream of an attempt that is replaced, and perhaps dismissed, before it sends its last messages."""
    call = attach(channel)
    await call.write(REGISTRATION)
    (await setting.listener.next("attached")).is_dismissed = dismissed
    setting.listener.refused = "attempt 1 was replaced"
    for message in messages:
        await call.write(message)
    await call.done_writing()
    return call


async def test_attempt_that_is_replaced_meanwhile_learns_that_its_message_was_dropped(setting: Setting) -> None:
    async with setting.channel() as channel:
        call = await send_when_replaced(setting, channel, tony_pb2.FromExecutor(heartbeat=tony_pb2.Heartbeat()))
        await setting.listener.next("detached")
        assert await call.code() is grpc.StatusCode.ABORTED


async def test_the_log_of_an_attempt_that_is_replaced_meanwhile_arrives(setting: Setting) -> None:
    last_words = tony_pb2.FromExecutor(last_words=tony_pb2.LastWords(output=b"the log"))
    async with setting.channel() as channel:
        call = await send_when_replaced(setting, channel, last_words)
        assert (await setting.listener.next("received")).last_words.output == b"the log"
        await setting.listener.next("detached")
        assert await call.code() is grpc.StatusCode.OK


async def test_the_log_of_a_dismissed_attempt_arrives_after_its_last_reports(setting: Setting) -> None:
    reports = (
        tony_pb2.FromExecutor(checkpoint_state=tony_pb2.CheckpointState(start=1, last=True)),
        tony_pb2.FromExecutor(settled=tony_pb2.Settled(start=1)),
        tony_pb2.FromExecutor(heartbeat=tony_pb2.Heartbeat()),
    )
    last_words = tony_pb2.FromExecutor(last_words=tony_pb2.LastWords(output=b"the log"))
    async with setting.channel() as channel:
        call = await send_when_replaced(setting, channel, *reports, last_words, dismissed=True)
        assert (await setting.listener.next("received")).last_words.output == b"the log"
        await setting.listener.next("detached")
        assert await call.code() is grpc.StatusCode.OK


async def test_a_dismissed_attempt_that_waits_for_an_answer_learns_that_there_is_none(setting: Setting) -> None:
    entry = tony_pb2.DirectoryEntry(name="a", news=True)
    wants_upload = tony_pb2.FromExecutor(checkpoint_state=tony_pb2.CheckpointState(start=1, entries=[entry]))
    async with setting.channel() as channel:
        call = await send_when_replaced(setting, channel, wants_upload, dismissed=True)
        await setting.listener.next("detached")
        assert await call.code() is grpc.StatusCode.ABORTED


async def test_a_stream_that_the_master_closes_first_did_not_deliver_all(setting: Setting) -> None:
    async with setting.channel() as channel:
        call = attach(channel)
        await call.write(REGISTRATION)
        (await setting.listener.next("attached")).close()
        await setting.listener.next("detached")
        assert await call.code() is grpc.StatusCode.ABORTED


async def test_registration_comes_first(setting: Setting) -> None:
    async with setting.channel() as channel:
        heartbeat = tony_pb2.FromExecutor(heartbeat=tony_pb2.Heartbeat())
        code, _ = await refusal(attach(channel), heartbeat)
    assert code is grpc.StatusCode.INVALID_ARGUMENT


async def test_certificate_of_another_application_is_not_let_in(setting: Setting) -> None:
    others = make_certificates(APPLICATION_ID)
    mixed = {**others, "tony.ca": setting.secrets["tony.ca"]}
    async with setting.channel(mixed) as channel:
        code, _ = await refusal(attach(channel))
    assert code is grpc.StatusCode.UNAVAILABLE
    assert setting.listener.events.empty()


async def test_listens_on_the_given_address_only(setting: Setting) -> None:
    address = setting.server.address
    assert PORTS.first <= address.port <= PORTS.last
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.9", address.port)


async def test_no_free_port_is_an_error_that_names_the_range(setting: Setting) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"no free port on 127.0.0.1 in {port}-{port}"):
            Server.bind(setting.secrets, "127.0.0.1", PortRange(port, port))


# ---- strangers, and tasks that mean harm -------------------------------------------------------------------------


CLIENT_HELLO = bytes.fromhex("160301012a") + b"\x01\x00\x01\x26\x03\x03"  # and no more of it


@asynccontextmanager
async def small_server(connections: int) -> AsyncIterator[Setting]:
    secrets = make_certificates(APPLICATION_ID)
    listener = Recorder()
    server = Server.bind(secrets, "127.0.0.1", PORTS, connections=connections)
    await server.start(ExecutorService(APPLICATION_ID, KEY, listener))
    try:
        yield Setting(server, listener, secrets)
    finally:
        await server.stop()


async def come(setting: Setting, identity: TaskIdentity = IDENTITY) -> tuple[Any, Any]:
    """As an executor's link does: again, until it is let in."""
    return await asyncio.wait_for(_come(setting, identity), DEADLINE)


async def _come(setting: Setting, identity: TaskIdentity) -> tuple[Any, Any]:
    while True:
        channel = setting.channel()
        call = attach(channel, identity)
        try:
            await call.write(REGISTRATION)
            await setting.listener.next("attached")
        except grpc.aio.AioRpcError:
            await channel.close()
            await asyncio.sleep(0.2)
        else:
            return channel, call


@pytest.mark.parametrize("said", [b"", CLIENT_HELLO], ids=["silent", "half-a-handshake"])
async def test_executors_get_in_while_strangers_take_every_connection(
    said: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with small_server(connections=40) as setting:
        port = setting.server.address.port
        with flooding("127.0.0.1", port, 60, said=said) as flood:
            await asyncio.to_thread(flood.until_closed, 60)
            first, call = await come(setting)
            other = attrs.evolve(IDENTITY, task="worker:1")
            second, _ = await come(setting, other)
            await call.write(tony_pb2.FromExecutor(heartbeat=tony_pb2.Heartbeat(rss_bytes=7)))
            assert (await setting.listener.next("received")).heartbeat.rss_bytes == 7
            await second.close()
            await setting.listener.next("detached")
            second, _ = await come(setting, other)
        for channel in (first, second):
            await channel.close()
    told = [record for record in caplog.records if "too many unauthenticated connections" in record.message]
    assert len(told) == 1
    assert "127.0.0.1 (" in told[0].message


async def test_all_executors_of_a_large_job_may_connect_before_the_first_is_authenticated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Closed ones would connect again: a slow master of 3,000 tasks was busy with handshakes, and started nothing."""
    tasks, newcomers = 20, 8
    monkeypatch.setattr(message_limits, "_NEWCOMERS", newcomers)
    monkeypatch.setattr(message_limits, "_RARELY", 0.01)
    async with small_server(connections=tasks + newcomers) as setting:
        waiting = Flood("127.0.0.1", setting.server.address.port, tasks)
        waiting.start()
        try:
            await asyncio.to_thread(until, lambda: waiting.opened >= tasks, "connections")
            for number in range(3):
                channel, _ = await come(setting, attrs.evolve(IDENTITY, task=f"worker:{number}"))
                await channel.close()
                await setting.listener.next("detached")
            assert waiting.closed == 0
        finally:
            await asyncio.to_thread(waiting.stop)


async def test_a_connection_that_proves_nothing_is_closed_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_identity, "_HANDSHAKE", 0.5)
    monkeypatch.setattr(timing, "connect_timeout", lambda tasks: 0.5)
    async with small_server(connections=40) as setting:
        reader, writer = await asyncio.open_connection("127.0.0.1", setting.server.address.port)
        await asyncio.wait_for(reader.read(), DEADLINE)  # what TLS has to say, until the end
        writer.transport.abort()


async def test_a_task_has_few_streams_on_one_connection(setting: Setting) -> None:
    """Whoever has its credentials opens as many as it likes, and waits for its turn with all but a few."""
    async with setting.channel() as channel:
        calls = [attach(channel) for _ in range(50)]
        await asyncio.to_thread(until, lambda: setting.listener.asked == 4, "four are looked at", DEADLINE)
        async with setting.channel() as other:
            await registered(setting, other)
        assert setting.listener.asked == 5
        for call in calls:
            call.cancel()


async def registered(setting: Setting, channel: Any) -> Any:
    call = attach(channel)
    await call.write(REGISTRATION)
    await setting.listener.next("attached")
    return call


async def test_what_is_too_large_is_refused_unread_and_told_once(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    progress = tony_pb2.Progress(metrics={f"m{each}": 1.0 for each in range(300_000)})
    too_large = tony_pb2.FromExecutor(heartbeat=tony_pb2.Heartbeat(progress=progress))
    assert too_large.ByteSize() > limits.LARGEST_HEARTBEAT
    async with setting.channel() as channel:
        call = await registered(setting, channel)
        for _ in range(3):
            await call.write(too_large)
        await call.write(tony_pb2.FromExecutor(heartbeat=tony_pb2.Heartbeat(rss_bytes=5)))
        assert (await setting.listener.next("received")).heartbeat.rss_bytes == 5
    told = [record.message for record in caplog.records if "rejected" in record.message]
    assert len(told) == 1
    assert told[0].startswith("worker:0 sent a rejected message: a message of the kind heartbeat has")


async def test_what_is_too_much_is_cut_and_told_once(setting: Setting, caplog: pytest.LogCaptureFixture) -> None:
    metrics = {f"metric {each:04}": 1.0 for each in range(limits.MOST_METRICS + 50)} | {"n" * 251: 1.0}
    beat = tony_pb2.Heartbeat(progress=tony_pb2.Progress(step=3, metrics=metrics), activity="a" * 100_000)
    beat.further.add(progress=tony_pb2.Progress(metrics=metrics))
    async with setting.channel() as channel:
        call = await registered(setting, channel)
        for _ in range(2):
            await call.write(tony_pb2.FromExecutor(heartbeat=beat))
            got = (await setting.listener.next("received")).heartbeat
            assert got.progress.step == 3
            assert len(got.progress.metrics) == len(got.further[0].progress.metrics) == limits.MOST_METRICS
            assert "n" * 251 not in got.progress.metrics
            assert len(got.activity) == limits.LONGEST_LABEL
        long = tony_pb2.ProcessExited(output_tail="x" * 20_000 + "the end", error="e" * 50_000)
        await call.write(tony_pb2.FromExecutor(exited=long))
        exited = (await setting.listener.next("received")).exited
        assert (len(exited.output_tail), exited.output_tail[-7:]) == (limits.OUTPUT_TAIL, "the end")
        assert len(exited.error) == limits.LONGEST_TEXT
    told = sorted(record.message.split()[4] for record in caplog.records if "the excess is dropped" in record.message)
    assert told == ["activity", "error", "metrics", "output_tail"]


async def test_what_a_terminal_obeys_gets_no_further(setting: Setting) -> None:
    hostile = "a\x1b[2J\u202eb\x07\nc"
    beat = tony_pb2.Heartbeat(activity=hostile, trouble=hostile, progress=tony_pb2.Progress(step=3))
    beat.progress.metrics.update({"loss %": 1.0, "lo\u202ess": 2.0, "\x1b[2Jloss": 3.0, "two\nlines": 4.0})
    async with setting.channel() as channel:
        call = await registered(setting, channel)
        await call.write(tony_pb2.FromExecutor(heartbeat=beat))
        got = (await setting.listener.next("received")).heartbeat
        assert (got.activity, got.trouble) == ("ab c", "ab\nc")
        assert dict(got.progress.metrics) == {"loss %": 1.0}
        exited = tony_pb2.ProcessExited(error=hostile, process=hostile, output_tail=hostile, not_kept=hostile)
        await call.write(tony_pb2.FromExecutor(exited=exited))
        end = (await setting.listener.next("received")).exited
        assert (end.error, end.process, end.output_tail, end.not_kept) == ("ab\nc", "ab c", "ab\nc", "ab\nc")


@pytest.mark.parametrize(
    ("registration", "why"),
    [
        (tony_pb2.Registration(host="a host", ports={"main": 1}), "'a host' is not a valid host name"),
        (tony_pb2.Registration(host="h" * 256, ports={"main": 1}), "is not a valid host name"),
        (tony_pb2.Registration(host="h", ports={"main": 65536}), "'main': 65536 is not valid"),
        (tony_pb2.Registration(host="h", ports={"\u202emain": 1}), "1 is not valid"),
        (tony_pb2.Registration(host="h", ports={str(each): 1 for each in range(5000)}), "5000 ports, more than"),
    ],
)
async def test_other_tasks_are_not_told_of_what_is_no_address(
    setting: Setting, registration: tony_pb2.Registration, why: str
) -> None:
    async with setting.channel() as channel:
        code, details = await refusal(attach(channel), tony_pb2.FromExecutor(registration=registration))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert why in details


async def test_who_speaks_too_fast_is_heard_later_and_keeps_nobody_waiting(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MESSAGES_IN_ONE_GO", 20)
    monkeypatch.setattr(limits, "MESSAGES_A_SECOND", 0.001)
    async with setting.channel() as hasty_channel, setting.channel() as channel:
        hasty = await registered(setting, hasty_channel)

        async def chatter() -> None:
            for number in range(1_000_000):
                await hasty.write(tony_pb2.FromExecutor(heartbeat=tony_pb2.Heartbeat(rss_bytes=number)))

        chattering = asyncio.ensure_future(chatter())
        heard = [(await setting.listener.next("received")).heartbeat.rss_bytes for _ in range(19)]
        assert heard == list(range(19))  # the registration was the first
        other = attach(channel, attrs.evolve(IDENTITY, task="worker:1"))
        await other.write(REGISTRATION)
        await setting.listener.next("attached")  # and nothing of the hasty one came before
        await other.write(tony_pb2.FromExecutor(heartbeat=tony_pb2.Heartbeat(activity="other")))
        assert (await setting.listener.next("received")).heartbeat.activity == "other"
        chattering.cancel()
        await asyncio.gather(chattering, return_exceptions=True)
        assert setting.listener.events.empty()


async def test_who_does_not_read_loses_the_stream_and_nothing_is_kept_for_it(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    async with setting.channel() as channel:
        call = attach(channel)
        await call.write(REGISTRATION)
        stream: Stream = await setting.listener.next("attached")
        lines = bytes(256 << 10)
        for _ in range(10_000):  # as one that asks for its part without end
            stream.send(tony_pb2.ToExecutor(input_part=tony_pb2.InputPart(lines=lines)))
            assert stream._outbox.qsize() <= 1000
            if stream.overrun:
                break
        assert stream.overrun
        assert stream._outbox.qsize() <= 1
        assert await setting.listener.next("detached") is stream
        stream.send(tony_pb2.ToExecutor(shutdown=tony_pb2.Shutdown(reason="late")))
        assert stream._outbox.qsize() <= 1
        assert await call.code() is grpc.StatusCode.UNAVAILABLE
    assert "worker:0 does not read its messages in time" in caplog.text


async def test_a_stream_that_ends_waits_for_no_reader_for_long(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tony_provider.runtime.am.executor_server._LAST_MESSAGES", 0.1)
    async with setting.channel() as channel:
        call = attach(channel)
        await call.write(REGISTRATION)
        stream: Stream = await setting.listener.next("attached")
        for _ in range(64):
            stream.send(tony_pb2.ToExecutor(input_part=tony_pb2.InputPart(lines=bytes(512 << 10))))
        stream.close()
        assert await setting.listener.next("detached") is stream
        assert await call.code() is grpc.StatusCode.UNAVAILABLE
