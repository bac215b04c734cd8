"""What ranks upload becomes one checkpoint, or nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.runtime.am.chains import upload
from tony_provider.runtime.am.shards import Shard, ShardError, manifest
from tony_provider.runtime.checkpoint.checkpoint_model import CheckpointFile, directory_name
from tony_provider.runtime.protocol import tony_pb2

CHECKPOINTS = "file:///chain/checkpoints"
NAME = directory_name(7, 7)
FILE = CheckpointFile("ckpt", 1, "crc32:00000000")


def shard(step: int, rank: int, generation: int = 1) -> Shard:
    return Shard(
        f"{CHECKPOINTS}/{NAME}", step, 7, 500 + rank, False, generation, rank, "pytorch", f"entry-of-{rank}", (FILE,)
    )


def test_message_of_an_executor(tmp_path: Path) -> None:
    uploaded = upload(tmp_path, 120, rank=3)
    assert Shard.of(uploaded.message(generation=2), 3, (tmp_path / "checkpoints").as_uri()) == Shard(
        uploaded.uri, 120, 120, 0, False, 2, 3, "tensorflow", "ckpt-120", uploaded.files
    )


def message(**changes: Any) -> tony_pb2.CheckpointUploaded:
    fields: dict[str, Any] = {
        "step": 7,
        "save": 7,
        "uri": f"{CHECKPOINTS}/{NAME}/rank-0",
        "files": [tony_pb2.CheckpointFile(path="ckpt", size=1, checksum="crc32:00000000")],
    }
    return tony_pb2.CheckpointUploaded(**{**fields, **changes})


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"uri": f"{CHECKPOINTS}/{NAME}/rank-1"}, "is not where rank 0 is to put"),
        ({"uri": f"{CHECKPOINTS}/{NAME}"}, "is not where rank 0 is to put"),
        ({"uri": f"file:///elsewhere/{NAME}/rank-0"}, "is not where rank 0 is to put"),
        ({"uri": f"{CHECKPOINTS}/../checkpoints/{NAME}/rank-0"}, "cannot hold"),
        ({"uri": f"{CHECKPOINTS}/{directory_name(7, 8)}/rank-0"}, "not the name of a checkpoint of save 7, step 7"),
        ({"uri": f"{CHECKPOINTS}/mine/rank-0"}, "not the name of a checkpoint of save 7, step 7"),
        ({"save": 8}, "not the name of a checkpoint of save 8, step 7"),
        ({"uri": "relative"}, "absolute path"),
        ({"files": []}, "no file"),
        ({"files": [tony_pb2.CheckpointFile(path="../../../../other")]}, "cannot hold"),
    ],
)
def test_what_an_executor_may_not_claim(wrong: dict[str, object], words: str) -> None:
    Shard.of(message(), 0, CHECKPOINTS)
    with pytest.raises(ShardError, match=words):
        Shard.of(message(**wrong), 0, CHECKPOINTS)


def test_manifest_names_every_file_with_its_rank(tmp_path: Path) -> None:
    parts = [shard(5, 0), shard(5, 1)]
    found = manifest(parts, "application_1_1", 99)
    assert (found.step, found.save, found.entry, found.generation) == (5, 7, "entry-of-0", 1)
    assert (found.saved_ms, found.committed_ms) == (501, 99)
    assert len(found.files) == 2
