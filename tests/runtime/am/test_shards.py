"""What ranks upload becomes one checkpoint, or nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runtime.am.lineages import upload
from tony_provider.runtime.am.shards import Shard, ShardError, Shards, manifest
from tony_provider.runtime.checkpoint.model import CheckpointFile, agreed_name
from tony_provider.runtime.protocol import tony_pb2

CHECKPOINTS = "file:///lineage/checkpoints"
FILE = CheckpointFile("ckpt", 1, "crc32:00000000")


def shard(step: int, rank: int, generation: int = 1) -> Shard:
    uri = f"{CHECKPOINTS}/{agreed_name('application_1_1', generation, step)}"
    return Shard(uri, step, generation, rank, "pytorch", f"entry-of-{rank}", (FILE,))


def test_message_of_an_executor(tmp_path: Path) -> None:
    uploaded = upload(tmp_path, 120, rank=3)
    assert Shard.of(uploaded.message(generation=2), 3, (tmp_path / "checkpoints").as_uri()) == Shard(
        uploaded.uri, 120, 2, 3, "tensorflow", "ckpt-120", uploaded.files
    )


def message(**changes: Any) -> tony_pb2.CheckpointUploaded:
    fields: dict[str, Any] = {
        "step": 7,
        "uri": f"{CHECKPOINTS}/{agreed_name('a', 1, 7)}/rank-0",
        "files": [tony_pb2.CheckpointFile(path="ckpt", size=1, checksum="crc32:00000000")],
    }
    return tony_pb2.CheckpointUploaded(**{**fields, **changes})


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"uri": f"{CHECKPOINTS}/{agreed_name('a', 1, 7)}/rank-1"}, "is not where rank 0 is to put"),
        ({"uri": f"{CHECKPOINTS}/{agreed_name('a', 1, 7)}"}, "is not where rank 0 is to put"),
        ({"uri": f"file:///elsewhere/{agreed_name('a', 1, 7)}/rank-0"}, "is not where rank 0 is to put"),
        ({"uri": f"{CHECKPOINTS}/../checkpoints/{agreed_name('a', 1, 7)}/rank-0"}, "cannot hold"),
        ({"uri": f"{CHECKPOINTS}/{agreed_name('a', 1, 8)}/rank-0"}, "not the name of a checkpoint of step 7"),
        ({"uri": f"{CHECKPOINTS}/mine/rank-0"}, "not the name of a checkpoint of step 7"),
        ({"uri": "relative"}, "absolute path"),
        ({"files": []}, "no file"),
        ({"files": [tony_pb2.CheckpointFile(path="../../../../other")]}, "cannot hold"),
    ],
)
def test_what_an_executor_may_not_claim(wrong: dict[str, object], words: str) -> None:
    Shard.of(message(), 0, CHECKPOINTS)
    with pytest.raises(ShardError, match=words):
        Shard.of(message(**wrong), 0, CHECKPOINTS)


def test_one_rank_is_whole_at_once() -> None:
    assert Shards().add(shard(5, 0), [0]) == [shard(5, 0)]


def test_every_rank_is_waited_for_whatever_their_order() -> None:
    shards = Shards()
    assert shards.add(shard(5, 2), [0, 1, 2]) is None
    assert shards.add(shard(5, 2), [0, 1, 2]) is None  # said again by an executor that was cut off
    assert shards.add(shard(5, 0), [0, 1, 2]) is None
    assert shards.add(shard(5, 1), [0, 1, 2]) == [shard(5, 0), shard(5, 1), shard(5, 2)]


def test_ranks_of_two_generations_never_meet() -> None:
    shards = Shards()
    assert shards.add(shard(5, 0, generation=1), [0, 1]) is None
    assert shards.add(shard(5, 1, generation=2), [0, 1]) is None
    assert shards.add(shard(5, 0, generation=2), [0, 1]) is not None


@given(st.permutations([(step, rank) for step in (10, 20, 30) for rank in range(3)]))
def test_commits_of_a_step_are_whole_and_once(order: list[tuple[int, int]]) -> None:
    shards = Shards()
    whole = [found for step, rank in order if (found := shards.add(shard(step, rank), range(3)))]
    for parts in whole:
        assert [part.rank for part in parts] == [0, 1, 2]
        assert len({part.checkpoint for part in parts}) == 1
    steps = [parts[0].step for parts in whole]
    assert len(set(steps)) == len(steps)
    assert 30 in steps


def test_manifest_names_every_file_with_its_rank(tmp_path: Path) -> None:
    parts = [shard(5, 0), shard(5, 1)]
    found = manifest(parts, "application_1_1", 99)
    assert (found.step, found.entry, found.generation, found.committed_ms) == (5, "entry-of-0", 1, 99)
    assert len(found.files) == 2
