"""What of a task's checkpoint directory is newer than the store, and what a start finds in it."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from tests.runtime.checkpoint.test_rewritten import torch_like
from tests.runtime.executor.test_exact_resume import Rank
from tony_provider.runtime.artifacts.throttle import Throttle
from tony_provider.runtime.checkpoint.catalog import Catalog
from tony_provider.runtime.checkpoint.checkpoint_model import CheckpointFile, Manifest, directory_name, rank_directory
from tony_provider.runtime.executor.upload import Upload
from tony_provider.runtime.storage import LocalStorage, uris


@pytest.fixture
def rank(tmp_path: Path) -> Rank:
    (tmp_path / "container").mkdir()
    return Rank.make(tmp_path / "container")


def commit(rank: Rank, tmp_path: Path) -> str:
    """What is newest, as the mirror and the master do it; its URI."""
    directory = rank.directory
    newest = directory.newest(None, True)
    assert newest is not None
    catalog = Catalog(LocalStorage(), f"file://{tmp_path}/chain")
    uri = uris.join(catalog.uri, directory_name(directory.next_save, newest.step))
    snapshot = directory.take(newest)
    sent = Upload(LocalStorage(), Throttle(None)).run(snapshot, rank_directory(uri, 0), overwrite=False)
    files = [CheckpointFile(file.path, file.size, file.checksum) for file in sent]
    manifest = Manifest(directory.next_save, newest.step, newest.format, newest.entry, files)
    catalog.commit(uri, manifest)
    directory.committed(snapshot, directory.next_save, uri)
    return uri


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def test_a_start_in_the_same_container_goes_back_to_the_store_where_nothing_as_new_is_whole(
    rank: Rank, tmp_path: Path
) -> None:
    """The process was killed while it wrote its one file in place."""
    file = torch_like(rank.directory.path / "snapshot.pt", {"epoch": 60}, at=1000)
    whole = file.read_bytes()
    commit(rank, tmp_path)
    cut_short(file)
    resumed = rank.directory.keep(0, threading.Event())
    assert resumed is not None
    assert (resumed.point.step, file.read_bytes()) == (60, whole)
    assert rank.directory.newest(None, True) is None


def test_a_start_in_the_same_container_keeps_what_is_newer(rank: Rank, tmp_path: Path) -> None:
    file = torch_like(rank.directory.path / "snapshot.pt", {"epoch": 60}, at=1000)
    commit(rank, tmp_path)
    torch_like(file, {"epoch": 61}, at=1001)
    resumed = rank.directory.keep(0, threading.Event())
    assert resumed is not None
    assert resumed.point.step == 61


def test_a_start_in_the_same_container_takes_what_is_there_when_the_store_has_lost_it(
    rank: Rank, tmp_path: Path
) -> None:
    torch_like(rank.directory.path / "epoch-3.pt", {}, at=1000)
    newer = torch_like(rank.directory.path / "epoch-4.pt", {}, at=1001)
    uri = commit(rank, tmp_path)
    shutil.rmtree(uri.removeprefix("file://"))
    cut_short(newer)
    resumed = rank.directory.keep(0, threading.Event())
    assert resumed is not None
    assert resumed.point.step == 3


def test_half_of_a_checkpoint_of_two_files_is_none(rank: Rank, tmp_path: Path) -> None:
    model = torch_like(rank.directory.path / "model.pt", {}, at=1000)
    optimizer = torch_like(rank.directory.path / "optimizer.pt", {}, at=1001)
    commit(rank, tmp_path)
    torch_like(model, {}, at=1002)
    cut_short(optimizer)
    assert rank.directory.newest(None, True) is None, "it was killed while it wrote the other one"
    torch_like(optimizer, {}, at=1003)
    newest = rank.directory.newest(None, True)
    assert newest is not None
    assert newest.files == ("model.pt", "optimizer.pt")


def test_a_save_by_a_clock_that_was_set_back_counts(rank: Rank, tmp_path: Path) -> None:
    file = torch_like(rank.directory.path / "snapshot.pt", {}, at=5000)
    commit(rank, tmp_path)
    torch_like(file, {}, at=1000)
    assert rank.directory.newest(None, True) is not None


def test_a_number_that_was_refused_is_not_tried_again(rank: Rank) -> None:
    before = rank.directory.next_save
    rank.directory.refused()
    assert rank.directory.next_save == before + 1
