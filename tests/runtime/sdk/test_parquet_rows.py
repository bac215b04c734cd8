"""Rows of Parquet files, by pyarrow; it is not among what the tests install, and is skipped where it is not."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tony_provider.runtime.inputs.finding import cut_row_groups
from tony_provider.runtime.inputs.shards import InputShard
from tony_provider.runtime.sdk import tony_inputs, tony_records
from tony_provider.runtime.sdk.tony_inputs import InputError, TaskShard

fs: Any = pytest.importorskip("pyarrow.fs")

SAMPLE = Path(__file__).parents[1] / "inputs" / "samples" / "pyarrow.parquet"


@pytest.fixture(autouse=True)
def beside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tony_inputs", tony_inputs)
    monkeypatch.setitem(sys.modules, "tony_records", tony_records)


def by_arrow(path: str) -> Any:
    """As files of HDFS are opened."""
    return io.BufferedReader(fs.LocalFileSystem().open_input_file(path), 1 << 20)


@pytest.mark.parametrize("opener", [None, by_arrow])
@pytest.mark.parametrize("size", [1, 2000, 10_000])
def test_each_row_is_read_once(opener: Callable[[str], Any] | None, size: int) -> None:
    cut = cut_row_groups(InputShard(f"file://{SAMPLE}", 7068, 7, "parquet"), [914, 934, 940, 678], size)
    shards = [TaskShard(each.uri, format="parquet", length=each.length, row_groups=each.row_groups) for each in cut]
    assert [row["number"] for shard in shards for row in shard.records(opener)] == list(range(40))


def test_whole_files_and_pieces_without_rows() -> None:
    whole = TaskShard(f"file://{SAMPLE}", format="parquet")
    assert [row["name"] for row in whole.records()] == [f"row {number}" for number in range(40)]
    assert list(TaskShard(f"file://{SAMPLE}", format="parquet", row_groups=(0, 0)).records()) == []


def test_what_is_no_parquet_file_is_named() -> None:
    with pytest.raises(InputError, match=r"test_parquet_rows\.py: Parquet magic bytes not found"):
        list(TaskShard(f"file://{__file__}", format="parquet").records())
