from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import attrs
import pytest

from tests.runtime.am.input_shards.conftest import ADDRESS, MakeSite, Site, StandInSession
from tony_provider.runtime.am import input_shards
from tony_provider.runtime.am.checkpoint_chain import SupersededError
from tony_provider.runtime.am.input_shards import OpenedInput, QueuedShards
from tony_provider.runtime.inputs.finding import BadInputError, find_shards
from tony_provider.runtime.inputs.shards import CommitLog, InputShard, ShardCommit, ShardReader, read_log
from tony_provider.runtime.jobspec.model import Duration, InputDeal, InputSpec, Timeouts
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.protocol.status import JobState
from tony_provider.runtime.storage import StoragePermissionDenied, StorageUnreachable, uris

DEADLINE = 60
A, B = ShardReader("worker:0", 1, 1), ShardReader("worker:1", 1, 1)


@attrs.define
class Desk:
    """What two readers say to the queue, and hear."""

    site: Site
    session: StandInSession = attrs.field(factory=lambda: StandInSession(running={A, B}))
    events: list[str] = attrs.field(factory=list)
    failures: list[str] = attrs.field(factory=list)
    numbers: count[int] = attrs.field(factory=lambda: count(1))
    shards: QueuedShards = attrs.field(init=False)
    running: asyncio.Future[None] = attrs.field(init=False)

    @asynccontextmanager
    async def working(self, am_attempt: int = 1, opened: OpenedInput | None = None) -> AsyncIterator[None]:
        """An application master's life."""
        ownership = attrs.evolve(self.site.ownership, am_attempt=am_attempt)
        session = self.session.as_session
        opened = opened or self.site.open(am_attempt)
        self.shards = QueuedShards(
            opened, session, ownership, lambda event, _: self.events.append(event), self.failures.append
        )
        self.running = asyncio.ensure_future(self.shards.run())
        yield
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)

    def say(self, reader: ShardReader, **what: object) -> asyncio.Future[tony_pb2.ShardAnswer]:
        answer: asyncio.Future[tony_pb2.ShardAnswer] = asyncio.get_running_loop().create_future()
        fields = {"request": next(self.numbers), **what}
        message = tony_pb2.ShardRequest(start=reader.start, name="data", **fields)  # type: ignore[arg-type]
        self.shards.requested(reader, message, answer.set_result)
        return answer

    async def hear(self, reader: ShardReader, **what: object) -> tony_pb2.ShardAnswer:
        return await asyncio.wait_for(self.say(reader, **what), DEADLINE)

    @property
    def commits(self) -> list[ShardCommit]:
        directory = uris.join(self.site.ownership.description.application_dir, "inputs", "data.commits")
        return list(read_log(self.site.ownership.storage, directory))


@pytest.fixture
def desk(site: MakeSite) -> Desk:
    return Desk(site(3, InputDeal.QUEUE))


async def test_a_commit_is_on_the_store_when_it_is_answered(desk: Desk) -> None:
    async with desk.working():
        first = await desk.hear(A, take=True)
        assert (first.shard, '"size":0' in first.line) == (0, True)
        assert (await desk.hear(A, done=0, outputs=["out"], take=True)).shard == 1
        assert [(each.shard, each.reader, each.outputs) for each in desk.commits] == [(0, A, ["out"])]


async def test_a_store_that_is_away_delays_a_commit(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tony_provider.runtime.common.concurrency.FIRST_PAUSE", 0.05)
    asked, there = asyncio.Event(), False
    loop, add = asyncio.get_running_loop(), CommitLog.add

    def fail_first(log: CommitLog, settled: list[ShardCommit]) -> None:
        if not there:
            loop.call_soon_threadsafe(asked.set)
            raise StorageUnreachable("x", "write", "a test")
        add(log, settled)

    monkeypatch.setattr(CommitLog, "add", fail_first)
    async with desk.working():
        await desk.hear(A, take=True)
        answer = desk.say(A, done=0)
        await asyncio.wait_for(asked.wait(), DEADLINE)
        assert not answer.done()
        there = True
        assert (await asyncio.wait_for(answer, DEADLINE)).problem == ""
        assert desk.events == ["store_unavailable"]
        assert len(desk.commits) == 1


async def test_a_store_that_refuses_commits_for_good_is_the_job_s_failure(
    site: MakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tony_provider.runtime.common.concurrency.FIRST_PAUSE", 0.01)
    desk = Desk(site(3, InputDeal.QUEUE, timeouts=Timeouts(upload=Duration(0.1))))

    def refuse(log: CommitLog, settled: list[ShardCommit]) -> None:
        raise StoragePermissionDenied("file:///inputs", "write", "you may not")

    monkeypatch.setattr(CommitLog, "add", refuse)
    async with desk.working():
        await desk.hear(A, take=True)
        answer = desk.say(A, done=0)
        await asyncio.wait_for(desk.running, DEADLINE)
        assert not answer.done()
    (failure,) = desk.failures
    assert failure.startswith("inputs.data: no commit could be written to the store for 0.1 s (timeouts.upload): ")
    assert "you may not" in failure
    assert desk.events == ["store_unavailable"]


async def test_whoever_waits_gets_what_comes_back_and_the_end_when_all_is_done(desk: Desk) -> None:
    async with desk.working():
        for _ in range(3):
            await desk.hear(A, take=True)
        waiting = desk.say(B, take=True)
        await desk.hear(A, back=1)
        assert (await asyncio.wait_for(waiting, DEADLINE)).shard == 1
        waiting = desk.say(B, done=1, take=True)
        desk.session.running.discard(A)
        desk.shards.look()
        assert (await asyncio.wait_for(waiting, DEADLINE)).shard == 0
        assert (await desk.hear(B, done=0, take=True)).shard == 2
        end = await desk.hear(B, failed=2, reason="file:///2 is gone", take=True)
        assert not end.HasField("shard")
        assert (end.failed, end.failures) == (1, "file:///2 is gone")
        assert desk.events == ["shard_failed"]


async def test_a_process_that_has_ended_or_lost_its_shard_is_refused(desk: Desk) -> None:
    async with desk.working():
        await desk.hear(A, take=True)
        assert "is not assigned to worker:1 any more" in (await desk.hear(B, done=0)).problem
        desk.session.running.discard(A)
        assert "start 1 of worker:0 has ended" in (await desk.hear(A, done=0)).problem
        assert desk.commits == []


async def test_what_is_asked_again_is_answered_the_same(desk: Desk) -> None:
    async with desk.working():
        answers = [await desk.hear(A, take=True, request=50) for _ in range(2)]
        assert [answer.shard for answer in answers] == [0, 0]
        answers = [await desk.hear(A, done=0, take=True, request=51) for _ in range(2)]
        assert [answer.shard for answer in answers] == [1, 1]
        assert len(desk.commits) == 1


async def test_the_next_master_goes_on_where_the_former_one_was(desk: Desk) -> None:
    async with desk.working():
        await desk.hear(A, take=True)
        await desk.hear(A, done=0, take=True, request=60)
        await desk.hear(B, take=True)
    desk.session.phase = JobState.RECOVERING
    async with desk.working(am_attempt=2):
        waiting = desk.say(B, take=True)
        repeated = desk.say(A, done=0, take=True, request=60)  # its answer was lost
        desk.shards.look()  # who is there is not known yet: nothing is free
        desk.shards.holds(B, [2])
        desk.session.phase = JobState.RUNNING
        desk.session.running = {A, B}
        desk.shards.look()
        assert (await asyncio.wait_for(waiting, DEADLINE)).shard == 1
        assert (await desk.hear(B, done=2)).problem == ""
        assert (await desk.hear(B, done=1)).problem == ""
        end = await asyncio.wait_for(repeated, DEADLINE)
        assert not end.HasField("shard")
        assert [(each.shard, each.reader) for each in desk.commits] == [(0, A), (2, B), (1, B)]


async def test_files_that_come_later_are_not_in_the_listing(desk: Desk) -> None:
    desk.site.open()
    data = desk.site.ownership.description.job.inputs["data"].paths[0]
    desk.site.ownership.storage.write(f"{data}/9999", b"late")
    assert len(desk.site.open(am_attempt=2).listing) == 3


async def test_a_commit_that_crosses_a_newer_master_is_not_answered(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newer one has read the log, and gives the shard to somebody else."""
    add, wrote = CommitLog.add, threading.Event()
    newer: list[OpenedInput] = []

    def cross(log: CommitLog, settled: list[ShardCommit]) -> None:
        newer.append(desk.site.open(am_attempt=2))
        add(log, settled)
        wrote.set()

    async with desk.working():
        await desk.hear(A, take=True)
        monkeypatch.setattr(CommitLog, "add", cross)
        answer = desk.say(A, done=0)
        assert await asyncio.to_thread(wrote.wait, DEADLINE)
        with pytest.raises(SupersededError):
            await asyncio.wait_for(desk.running, DEADLINE)
        assert not answer.done()
    assert newer[0].queue.committed == 0

    monkeypatch.undo()
    async with desk.working(am_attempt=2, opened=newer[0]):
        desk.session.running.discard(A)
        assert (await desk.hear(B, take=True)).shard == 0
        assert (await desk.hear(B, failed=0, reason="it is gone")).problem == ""
    assert [(each.shard, each.reader) for each in desk.commits] == [(0, A), (0, B)]
    third = desk.site.open(am_attempt=3).queue
    assert (third.committed, third.failed) == (0, {0: "it is gone"})  # what was answered counts
    assert third.fail(B, 0, "it is gone")
    assert not third.commit(A, 0)


async def test_a_former_master_commits_nothing_once_the_next_has_read_the_log(desk: Desk) -> None:
    async with desk.working():
        await desk.hear(A, take=True)
        desk.site.open(am_attempt=2)
        answer = desk.say(A, done=0)
        with pytest.raises(SupersededError):
            await asyncio.wait_for(desk.running, DEADLINE)
        assert not answer.done()
    assert desk.commits == []


def test_a_master_that_was_replaced_while_it_listed_says_so(site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    made = site(3, InputDeal.QUEUE)

    def list_slowly(*args: object) -> Iterator[InputShard]:
        yield from find_shards(*args)  # type: ignore[arg-type]
        attrs.evolve(made.ownership, am_attempt=2).announce(ADDRESS)

    monkeypatch.setattr(input_shards, "find_shards", list_slowly)
    with pytest.raises(SupersededError):
        made.open()


def test_a_search_that_finds_nothing_ends_too(site: MakeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = site(3, InputDeal.QUEUE)
    description = made.ownership.description
    inputs = {"data": InputSpec([str(tmp_path / "data" / "**" / "none")], InputDeal.QUEUE)}
    job = attrs.evolve(description.job, inputs=inputs)
    slow = attrs.evolve(made, ownership=attrs.evolve(made.ownership, description=attrs.evolve(description, job=job)))
    monkeypatch.setattr(input_shards, "_LONGEST_LISTING", -1.0)
    with pytest.raises(BadInputError, match="listing took more than"):
        slow.open()


def test_a_directory_without_an_end_takes_no_longer_than_a_search_may(
    site: MakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, over = site(3, InputDeal.QUEUE), threading.Event()

    def hang(*args: object) -> Iterator[InputShard]:
        over.wait(DEADLINE)
        yield from ()

    monkeypatch.setattr(input_shards, "find_shards", hang)
    monkeypatch.setattr(input_shards, "_LONGEST_LISTING", 0.1)
    monkeypatch.setattr(input_shards, "_LAST_WORDS", 0.1)
    with pytest.raises(BadInputError, match="listing took more than"):
        made.open()
    assert not over.is_set()
    over.set()


async def test_who_asks_without_end_is_told_so_until_it_is_answered(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_shards, "MOST_OUTSTANDING", 64 << 10)
    async with desk.working():
        for _ in range(3):
            await desk.hear(A, take=True)
        asked = [desk.say(A, take=True) for _ in range(100)]
        assert "wait for answers before" in asked[-1].result().problem
        assert len(desk.shards._heard) == 64
        other = desk.say(B, take=True)
        desk.session.running.remove(A)
        desk.shards.look()
        assert (await asyncio.wait_for(other, DEADLINE)).problem == ""
        desk.shards.look()
        assert not desk.shards._outstanding._bytes
