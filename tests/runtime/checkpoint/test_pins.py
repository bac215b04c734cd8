"""Readers of a chain pin a checkpoint, so that its owner does not remove it while they copy it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from tests.checkpoints import commit, content
from tony_provider.runtime.checkpoint import catalog
from tony_provider.runtime.checkpoint.catalog import Catalog, fetch_warm_start
from tony_provider.runtime.checkpoint.stored_checkpoint import DamagedCheckpoint
from tony_provider.runtime.storage import FileStatus, LocalStorage, StoragePermissionDenied

DEADLINE = 30


class Interrupted(LocalStorage):
    """Calls a function before one of its operations, or stops the process that uses it there."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = 0
        self.before: dict[int, Callable[[], None]] = {}

    def _operation(self) -> None:
        self.operations += 1
        before = self.before.pop(self.operations, None)
        if before is not None:
            before()

    def status(self, uri: str) -> FileStatus:
        self._operation()
        return super().status(uri)

    def list(self, uri: str) -> list[FileStatus]:
        self._operation()
        return super().list(uri)

    def write(self, uri: str, source: Any, **more: Any) -> int:
        self._operation()
        return super().write(uri, source, **more)

    def remove(self, uri: str, *, recursive: bool = False) -> bool:
        self._operation()
        return super().remove(uri, recursive=recursive)

    def rename(self, source: str, target: str, *, overwrite: bool = False) -> None:
        self._operation()
        super().rename(source, target, overwrite=overwrite)


class Died(BaseException):
    """The process of the owner has ended."""


@pytest.fixture
def chain(tmp_path: Path) -> str:
    return (tmp_path / "chain-0001").as_uri()


def pin_files(chain: str) -> list[str]:
    return [status.name for status in LocalStorage().list(f"{chain}/pins")]


# ---- the owner and one reader --------------------------------------------------------------------------------------


def prune_with_a_reader(chain: str, reads_at: int, dies_at: int | None) -> tuple[str, bool, int]:
    """Prune two checkpoints, with a reader that pins the first one before an operation of the owner.

    Returns its URI, whether the reader has it, and how many operations there were.
    """
    first, _, last = (commit(LocalStorage(), chain, step, b"weights of %d" % step) for step in (1, 2, 3))
    storage, has = Interrupted(), [False]
    owner = Catalog(storage, chain)

    def read() -> None:
        has[0] = Catalog(LocalStorage(), chain, read_only=True).pin(first.uri, "reader")

    def die() -> None:
        raise Died

    if dies_at is not None:
        storage.before[dies_at] = die
    storage.before[reads_at] = read
    try:
        owner.prune(1)
    except Died:
        Catalog(LocalStorage(), chain).remove_unfinished()
    Catalog(LocalStorage(), chain).prune(1)
    assert Catalog(LocalStorage(), chain).newest() == last
    return first.uri, has[0], storage.operations


def test_a_checkpoint_that_a_reader_has_pinned_is_whole_whenever_the_reader_comes(tmp_path: Path) -> None:
    kept, gone, at, operations = 0, 0, 0, 1
    while at < operations:
        at += 1
        uri, has, operations = prune_with_a_reader(f"file://{tmp_path}/{at}", at, None)
        if has:
            assert content(LocalStorage(), uri) == {"model.bin": b"weights of 1"}
        kept, gone = kept + has, gone + (not has)
    assert min(kept, gone) >= 3, "the reader came before, during and after the removal"


def test_a_checkpoint_that_a_reader_has_pinned_is_whole_after_its_owner_died(tmp_path: Path) -> None:
    """In the middle of its removal, after which another process of the owner cleans up."""
    _, _, operations = prune_with_a_reader(f"file://{tmp_path}/all", 1, None)
    for reads_at in range(1, operations):
        for dies_at in range(reads_at + 1, operations + 1):
            uri, has, _ = prune_with_a_reader(f"file://{tmp_path}/{reads_at}-{dies_at}", reads_at, dies_at)
            if has:
                assert content(LocalStorage(), uri) == {"model.bin": b"weights of 1"}


def test_a_checkpoint_is_removed_after_its_last_reader(chain: str) -> None:
    first, last = (commit(LocalStorage(), chain, step) for step in (1, 2))
    owner, reader = Catalog(LocalStorage(), chain), Catalog(LocalStorage(), chain, read_only=True)
    for name in ("one", "another"):
        assert reader.pin(first.uri, name)
    for name in ("one", "another"):
        assert owner.prune(1) == []
        reader.unpin(first.uri, name)
    assert owner.prune(1) == [first.uri]
    assert owner.list() == [last]
    assert pin_files(chain) == []


def test_the_pin_of_a_dead_reader_ends(chain: str, tmp_path: Path) -> None:
    first, _ = (commit(LocalStorage(), chain, step) for step in (1, 2))
    owner = Catalog(LocalStorage(), chain)
    assert Catalog(LocalStorage(), chain, read_only=True).pin(first.uri, "reader")
    (pin,) = (tmp_path / "chain-0001" / "pins").iterdir()
    foreign = pin.with_name("README")
    foreign.touch()
    os.utime(foreign, (0, 0))
    for age, removed in ((catalog.LONGEST_PIN - 60, []), (catalog.LONGEST_PIN + 60, [first.uri])):
        os.utime(pin, (pin.stat().st_ctime - age,) * 2)
        assert owner.prune(1) == removed
    assert pin_files(chain) == ["README"]


def test_a_checkpoint_that_is_gone_cannot_be_pinned(chain: str) -> None:
    first, _ = (commit(LocalStorage(), chain, step) for step in (1, 2))
    reader = Catalog(LocalStorage(), chain, read_only=True)
    reader.list()
    Catalog(LocalStorage(), chain).prune(1)
    assert not reader.pin(first.uri, "reader")
    assert [each.step for each in reader.list()] == [2]


# ---- copies of a training that goes on -----------------------------------------------------------------------------


class Slow(LocalStorage):
    """Copies no object before the chain has a newer checkpoint, and old ones have been removed."""

    def __init__(self, chain: str, *, may_write: bool = True, most: int = 1000) -> None:
        super().__init__()
        self._owner = Catalog(LocalStorage(), chain)
        self._may_write = may_write
        self._left = most
        self.step = 1

    def open_read(self, uri: str, *, offset: int = 0, length: int | None = None) -> BinaryIO:
        if "/objects/" in uri and self._left:
            self._left -= 1
            self.step += 1
            commit(LocalStorage(), self._owner.chain_uri, self.step, b"weights of %d" % self.step)
            self._owner.prune(1)
        return super().open_read(uri, offset=offset, length=length)

    def write(self, uri: str, source: Any, **more: Any) -> int:
        if not self._may_write:
            raise StoragePermissionDenied(uri, "write", "the chain is another user's")
        return super().write(uri, source, **more)


def fetch(storage: LocalStorage, chain: str, directory: Path) -> bytes:
    fetch_warm_start(storage, chain, directory, threading.Event())
    return (directory / "model.bin").read_bytes()


@pytest.fixture
def training(chain: str) -> str:
    """A chain with a first checkpoint."""
    commit(LocalStorage(), chain, 1, b"weights of 1")
    LocalStorage().write(f"{chain}/chain.json", b"{}")
    return chain


def test_a_warm_start_copies_the_checkpoint_that_it_began_with(training: str, tmp_path: Path) -> None:
    storage = Slow(training)
    assert fetch(storage, training, tmp_path / "copy") == b"weights of 1"
    assert pin_files(training) == []
    Catalog(LocalStorage(), training).prune(1)
    assert [each.step for each in Catalog(LocalStorage(), training).list()] == [storage.step]


def test_a_reader_without_the_right_to_write_copies_a_newer_checkpoint_with_a_simulated_right(
    training: str, tmp_path: Path
) -> None:
    assert fetch(Slow(training, may_write=False, most=2), training, tmp_path / "copy") == b"weights of 3"


def test_a_reader_without_the_right_to_write_says_what_to_do_in_the_end_with_a_simulated_right(
    training: str, tmp_path: Path
) -> None:
    with pytest.raises(DamagedCheckpoint, match="wait until it has ended, or raise its checkpoint"):
        fetch(Slow(training, may_write=False), training, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_readers_of_a_training_that_commits_and_prunes_all_the_time(training: str, tmp_path: Path) -> None:
    ended = threading.Event()

    def train() -> None:
        owner, step = Catalog(LocalStorage(), training), 1
        while not ended.is_set():
            step += 1
            commit(LocalStorage(), training, step, b"weights of %d" % step * 1000)
            owner.prune(1)

    with ThreadPoolExecutor(1) as pool:
        trained = pool.submit(train)
        try:
            for number in range(30):
                data = fetch(LocalStorage(), training, tmp_path / f"copy-{number}")
                assert data.startswith(b"weights of ")
        finally:
            ended.set()
        trained.result(DEADLINE)
