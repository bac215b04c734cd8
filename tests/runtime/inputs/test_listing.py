from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_provider.runtime.inputs.shards import (
    CommitLog,
    InputShard,
    Listing,
    ShardCommit,
    ShardQueue,
    ShardReader,
    read_log,
)
from tony_provider.runtime.storage import LocalStorage

READER = ShardReader("worker:0", 1, 2)


@given(st.text(st.characters(codec="utf-8")), st.integers(0, 1 << 60), st.integers(0, 1 << 45))
def test_a_line_is_read_as_it_was_written(uri: str, size: int, modified_ms: int) -> None:
    shard = InputShard(uri, size, modified_ms)
    assert shard.line().count(b"\n") == 1
    assert InputShard.of_line(shard.line()) == shard


@pytest.mark.parametrize("line", [b"", b"{}", b"[]", b"7", b'{"uri": "x"}'])
def test_a_line_that_is_no_shard(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        InputShard.of_line(line)


def test_a_listing_travels_by_the_store(tmp_path: Path) -> None:
    shards = [InputShard(f"file:///data/ä-{number}", number, 1000 + number) for number in range(100)]
    made = Listing.of(shards)
    assert (len(made), made.total_size) == (100, sum(range(100)))
    made.save(LocalStorage(), f"{tmp_path}/x.jsonl")
    made.close()
    loaded = Listing.load(LocalStorage(), f"{tmp_path}/x.jsonl")
    assert [InputShard.of_line(line) for line in loaded.lines([99, 0, 7])] == [shards[99], shards[0], shards[7]]
    assert list(loaded.sizes) == list(range(100))
    loaded.close()


def test_a_shard_takes_few_bytes_of_memory() -> None:
    count = 20_000
    tracemalloc.start()
    listing = Listing.of(InputShard(f"file:///data/{number:0100}", number, number) for number in range(count))
    queue = ShardQueue(count)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < 25 * count
    assert len(queue) == len(listing)
    listing.close()


def test_a_log_only_grows_and_each_master_has_its_own_files(tmp_path: Path) -> None:
    storage, directory = LocalStorage(), f"{tmp_path}/commits"
    assert list(read_log(storage, directory)) == []
    first = [ShardCommit(number, READER, 5, outputs=["o" * 100]) for number in range(4000)]
    log = CommitLog(storage, directory, 1)
    for begin in range(0, len(first), 100):
        log.add(first[begin : begin + 100])
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "commits").iterdir()}
    assert len(before) > 2
    second = [ShardCommit(4000, READER, 6, failed="gone")]
    CommitLog(storage, directory, 2).add(second)
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "commits").iterdir()}.items() > before.items()
    assert list(read_log(storage, directory)) == first + second
