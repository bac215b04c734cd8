"""Inputs whose files are dealt in pieces: every record comes to one task."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.left import assert_nothing_left
from tests.jobs.places import LocalPlace, YarnPlace
from tony_provider.cluster.errors import SourceMissing
from tony_provider.runtime.storage import uris

SAMPLES = Path(__file__).parents[1] / "runtime" / "inputs" / "samples"
LINES = 400_000  # some 3 MiB
PROGRAM = """
import json
import tony_sdk

said = {}
for name in ("static", "queued"):
    found = [int(line) for batch in tony_sdk.batches(name, 1000) for line in batch]
    said[name] = [len(found), sum(found)]
print(json.dumps(said))
"""


@pytest.fixture
def text(local: LocalPlace, tmp_path: Path) -> Path:
    path = tmp_path / "numbers.txt"
    path.write_text("".join(f"{number}\n" for number in range(LINES)))
    return path


def test_the_lines_of_one_file_are_dealt_to_all(local: LocalPlace, text: Path) -> None:
    piece = {"paths": [str(text)], "format": "lines", "split_size": "1MiB"}
    worker = {"instances": 2, "memory": "128MiB", "command": f"python3 -c '{PROGRAM}'"}
    job = local.submit({"tasks": {"worker": worker}, "inputs": {"static": piece, "queued": {**piece, "deal": "queue"}}})
    status = job.succeeded()
    said = [job.said(f"worker:{index}") for index in range(2)]
    for name in ("static", "queued"):
        assert [sum(each[name][part] for each in said) for part in (0, 1)] == [LINES, sum(range(LINES))]
    size = text.stat().st_size
    assert [(each.shards, each.size, each.committed) for each in status.inputs] == [(3, size, None), (3, size, 3)]
    listed = [json.loads(line) for line in job.read("inputs/static.jsonl").splitlines()]
    assert [(each["offset"], each["size"], each["format"]) for each in listed] == [
        (size * number // 3, size, "lines") for number in range(3)
    ]
    assert_nothing_left(local, job)


def test_row_groups_are_dealt_and_one_that_is_no_parquet_file_is_told_before(local: LocalPlace, tmp_path: Path) -> None:
    for number in range(3):
        shutil.copy(SAMPLES / "pyarrow.parquet", tmp_path / f"{number}.parquet")
    worker = {"instances": 2, "memory": "128MiB", "command": 'cat "$TONY_INPUT_DATA"'}
    spec: dict[str, Any] = {
        "tasks": {"worker": worker},
        "inputs": {"data": {"paths": [f"{tmp_path}/*.parquet"], "format": "parquet", "split_size": "1MiB"}},
    }
    job = local.submit(spec)
    job.succeeded()
    listed = [json.loads(line) for line in job.read("inputs/data.jsonl").splitlines()]
    assert [(each["row_groups"], each["length"]) for each in listed] == [([0, 4], 3466)] * 3
    (tmp_path / "0.parquet").write_text("day,amount\n")
    with pytest.raises(SourceMissing, match=r"inputs\.data: file://.*/0\.parquet cannot be cut as a Parquet file"):
        local.submit(spec)


def test_row_groups_and_checksums_on_hdfs(yarn: YarnPlace) -> None:
    storage, directory = yarn.hook().storage(), uris.join(yarn.hook().layout.root, f"pieces-{uuid.uuid4().hex}")
    for name in ("a", "b"):
        storage.write(f"{directory}/{name}", (SAMPLES / "pyarrow.parquet").read_bytes())
    worker = {"instances": 2, "memory": "128MiB", "command": "true"}
    data = {"paths": [directory], "format": "parquet", "split_size": "1MiB", "checksum": True}
    job = yarn.submit({"tasks": {"worker": worker}, "inputs": {"data": data}})
    job.succeeded()
    listed = [json.loads(line) for line in job.read("inputs/data.jsonl").splitlines()]
    checksum = storage.checksum(f"{directory}/a")
    assert [(each["row_groups"], each["checksum"]) for each in listed] == [([0, 4], checksum)] * 2
