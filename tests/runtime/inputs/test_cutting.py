"""Shards that are pieces of files: which bytes and row groups they have."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from obstore.store import MemoryStore

from tony_provider.runtime.inputs.finding import BadInputError, cut_bytes, cut_row_groups, find_shards
from tony_provider.runtime.inputs.shards import InputShard, Listing
from tony_provider.runtime.jobspec.model import InputFormat, InputSpec, Memory
from tony_provider.runtime.storage import LocalStorage
from tony_provider.runtime.storage.object_store import ObjectStorage
from tony_provider.runtime.storage.stores import JobStores

SAMPLES = Path(__file__).parent / "samples"
MIB = 1 << 20
PIECE = Memory(1)


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[JobStores]:
    made = JobStores(LocalStorage(), str(tmp_path))
    yield made
    made.close()


@given(st.integers(0, 1 << 40), st.integers(1, 1 << 40))
def test_bytes_are_in_one_piece_each(size: int, piece: int) -> None:
    if size > 1000 * piece:
        size %= 1000 * piece
    whole = InputShard("file:///a.csv", size, 7, "lines")
    cut = cut_bytes(whole, piece)
    if len(cut) == 1:
        assert cut == [whole]
        assert size <= piece
        return
    begins, lengths = [shard.offset or 0 for shard in cut], [shard.bytes_to_read for shard in cut]
    ends = [begin + length for begin, length in zip(begins, lengths, strict=True)]
    assert (begins, ends[-1]) == ([0, *ends[:-1]], size)
    assert 0 < max(lengths) <= piece
    assert max(lengths) - min(lengths) <= 1


@pytest.mark.parametrize("name", ["a.csv.gz", "a.BZ2", "a.jsonl.zst"])
def test_what_is_compressed_stays_whole(name: str) -> None:
    whole = InputShard(f"file:///{name}", 1000, 7, "lines")
    assert cut_bytes(whole, 10) == [whole]


@given(st.lists(st.integers(0, 100), max_size=30), st.integers(1, 300))
def test_row_groups_are_in_one_piece_each(sizes: list[int], piece: int) -> None:
    cut = cut_row_groups(InputShard("file:///a", 1000, 7, "parquet"), sizes, piece)
    groups = [shard.row_groups or (0, 0) for shard in cut]
    assert [group for first, end in groups for group in range(first, end)] == list(range(len(sizes)))
    lengths = [sum(sizes[first:end]) for first, end in groups]
    assert [shard.bytes_to_read for shard in cut] == lengths
    assert all(length <= piece or end - first == 1 for length, (first, end) in zip(lengths, groups, strict=True))
    assert len(cut) >= 1


@given(
    st.builds(
        InputShard,
        st.text(st.characters(codec="utf-8")),
        st.integers(0, 1 << 60),
        st.integers(0, 1 << 45),
        st.none() | st.sampled_from(["lines", "tfrecord", "parquet"]),
        st.none() | st.integers(0, 1 << 60),
        st.none() | st.integers(0, 1 << 60),
        st.none() | st.tuples(st.integers(0, 9), st.integers(0, 9)),
        st.none() | st.text(),
    )
)
def test_a_line_has_a_piece_as_it_is(shard: InputShard) -> None:
    assert InputShard.of_line(shard.line()) == shard


def test_the_listing_of_an_earlier_release_is_read(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(b'{"uri":"file:///data/a","size":9,"modified_ms":5}\n')
    listing = Listing.load(LocalStorage(), f"{tmp_path}/x.jsonl")
    (line,) = listing.lines([0])
    assert InputShard.of_line(line) == InputShard("file:///data/a", 9, 5)
    assert list(listing.sizes) == [9]
    listing.close()


def test_an_input_is_cut_by_its_format_and_weighs_its_pieces(stores: JobStores, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(bytes(5 * MIB // 2))
    (tmp_path / "b.txt").write_bytes(bytes(10))
    shards = list(
        find_shards("x", InputSpec([f"{tmp_path}/*.txt"], format=InputFormat.LINES, split_size=PIECE), stores)
    )
    assert [(Path(shard.uri).name, shard.offset) for shard in shards] == [
        ("a.txt", 0),
        ("a.txt", 5 * MIB // 6),
        ("a.txt", 5 * MIB // 3),
        ("b.txt", None),
    ]
    assert json.loads(shards[3].line()).keys() == {"uri", "size", "modified_ms", "format"}
    listing = Listing.of(shards)
    assert listing.total_size == 5 * MIB // 2 + 10
    assert max(listing.sizes) <= MIB
    listing.close()


def test_a_file_that_two_paths_name_has_its_pieces_once(stores: JobStores, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(bytes(2 * MIB))
    paths = [f"{tmp_path}/a.txt", f"{tmp_path}/*.txt"]
    shards = list(find_shards("x", InputSpec(paths, format=InputFormat.LINES, split_size=PIECE), stores))
    assert [shard.offset for shard in shards] == [0, MIB]


def test_many_parquet_files_come_in_their_order(stores: JobStores, tmp_path: Path) -> None:
    for number in range(100):
        shutil.copy(SAMPLES / ("pyarrow.parquet" if number % 2 else "fastparquet.parquet"), tmp_path / f"{number:03}")
    spec = InputSpec([str(tmp_path)], format=InputFormat.PARQUET, split_size=PIECE)
    shards = list(find_shards("x", spec, stores))
    assert [shard.uri for shard in shards] == [f"file://{tmp_path}/{number:03}" for number in range(100)]
    assert [shard.row_groups for shard in shards] == [(0, 3), (0, 4)] * 50
    assert shards[1].length == 914 + 934 + 940 + 678
    whole = list(find_shards("x", attrs.evolve(spec, split_size=None), stores))
    assert {(shard.format, shard.length, shard.row_groups) for shard in whole} == {("parquet", None, None)}


def test_a_parquet_file_that_is_none_is_named(stores: JobStores, tmp_path: Path) -> None:
    shutil.copy(SAMPLES / "pyarrow.parquet", tmp_path / "a")
    (tmp_path / "b").write_text("a,b\n1,2\n3,4\n5,6\n")
    spec = InputSpec([str(tmp_path)], format=InputFormat.PARQUET, split_size=PIECE)
    words = rf"inputs\.x: file://{tmp_path}/b cannot be cut as a Parquet file: it does not end with the marker"
    with pytest.raises(BadInputError, match=words):
        list(find_shards("x", spec, stores))


def test_a_checksum_is_that_of_the_store_where_it_has_one(stores: JobStores, tmp_path: Path) -> None:
    storage = ObjectStorage("s3://sums", MemoryStore())
    storage.write("s3://sums/a", b"x")
    (shard,) = find_shards("x", InputSpec(["s3://sums/a"], checksum=True), JobStores(storage, "s3://sums"))
    assert str(shard.checksum).startswith("ETag:")
    (tmp_path / "a").write_bytes(b"x")
    (shard,) = find_shards("x", InputSpec([f"{tmp_path}/a"], checksum=True), stores)
    assert shard.checksum is None
