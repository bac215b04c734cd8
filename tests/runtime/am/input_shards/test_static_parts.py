from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from tests.runtime.am.input_shards.conftest import MakeSite, StandInSession, StandInTask
from tony_provider.runtime.am import input_shards
from tony_provider.runtime.am.input_shards import StaticParts
from tony_provider.runtime.inputs.shards import InputShard
from tony_provider.runtime.jobspec.model import InputDeal, Role
from tony_provider.runtime.protocol import tony_pb2

DEADLINE = 60


def workers(count: int) -> list[StandInTask]:
    return [StandInTask("worker", index) for index in range(count)]


@asynccontextmanager
async def working(site: MakeSite, session: StandInSession, readers: Sequence[str]) -> AsyncIterator[StaticParts]:
    parts = StaticParts(site(100, InputDeal.STATIC).open(), readers, session.as_session)
    running = asyncio.ensure_future(parts.run())
    yield parts
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def piece(parts: StaticParts, task: str, position: int = 0) -> tony_pb2.InputPart:
    answer: asyncio.Future[tony_pb2.InputPart] = asyncio.get_running_loop().create_future()
    wanted = tony_pb2.InputPartWanted(request=7, name="data", position=position)
    parts.wanted(task, wanted, answer.set_result)
    return await asyncio.wait_for(answer, DEADLINE)


async def whole(parts: StaticParts, task: str) -> list[InputShard]:
    shards: list[InputShard] = []
    while True:
        answer = await piece(parts, task, len(shards))
        assert (answer.request, answer.problem) == (7, "")
        shards += [InputShard.of_line(line) for line in answer.lines.splitlines()]
        assert answer.position == len(shards)
        if answer.last:
            return shards


async def test_parts_come_in_pieces_and_are_the_same_again(site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_shards, "_PIECE", 500)
    monkeypatch.setattr(input_shards, "_LINES", 3)
    async with working(site, StandInSession(workers(3)), ["worker"]) as parts:
        assert not (await piece(parts, "worker:0")).last
        found = [await whole(parts, f"worker:{index}") for index in range(3)]
        assert sorted(shard.size for part in found for shard in part) == list(range(100))
        assert max(sum(shard.size for shard in part) for part in found) <= 1 + sum(range(100)) / 3
        assert [await whole(parts, f"worker:{index}") for index in range(3)] == found


async def test_a_gang_that_shrinks_is_dealt_anew_and_again_when_it_grows(site: MakeSite) -> None:
    session = StandInSession(workers(3))
    async with working(site, session, ["worker"]) as parts:
        before = [await whole(parts, f"worker:{index}") for index in range(3)]
        session.without = frozenset(["worker:1"])
        smaller = [await whole(parts, name) for name in ("worker:0", "worker:2")]
        assert sorted(shard.size for part in smaller for shard in part) == list(range(100))
        assert (await piece(parts, "worker:0")).parts == 2
        assert "is not an active reader" in (await piece(parts, "worker:1")).problem
        session.without = frozenset()
        assert [await whole(parts, f"worker:{index}") for index in range(3)] == before


async def test_parts_are_dealt_by_rank_to_those_who_read(site: MakeSite) -> None:
    chief, ps = StandInTask("chief", 0, Role.CHIEF), StandInTask("ps", 0, Role.PS)
    async with working(site, StandInSession([ps, *workers(1), chief]), ["chief", "worker"]) as parts:
        both = [await whole(parts, name) for name in ("chief:0", "worker:0")]
        assert both[0][-1].size == 99  # the largest goes to rank 0
        assert sorted(shard.size for part in both for shard in part) == list(range(100))
        assert "is not an active reader" in (await piece(parts, "ps:0")).problem


async def test_who_asks_without_end_is_told_so_and_the_others_are_answered(
    site: MakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_shards, "MOST_OUTSTANDING", 64 << 10)
    async with working(site, StandInSession(workers(2)), ["worker"]) as parts:
        answers: list[tony_pb2.InputPart] = []
        for number in range(100):
            parts.wanted("worker:0", tony_pb2.InputPartWanted(request=number, name="data"), answers.append)
        assert parts._asked.qsize() == 64
        assert {answer.request for answer in answers} == set(range(64, 100))
        assert all("wait for answers before" in answer.problem for answer in answers)
        assert (await piece(parts, "worker:1")).problem == ""
        assert (await piece(parts, "worker:0")).problem == ""
