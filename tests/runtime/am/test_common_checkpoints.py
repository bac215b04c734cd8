"""With mirror: all, one step at a time is copied by every rank, and nobody waits for a word that does not come."""

from __future__ import annotations

from typing import Any, cast

import attrs
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tony_provider.runtime.am.common_checkpoints import CommonCheckpoints
from tony_provider.runtime.am.session.session import Session
from tony_provider.runtime.am.shards import Shard, ShardError
from tony_provider.runtime.checkpoint.checkpoint_model import CheckpointFile, CheckpointName, place_of
from tony_provider.runtime.protocol import tony_pb2

CHECKPOINTS = "file:///chain/checkpoints"
TASKS = ("chief:0", "worker:0", "worker:1")


@attrs.define(eq=False)
class Ranks:
    """In the session's place."""

    lost: set[str] = attrs.field(factory=set)
    settled: set[str] = attrs.field(factory=set)  # they have said that nothing more comes

    def mirror_ranks(self) -> list[tuple[str, int]]:
        return [(task, rank) for rank, task in enumerate(TASKS)]

    def commit_refusal(self, name: str, attempt: int, generation: int, start: int) -> str | None:
        return "it is gone" if name in self.lost else None

    def still_copies(self, name: str) -> bool:
        return name not in self.lost | self.settled


@attrs.define(eq=False)
class Rank:
    """An executor: what its directory holds, and what it was told."""

    name: str
    steps: set[int] = attrs.field(factory=set)
    committed: int = -1
    save: int = 0
    ended: bool = False
    named: tony_pb2.CopyCheckpoint | None = None
    asked: tony_pb2.CopyCheckpoint | None = None  # its part was uploaded, and no answer has come
    done: bool = False

    @property
    def held(self) -> tony_pb2.CheckpointsHeld:
        newer = sorted(step for step in self.steps if step > self.committed)
        return tony_pb2.CheckpointsHeld(generation=1, start=1, steps=newer, last=self.ended, save=self.save)


class Gang(RuleBasedStateMachine):
    tasks = st.sampled_from(TASKS)

    @initialize()
    def begin(self) -> None:
        self.session = Ranks()
        self.common = CommonCheckpoints(cast(Session, self.session), self._send, self._abandoned)
        self.ranks = {task: Rank(task) for task in TASKS}
        self.step = 0
        self.told: dict[str, tuple[int, ...]] = {}  # as the master knows it
        self.named: set[str] = set()
        self.committed: list[int] = []

    def _alive(self, task: str) -> Rank | None:
        return None if task in self.session.lost else self.ranks[task]

    def _send(self, task: str, message: tony_pb2.ToExecutor) -> None:
        rank, copy = self.ranks[task], message.copy_checkpoint
        assert task not in self.session.lost
        if not copy.wanted:
            assert rank.ended, "one that goes on was told that nothing more is wanted"
            rank.done = True
            return
        if copy.uri not in self.named:  # else it is said again, to one that may have missed it
            common = set.intersection(*(set(self.told.get(each, ())) for each in TASKS))
            assert copy.step == max(common), "it is not the newest that all have"
            self.named.add(copy.uri)
        assert place_of(copy.uri.rpartition("/")[2]) == CheckpointName(copy.save, copy.step)
        rank.named = copy

    def _abandoned(self, uri: str, reason: str) -> None:
        for rank in self.ranks.values():
            if rank.asked is not None and rank.asked.uri == uri:
                rank.asked = None

    def _say(self, rank: Rank) -> None:
        self.told[rank.name] = tuple(rank.held.steps)
        self.common.held(rank.name, 1, rank.held)

    @rule(late=st.sets(tasks))
    def save(self, late: set[str]) -> None:
        """All ranks save a step; the looks of some come later."""
        self.step += 10
        for task in TASKS:
            rank = self._alive(task)
            if rank and not rank.ended:
                rank.steps.add(self.step)
                if task not in late:
                    self._say(rank)

    @rule(task=tasks)
    def notice(self, task: str) -> None:
        if (rank := self._alive(task)) and not rank.done:
            self._say(rank)

    @rule(task=tasks)
    def remove_oldest(self, task: str) -> None:
        if (rank := self._alive(task)) and rank.steps:
            rank.steps.discard(min(rank.steps))

    @rule(task=tasks)
    def copy(self, task: str) -> None:
        rank = self._alive(task)
        if rank is None or rank.named is None:
            return
        copy, rank.named = rank.named, None
        if copy.step not in rank.held.steps:
            self._say(rank)
            return
        number = TASKS.index(task)
        file = CheckpointFile(f"shard-{number}", 1, "crc32:00000000", number)
        shard = Shard(copy.uri, copy.step, copy.save, 0, False, 1, number, "pytorch", "entry", (file,))
        rank.asked = copy
        try:
            whole = self.common.add(shard)
        except ShardError:
            rank.asked = None
            return
        if whole is not None:
            self._commit(whole)

    def _commit(self, whole: list[Shard]) -> None:
        assert [part.rank for part in whole] == list(range(len(TASKS)))
        [(step, uri)] = {(part.step, part.checkpoint) for part in whole}
        assert step is not None
        assert step > max(self.committed, default=-1), "it goes back"
        self.committed.append(step)
        for rank in self.ranks.values():
            if rank.asked is not None and rank.asked.uri == uri:
                rank.committed, rank.save, rank.asked = step, rank.asked.save, None
                if rank.name not in self.session.lost:
                    self._say(rank)
        self.common.ended(uri, committed=True)

    @rule(order=st.permutations(TASKS), some=st.integers(0, len(TASKS)))
    def go_on(self, order: list[str], some: int) -> None:
        """The master looks, and some ranks do as they are told."""
        self.look()
        for task in order[some:]:
            self.copy(task)

    @rule(task=tasks, odds=st.integers(0, 4))
    def end(self, task: str, odds: int) -> None:
        """Its user process ends; it copies what it is told to, and then says nothing more."""
        if odds == 4 and (rank := self._alive(task)) and not rank.ended:
            rank.ended = True
            self._say(rank)
            rank.done = not rank.held.steps

    @rule(task=tasks, odds=st.integers(0, 9))
    def lose(self, task: str, odds: int) -> None:
        if odds == 9:
            self.session.lost.add(task)

    @rule()
    def look(self) -> None:
        self.common.look(CHECKPOINTS)

    def teardown(self) -> None:
        """All end, each does what it is told, and all are told that they may go."""
        for rank in self.ranks.values():
            if rank.name not in self.session.lost and not rank.ended:
                rank.ended = True
                self._say(rank)
                rank.done = not rank.held.steps
        for _ in range(4 * len(TASKS) + 2 * self.step // 10):
            self.common.look(CHECKPOINTS)
            for task in TASKS:
                self.copy(task)
                if self.ranks[task].done and self.ranks[task].asked is None:
                    self.session.settled.add(task)
        for rank in self.ranks.values():
            if rank.name not in self.session.lost:
                assert rank.done or not rank.held.steps, f"{rank} waits"
                assert rank.asked is None, f"{rank} waits for its commit"


def test_every_order_of_saves_copies_and_deaths() -> None:
    run_state_machine_as_test(
        cast(Any, Gang), settings=settings(max_examples=200, stateful_step_count=30, deadline=None)
    )
