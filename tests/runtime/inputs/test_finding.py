from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from tony_provider.runtime.inputs.finding import BadInputError, find_shards
from tony_provider.runtime.jobspec.model import InputSpec
from tony_provider.runtime.storage import LocalStorage
from tony_provider.runtime.storage.object_store import ObjectStorage
from tony_provider.runtime.storage.stores import JobStores


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[JobStores]:
    made = JobStores(LocalStorage(), str(tmp_path))
    yield made
    made.close()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name in (
        "a.csv",
        "b.csv",
        "b.txt",
        "_SUCCESS",
        ".a.csv.crc",
        "day=1/x.csv",
        "day=2/y.csv",
        "day=2/deep/z.csv",
        "day=2/_temporary/half.csv",
    ):
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path / "data"


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("", ["a.csv", "b.csv", "b.txt", "day=1/x.csv", "day=2/deep/z.csv", "day=2/y.csv"]),
        ("a.csv", ["a.csv"]),
        ("*.csv", ["a.csv", "b.csv"]),
        ("?.txt", ["b.txt"]),
        ("[ab].csv", ["a.csv", "b.csv"]),
        ("day=*/*.csv", ["day=1/x.csv", "day=2/y.csv"]),
        ("day=*", ["day=1/x.csv", "day=2/deep/z.csv", "day=2/y.csv"]),
        ("**/*.csv", ["a.csv", "b.csv", "day=1/x.csv", "day=2/y.csv", "day=2/deep/z.csv"]),
        ("day=2/**", ["day=2/deep/z.csv", "day=2/y.csv"]),
        ("_SUCCESS", ["_SUCCESS"]),
        ("_*", ["_SUCCESS"]),
    ],
)
def test_paths(stores: JobStores, data: Path, pattern: str, names: list[str]) -> None:
    found = list(find_shards("x", InputSpec([f"{data}/{pattern}"]), stores))
    assert [shard.uri for shard in found] == [f"file://{data}/{name}" for name in names]
    assert [shard.size for shard in found] == [len(name) for name in names]
    assert all(shard.modified_ms > 0 for shard in found)


@pytest.mark.parametrize("pattern", ["", "**", "**/*.csv"])
def test_a_link_to_a_directory_above_leads_nowhere(stores: JobStores, data: Path, pattern: str) -> None:
    before = [shard.uri for shard in find_shards("x", InputSpec([f"{data}/{pattern}"]), stores)]
    (data / "day=2" / "up").symlink_to(data)
    (data / "day=1" / "there").symlink_to(data / "day=2")
    (data / "day=2" / "back").symlink_to(data / "day=1")
    after = [shard.uri for shard in find_shards("x", InputSpec([f"{data}/{pattern}"]), stores)]
    names = ["day=1/there/deep/z.csv", "day=1/there/y.csv", "day=2/back/x.csv"]  # other ways to the same, once each
    assert sorted(after) == sorted([*before, *(f"file://{data}/{name}" for name in names)])


def test_a_file_that_two_paths_name_comes_once(stores: JobStores, data: Path) -> None:
    found = find_shards("x", InputSpec([f"{data}/b.*", f"file://{data}/*.csv"]), stores)
    assert [shard.uri.rpartition("/")[2] for shard in found] == ["b.csv", "b.txt", "a.csv"]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("nothing.csv", r"inputs\.x\.paths\[1\]: file://.*nothing\.csv does not exist; correct the path"),
        ("*.parquet", r"inputs\.x\.paths\[1\]: .*\*\.parquet matches no file"),
        ("no/**/*.csv", r"inputs\.x\.paths\[1\]: .* matches no file"),
    ],
)
def test_a_path_that_names_nothing(stores: JobStores, data: Path, path: str, words: str) -> None:
    with pytest.raises(BadInputError, match=words):
        list(find_shards("x", InputSpec([f"{data}/a.csv", f"{data}/{path}"]), stores))


@pytest.mark.parametrize("uri", ["hdfs:///data/*.csv", "nosuchscheme://bucket/data"])
def test_a_store_that_is_not_known(stores: JobStores, uri: str) -> None:
    with pytest.raises(BadInputError, match=r"inputs\.x\.paths\[0\]: .*(no WebHDFS addresses|nosuchscheme)"):
        list(find_shards("x", InputSpec([uri]), stores))


def test_an_object_store() -> None:
    storage = ObjectStorage("s3://bucket", MemoryStore())
    for name in ("one.bin", "two.bin", "two.txt", "_hidden.bin", "below/three.bin"):
        storage.write(f"s3://bucket/find/{name}", name.encode())
    stores = JobStores(storage, "s3://bucket/")
    found = list(find_shards("x", InputSpec(["s3://bucket/find/*.bin"]), stores))
    assert [(shard.uri, shard.size) for shard in found] == [
        ("s3://bucket/find/one.bin", 7),
        ("s3://bucket/find/two.bin", 7),
    ]
    assert len(list(find_shards("x", InputSpec(["s3://bucket/find"]), stores))) == 4
