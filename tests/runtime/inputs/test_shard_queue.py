"""Each shard is committed exactly once, and none is lost, whoever dies and whenever."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tony_provider.runtime.inputs.shards import MOST_AT_ONCE, ShardQueue, ShardReader, ShardState

COUNT = 12
TASKS = st.integers(0, 2)


def reader(task: int, start: int = 1) -> ShardReader:
    return ShardReader(f"worker:{task}", 1, start)


def test_shards_go_out_in_their_order_and_returned_ones_first() -> None:
    queue = ShardQueue(4)
    assert [queue.take(reader(0), 1), queue.take(reader(1), 1), queue.take(reader(0), 2)] == [0, 1, 2]
    assert queue.commit(reader(0), 2)
    assert queue.ended(reader(0))
    assert [queue.take(reader(1), request) for request in (2, 3, 4)] == [0, 3, None]
    assert not queue.over
    assert [queue.commit(reader(1), shard) for shard in (0, 1, 3)] == [True, True, True]
    assert queue.over


def test_the_same_request_gets_the_same_shard() -> None:
    queue = ShardQueue(4)
    assert [queue.take(reader(0), 7), queue.take(reader(0), 7), queue.take(reader(0), 8)] == [0, 0, 1]


def test_a_commit_counts_once_and_only_for_who_has_the_shard() -> None:
    queue = ShardQueue(2)
    queue.take(reader(0), 1)
    assert not queue.commit(reader(1), 0)
    assert [queue.commit(reader(0), 0), queue.commit(reader(0), 0)] == [True, True]
    assert (queue.committed, queue.settled) == (1, 1)
    assert not queue.give_back(reader(0), 0, 9)
    assert not queue.fail(reader(0), 0, "too late")


def test_the_shards_that_a_reader_took_and_did_not_commit() -> None:
    queue = ShardQueue(4)
    for request in range(4):
        queue.take(reader(0), request)
    queue.commit(reader(0), 1)
    queue.give_back(reader(0), 2, 9)
    queue.fail(reader(0), 3, "unreadable")
    assert queue.uncommitted_by(reader(0)) == [0, 2]
    assert queue.uncommitted_by(reader(1)) == []


def test_a_request_to_give_back_that_is_said_again_leaves_a_shard_that_was_taken_since() -> None:
    queue = ShardQueue(1)
    assert queue.take(reader(0), 1) == 0
    assert queue.give_back(reader(0), 0, 3)
    assert queue.take(reader(0), 2) == 0  # another connection of the same process
    assert not queue.give_back(reader(0), 0, 3)
    assert queue.commit(reader(0), 0)


def test_a_reader_that_was_taken_for_dead_commits_nothing() -> None:
    queue = ShardQueue(1)
    queue.take(reader(0), 1)
    queue.ended(reader(0))
    assert queue.take(reader(1), 1) == 0
    assert not queue.commit(reader(0), 0)
    assert queue.commit(reader(1), 0)
    assert not queue.commit(reader(0), 0)


def test_what_cannot_be_read_is_not_given_again() -> None:
    queue = ShardQueue(2)
    queue.take(reader(0), 1)
    assert queue.fail(reader(0), 0, "gone")
    assert [queue.take(reader(1), 1), queue.take(reader(0), 2)] == [1, None]
    queue.commit(reader(1), 1)
    assert queue.over
    assert queue.failed == {0: "gone"}


def test_one_reader_cannot_take_everything() -> None:
    queue = ShardQueue(MOST_AT_ONCE + 1)
    taken = [queue.take(reader(0), request) for request in range(1, MOST_AT_ONCE + 2)]
    assert taken[-1] is None
    assert queue.take(reader(1), 1) == MOST_AT_ONCE


def test_a_number_that_no_shard_has() -> None:
    queue = ShardQueue(1)
    queue.holds(reader(0), [5])
    assert not queue.commit(reader(0), 5)
    with pytest.raises(IndexError):
        queue.was_settled(reader(0), 5)


class QueueMachine(RuleBasedStateMachine):
    """Three tasks take, commit, give back and die; the application master dies, with the log up to what it answered.

    A reader's own view is what it was told: a commit that was answered must stay one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.queue = ShardQueue(COUNT)
        self.starts = [1, 1, 1]
        self.requests = 0
        self.held: list[set[int]] = [set(), set(), set()]  # as each process knows
        self.log: list[tuple[ShardReader, int]] = []  # on the store
        self.told: set[int] = set()  # commits that were answered

    def reader(self, task: int) -> ShardReader:
        return reader(task, self.starts[task])

    @rule(task=TASKS)
    def take(self, task: int) -> None:
        self.requests += 1
        shard = self.queue.take(self.reader(task), self.requests)
        if shard is None:
            assert self.queue.over or self.queue.taken
            return
        assert not any(shard in held for held in self.held)
        self.held[task].add(shard)

    @rule(task=TASKS, data=st.data(), answered=st.booleans())
    def commit(self, task: int, data: st.DataObject, answered: bool) -> None:
        if not self.held[task]:
            return
        shard = data.draw(st.sampled_from(sorted(self.held[task])))
        before = self.queue.settled
        assert self.queue.commit(self.reader(task), shard)
        if self.queue.settled > before:
            self.log.append((self.reader(task), shard))
        if answered:  # else the reader will ask again
            self.held[task].discard(shard)
            assert shard not in self.told
            self.told.add(shard)

    @rule(task=TASKS)
    def give_all_back(self, task: int) -> None:
        for shard in sorted(self.held[task]):
            if self.queue.state(shard) is ShardState.TAKEN:
                self.requests += 1
                assert self.queue.give_back(self.reader(task), shard, self.requests)
        self.held[task].clear()

    @rule(task=TASKS)
    def die(self, task: int) -> None:
        self.queue.ended(self.reader(task))
        self.starts[task] += 1
        self.held[task].clear()

    @rule(back=st.permutations([0, 1, 2]), dead=st.sets(TASKS))
    def lose_master(self, back: list[int], dead: set[int]) -> None:
        for task in dead:
            self.starts[task] += 1
            self.held[task].clear()
        self.queue = ShardQueue(COUNT)
        for settled_by, shard in self.log:
            self.queue.was_settled(settled_by, shard)
        for task in back:
            self.queue.holds(self.reader(task), sorted(self.held[task]))

    @precondition(lambda self: len(self.log) < COUNT)
    @rule()
    def somebody_can_go_on(self) -> None:
        assert not self.queue.over

    @invariant()
    def each_is_committed_once(self) -> None:
        shards = [shard for _, shard in self.log]
        assert len(shards) == len(set(shards)) == self.queue.committed
        assert self.told <= set(shards)

    def teardown(self) -> None:
        """Whatever has happened: who is left finishes it."""
        for task in (1, 2):
            self.queue.ended(self.reader(task))
        for shard in sorted(self.held[0]):
            assert self.queue.commit(self.reader(0), shard)
        self.queue.ended(self.reader(0))
        self.starts[0] += 1
        for request in range(1000, 1000 + COUNT):
            left = self.queue.take(self.reader(0), request)
            if left is None:
                break
            assert self.queue.commit(self.reader(0), left)
        assert self.queue.over
        assert self.queue.committed == COUNT


TestShardQueue = QueueMachine.TestCase
