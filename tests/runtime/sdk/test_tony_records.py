"""Each record of a file is read once, however the file is cut."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tony_provider.runtime.inputs.finding import COMPRESSED, cut_bytes
from tony_provider.runtime.inputs.shards import InputShard
from tony_provider.runtime.sdk import tony_inputs, tony_records
from tony_provider.runtime.sdk.tony_inputs import InputError, TaskShard
from tony_provider.runtime.sdk.tony_records import RecordError, read_lines, read_tfrecord_piece

tf: Any = pytest.importorskip("tensorflow")

FILES = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
# Zeros are what records are looked for by, and small files have small lengths.
DATA = st.lists(st.binary(max_size=40) | st.integers(0, 60).map(bytes), max_size=30)


@pytest.fixture(autouse=True)
def beside(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (tony_inputs, tony_records):  # in a job they lie beside the program
        monkeypatch.setitem(sys.modules, module.__name__.rpartition(".")[2], module)


def pieces(path: Path, kind: str, size: int) -> list[TaskShard]:
    """As they come to a task."""
    cut = cut_bytes(InputShard(f"file://{path}", path.stat().st_size, 7, kind), size)
    return [TaskShard(**json.loads(shard.line())) for shard in cut]


def read(shards: Iterable[TaskShard]) -> list[Any]:
    return [record for shard in shards for record in shard.records()]


def write_tfrecords(path: Path, records: list[bytes], compression: str = "") -> Path:
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for record in records:
            writer.write(record)
    return path


@FILES
@given(st.lists(st.sampled_from([b"", b"a", b"long" * 9, b"\xff\xfe", b"\r"]), max_size=30), st.booleans(), st.data())
def test_lines(tmp_path: Path, lines: list[bytes], ends: bool, data: st.DataObject) -> None:
    path = tmp_path / "lines"
    content = b"\n".join(lines) + (b"\n" if ends else b"")
    path.write_bytes(content)
    size = data.draw(st.integers(1, len(content) + 1))
    expected = [line[:-2] if line.endswith(b"\r\n") else line.rstrip(b"\n") for line in io.BytesIO(content)]
    assert read(pieces(path, "lines", size)) == expected


def test_a_file_that_is_one_long_line_is_not_held_by_those_who_skip_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tony_records, "_BUFFER", 10)
    file = io.BytesIO(b"x" * 100 + b"\nlast")
    assert list(read_lines(file, 20, 60)) == []
    assert file.tell() <= 70
    assert list(read_lines(file, 60, 101)) == []
    assert list(read_lines(file, 101, 105)) == [b"last"]


@FILES
@given(DATA, st.data())
def test_tfrecords(tmp_path: Path, records: list[bytes], data: st.DataObject) -> None:
    path = write_tfrecords(tmp_path / "records", records)
    size = data.draw(st.integers(1, path.stat().st_size + 1))
    assert read(pieces(path, "tfrecord", size)) == records


def test_tfrecords_that_are_longer_than_a_window_and_than_a_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tony_records, "_WINDOW", 100)
    records = [bytes([number % 3]) * (number * 97 % 1500) for number in range(60)]
    path = write_tfrecords(tmp_path / "records", records)
    for size in (13, 99, 1000, 5000):
        assert read(pieces(path, "tfrecord", size)) == records


def test_tfrecords_within_records_are_not_taken_for_records(tmp_path: Path) -> None:
    """A record that is a file of TFRecords: a piece of it looks like any other file's. Somebody notices."""
    inner = write_tfrecords(tmp_path / "inner", [b"a" * 10] * 50).read_bytes()
    path = write_tfrecords(tmp_path / "outer", [b"x" * 300, inner, b"y" * 300])
    shards = pieces(path, "tfrecord", 400)
    with pytest.raises(InputError, match="contain TFRecords, or are damaged; leave out `split_size`"):
        read(shards)
    whole = read(pieces(path, "tfrecord", 10_000))
    assert whole == [b"x" * 300, inner, b"y" * 300]


@FILES
@given(st.lists(st.binary(max_size=40), min_size=2, max_size=12), st.data())
def test_damage_is_told_by_somebody_or_is_within_a_record(
    tmp_path: Path, records: list[bytes], data: st.DataObject
) -> None:
    content = write_tfrecords(tmp_path / "records", records).read_bytes()
    place = data.draw(st.integers(0, len(content) - 1))
    damaged = content[:place] + bytes([content[place] ^ 1 << data.draw(st.integers(0, 7))]) + content[place + 1 :]
    size = data.draw(st.integers(1, len(content)))
    found: list[bytes] = []
    try:
        for begin in range(0, len(damaged), size):
            found += read_tfrecord_piece(io.BytesIO(damaged), len(damaged), begin, min(begin + size, len(damaged)))
    except RecordError:
        return
    assert [len(record) for record in found] == [len(record) for record in records]


@pytest.mark.parametrize("size", [10, 10_000])
def test_a_file_that_ends_within_a_record(tmp_path: Path, size: int) -> None:
    path = write_tfrecords(tmp_path / "records", [b"abc" * 10] * 20)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(InputError, match=f"file://{path}: "):
        read(pieces(path, "tfrecord", size))


def test_what_is_compressed_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"1\n2\n"))
    (tmp_path / "b.csv.bz2").write_bytes(bz2.compress(b"3\n"))
    for name in ("a.csv.gz", "b.csv.bz2"):
        (shard,) = pieces(tmp_path / name, "lines", 2)
        assert list(shard.records()) == ([b"1", b"2"] if name.startswith("a") else [b"3"])
    write_tfrecords(tmp_path / "c.gz", [b"one", b"two"], "GZIP")
    (shard,) = pieces(tmp_path / "c.gz", "tfrecord", 2)
    assert list(shard.records()) == [b"one", b"two"]
    write_tfrecords(tmp_path / "d", [b"one" * 50], "ZLIB")
    with pytest.raises(InputError, match="damaged or compressed"):
        list(pieces(tmp_path / "d", "tfrecord", 1000)[0].records())
    with pytest.raises(InputError, match=r"\.zst files are not decompressed"):
        list(TaskShard("file:///x.zst", 1, format="lines").records())


def test_what_is_not_cut_as_it_is_compressed_is_known_here_too() -> None:
    assert sorted([*tony_records.DECOMPRESSED, *tony_records.UNREAD]) == sorted(COMPRESSED)


def test_what_is_not_on_the_disk_is_opened(tmp_path: Path) -> None:
    opened: list[str] = []

    def opener(path: str) -> io.BytesIO:
        opened.append(path)
        return io.BytesIO(b"a\nb\nc\n")

    shard = TaskShard("hdfs:///x.csv", 6, format="lines", offset=2, length=2)
    assert (list(shard.records(opener)), opened) == ([b"b"], ["hdfs:///x.csv"])
    fsspec: Any = pytest.importorskip("fsspec")
    with fsspec.open("memory://records/x.csv", "wb") as file:
        file.write(b"a\nb\nc\n")
    assert list(TaskShard("memory://records/x.csv", 6, format="lines").records()) == [b"a", b"b", b"c"]
    with pytest.raises(InputError, match=r"hdfs:///x\.csv: No module named 'pyarrow'"):
        list(TaskShard("hdfs:///x.csv", 6, format="lines").records())


def test_tensorflow_opens_files(tmp_path: Path) -> None:
    def opener(path: str) -> Any:
        return tf.io.gfile.GFile(path, "rb")

    (tmp_path / "lines").write_bytes(b"one\ntwo\nthree\n")
    lines = [line for shard in pieces(tmp_path / "lines", "lines", 4) for line in shard.records(opener)]
    assert lines == [b"one", b"two", b"three"]
    records = write_tfrecords(tmp_path / "records", [b"a" * 30, b"b" * 30, b""])
    found = [record for shard in pieces(records, "tfrecord", 40) for record in shard.records(opener)]
    assert found == [b"a" * 30, b"b" * 30, b""]


def test_a_format_is_needed() -> None:
    with pytest.raises(InputError, match="set the input's `format` in the job"):
        TaskShard("file:///x").records()


def test_outside_a_job_the_format_is_given_with_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TONY_TASK_TYPE", raising=False)
    (tmp_path / "a.txt").write_text("1\n2\n")
    shards = tony_inputs.inputs("x", f"{tmp_path}/*.txt", "lines")
    assert [record for shard in shards for record in shard.records()] == [b"1", b"2"]
