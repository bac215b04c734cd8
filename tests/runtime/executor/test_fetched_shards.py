"""Copies of shards on a node, from a store that is a directory here."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import BinaryIO

import pytest

from tests.waiting import until
from tony_provider.runtime.common.concurrency import Cancelled
from tony_provider.runtime.executor import workspace
from tony_provider.runtime.executor.task_inputs import FetchedShards, NodeShards, NotFetchedError, ShardChangedError
from tony_provider.runtime.inputs.shards import InputShard
from tony_provider.runtime.storage import FileStatus, LocalStorage, StoragePermissionDenied, uris
from tony_provider.runtime.storage.stores import JobStores


class FarStore(LocalStorage):
    """A directory that is reached as ``far:///…``, as a store is that this machine does not have mounted."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.refuses = False
        self.hung: threading.Event | None = None

    def open_read(self, uri: str, *, offset: int = 0, length: int | None = None) -> BinaryIO:
        self.reads += 1
        if self.refuses:
            raise StoragePermissionDenied("open", uri, "not yours")
        stream = super().open_read(uri.replace("far:", "file:"), offset=offset, length=length)
        if self.hung:
            self.hung.wait()
        return stream

    def status(self, uri: str) -> FileStatus:
        return super().status(uri.replace("far:", "file:"))


@pytest.fixture
def far(tmp_path: Path) -> FarStore:
    (tmp_path / "far").mkdir()
    for name, content in {"a.txt": b"first", "b.txt": b"second one"}.items():
        (tmp_path / "far" / name).write_bytes(content)
    return FarStore()


@pytest.fixture
def copies(far: FarStore, tmp_path: Path) -> FetchedShards:
    return FetchedShards(JobStores(far, "far:///"), tmp_path / "inputs")


def shard(far: FarStore, path: Path) -> InputShard:
    status = far.status(f"far://{path}")
    return InputShard(f"far://{path}", status.size, status.modified_ms)


def test_the_copy_of_a_queued_shard_keeps_its_name_and_goes(
    far: FarStore, copies: FetchedShards, tmp_path: Path
) -> None:
    path = copies.copy("images", 7, shard(far, tmp_path / "far/a.txt"))
    assert (path.name, path.read_bytes()) == ("a.txt", b"first")
    copies.remove("images", 7)
    assert not path.parent.exists()
    assert (tmp_path / "far/a.txt").exists()


def test_a_file_of_the_node_itself_is_read_where_it_is(copies: FetchedShards, far: FarStore, tmp_path: Path) -> None:
    original = tmp_path / "far/a.txt"
    assert copies.copy("images", 7, InputShard(f"file://{original}", 5, 0)) == original
    copies.remove("images", 7)
    assert original.read_bytes() == b"first"
    assert far.reads == 0


def test_a_part_is_copied_once_for_all_starts(far: FarStore, copies: FetchedShards, tmp_path: Path) -> None:
    part = tmp_path / "train.jsonl"
    shards = [shard(far, tmp_path / "far" / name) for name in ("a.txt", "b.txt")]

    def copied(*dealt: InputShard) -> list[bytes]:
        part.write_bytes(b"".join(each.line() for each in dealt))
        copies.copy_part("train", part)
        lines = [json.loads(line) for line in part.read_text().splitlines()]
        assert [line["uri"] for line in lines] == [each.uri for each in dealt]
        return [Path(line["path"]).read_bytes() for line in lines]

    assert copied(*shards) == [b"first", b"second one"]
    assert copied(*shards) == [b"first", b"second one"]
    assert far.reads == 2
    assert copied(shards[1]) == [b"second one"]
    assert far.reads == 2
    assert len(list((tmp_path / "inputs/train").iterdir())) == 1


def test_what_is_not_what_was_listed_is_named(far: FarStore, copies: FetchedShards, tmp_path: Path) -> None:
    listed = shard(far, tmp_path / "far/a.txt")
    (tmp_path / "far/a.txt").write_bytes(b"longer than before")
    with pytest.raises(ShardChangedError, match=r"a\.txt has changed since"):
        copies.copy("images", 1, listed)
    (tmp_path / "far/a.txt").unlink()
    with pytest.raises(ShardChangedError, match=r"a\.txt was listed, but does not exist"):
        copies.copy("images", 1, listed)


def test_a_full_disk_is_told_before_anything_is_copied(
    far: FarStore, copies: FetchedShards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspace, "disk_reserve_problem", lambda directory, wanted: f"no room for {wanted}")
    with pytest.raises(OSError, match="no room for 5, but 5 bytes must be copied"):
        copies.copy("images", 1, shard(far, tmp_path / "far/a.txt"))
    assert far.reads == 0


def test_copying_ends_when_it_is_told_to(far: FarStore, copies: FetchedShards, tmp_path: Path) -> None:
    far.hung = threading.Event()
    ended: list[BaseException] = []

    def copy() -> None:
        try:
            copies.copy("images", 1, shard(far, tmp_path / "far/a.txt"))
        except Cancelled as error:
            ended.append(error)

    copying = threading.Thread(target=copy)
    copying.start()
    until(lambda: far.reads, "it reads")
    copies.cancel()
    far.hung.set()
    copying.join(60)
    assert len(ended) == 1


def test_a_shard_that_cannot_be_copied_here_is_no_failed_shard(
    far: FarStore, copies: FetchedShards, tmp_path: Path
) -> None:
    queued = NodeShards(JobStores(far, "far:///"), copies, frozenset({"images"}))
    line = shard(far, tmp_path / "far/a.txt").line()
    far.refuses = True
    with pytest.raises(NotFetchedError, match="shard 3 could not be copied"):
        queued.take("images", 3, line)
    far.refuses = False
    taken = Path(queued.take("images", 3, line))
    assert taken.read_bytes() == b"first"
    assert queued.take("others", 3, line) == ""
    queued.settle("images", 3)
    assert not taken.exists()
    assert uris.scheme(InputShard.of_line(line).uri) == "far"
