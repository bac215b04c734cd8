from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from tests.runtime.checkpoint.conftest import SAMPLES, Sample
from tony_provider.runtime.checkpoint.checkpoint_model import LocalCheckpoint
from tony_provider.runtime.checkpoint.formats import find
from tony_provider.runtime.checkpoint.snapshot import Snapshot, SnapshotChanged, take


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    target = tmp_path / "checkpoints"
    shutil.copytree(SAMPLES / "torch", target)
    return target


@pytest.fixture
def found(directory: Path) -> LocalCheckpoint:
    return find(directory).complete[-1]


def read(snapshot: Snapshot) -> dict[str, bytes]:
    return {file.path: file.local.read_bytes() for file in snapshot.files}


def test_it_is_a_checkpoint_by_itself(sample: Sample, tmp_path: Path) -> None:
    directory = sample("manager")
    (whole,) = [one for one in find(directory).complete if one.step == 20]
    snapshot = take(directory, whole, tmp_path / "snapshot")
    assert [(one.step, one.entry) for one in find(tmp_path / "snapshot").complete] == [(20, "ckpt-20")]
    assert {file.path for file in snapshot.files} == {*whole.files}
    assert all(file.size == file.local.stat().st_size for file in snapshot.files)
    # TensorFlow's state file names this checkpoint alone.
    assert read(snapshot)["checkpoint"].count(b"ckpt-20") == 2
    assert b"ckpt-30" not in read(snapshot)["checkpoint"]
    snapshot.check()
    snapshot.remove()
    assert not (tmp_path / "snapshot").exists()
    assert len(find(directory).complete) == 2


def test_a_program_may_remove_its_files(directory: Path, found: LocalCheckpoint, tmp_path: Path) -> None:
    whole = (directory / found.entry).read_bytes()
    snapshot = take(directory, found, tmp_path / "snapshot")
    (directory / found.entry).unlink()
    snapshot.check()
    assert read(snapshot) == {found.entry: whole}


def test_a_program_may_replace_its_files(directory: Path, found: LocalCheckpoint, tmp_path: Path) -> None:
    whole = (directory / found.entry).read_bytes()
    snapshot = take(directory, found, tmp_path / "snapshot")
    (directory / "new").write_bytes(b"new")
    (directory / "new").replace(directory / found.entry)
    snapshot.check()
    assert read(snapshot) == {found.entry: whole}


def rewrite(path: Path) -> None:
    path.write_bytes(path.read_bytes())  # even the same


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x")


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def replace(path: Path) -> None:
    other = path.with_name("other")
    shutil.copy2(path, other)
    other.replace(path)


@pytest.mark.parametrize("change", [rewrite, append, truncate])
def test_what_is_rewritten_while_it_is_copied_is_noticed(
    directory: Path, found: LocalCheckpoint, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    snapshot = take(directory, found, tmp_path / "snapshot")
    change(directory / found.entry)
    with pytest.raises(SnapshotChanged, match="was rewritten"):
        snapshot.check()


@pytest.mark.parametrize("change", [rewrite, append, truncate, Path.unlink])
def test_a_copy_is_nobody_elses(
    directory: Path, found: LocalCheckpoint, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    whole = (directory / found.entry).read_bytes()
    snapshot = take(directory, found, tmp_path / "snapshot", copy=True)
    change(directory / found.entry)
    snapshot.check()
    assert read(snapshot) == {found.entry: whole}
    assert snapshot.files[0].local.stat().st_mode & 0o777 == 0o600


def test_where_there_are_no_links_it_is_a_copy(
    directory: Path, found: LocalCheckpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "no hard links here")  # as FAT or some network file systems do

    monkeypatch.setattr(os, "link", refuse)
    snapshot = take(directory, found, tmp_path / "snapshot")
    assert snapshot.is_copy
    assert read(snapshot) == {found.entry: (directory / found.entry).read_bytes()}


def test_a_file_that_changes_while_it_is_copied(
    directory: Path, found: LocalCheckpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = shutil.copyfileobj

    def slowly(source: IO[bytes], target: IO[bytes], length: int) -> None:
        original(source, target, length)
        append(directory / found.entry)

    monkeypatch.setattr(shutil, "copyfileobj", slowly)
    with pytest.raises(SnapshotChanged):
        take(directory, found, tmp_path / "snapshot", copy=True)
    assert not (tmp_path / "snapshot").exists()


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize("change", [rewrite, append, truncate, replace, Path.unlink])
def test_what_is_changed_before_it_is_held_is_not_held(
    directory: Path, found: LocalCheckpoint, tmp_path: Path, change: Callable[[Path], None], copy: bool
) -> None:
    change(directory / found.entry)
    with pytest.raises(SnapshotChanged, match=r"has vanished|was rewritten") as raised:
        take(directory, found, tmp_path / "snapshot", copy=copy)
    assert raised.value.path == found.entry
    assert not (tmp_path / "snapshot").exists()


def test_a_file_that_became_a_link_is_not_followed(directory: Path, found: LocalCheckpoint, tmp_path: Path) -> None:
    (directory / found.entry).rename(tmp_path / "elsewhere")
    (directory / found.entry).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SnapshotChanged):
        take(directory, found, tmp_path / "snapshot")


def test_a_directory_of_its_own_only(directory: Path, found: LocalCheckpoint, tmp_path: Path) -> None:
    (tmp_path / "snapshot").mkdir()
    with pytest.raises(FileExistsError):
        take(directory, found, tmp_path / "snapshot")
    assert (tmp_path / "snapshot").exists()
