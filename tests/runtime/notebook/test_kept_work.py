"""What is kept of a notebook's work, and put back."""

from __future__ import annotations

import json
import os
import sys
import tarfile
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.files import files_below
from tony_provider.runtime.notebook import kept_work
from tony_provider.runtime.notebook.kept_work import (
    NOT_KEPT,
    KeptWork,
    Packed,
    WorkChoice,
    WorkFile,
    pack_work,
    unpack_work,
    work_files_below,
)
from tony_provider.runtime.sdk import tony_sdk


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KeptWork:
    """A new one, of at most 1000 bytes."""
    checkpoints = tmp_path / "checkpoints"
    checkpoints.mkdir()
    monkeypatch.setitem(sys.modules, "tony_sdk", tony_sdk)
    monkeypatch.setenv("TONY_CHECKPOINT_DIR", str(checkpoints))
    monkeypatch.delenv("TONY_RESUME_STEP", raising=False)
    made = KeptWork(tmp_path / "notebook", checkpoints, 1000, ("job",))
    assert made.restore(None) == "new and empty"
    return made


def newest(work: KeptWork) -> Path:
    """The archive that the newest manifest names."""
    checkpoints = work._checkpoints
    step = max(int(file.name.split(".")[0].removeprefix("step-")) for file in checkpoints.glob("*.tony.json"))
    manifest = json.loads((checkpoints / f"step-{step}.tony.json").read_text())
    (file,) = manifest["files"]
    assert (manifest["entry"], manifest["step"]) == (file["path"], step)
    assert (checkpoints / file["path"]).stat().st_size == file["size"]
    return Path(checkpoints, file["path"])


def put_back(work: KeptWork, folder: Path) -> KeptWork:
    """As another container has it."""
    other = KeptWork(folder, work._checkpoints, 1000)
    other.restore(str(newest(work)))
    return other


def test_what_is_kept_is_put_back(work: KeptWork, tmp_path: Path) -> None:
    (work.directory / "a.ipynb").write_text("first")
    (work.directory / "tools").mkdir()
    (work.directory / "tools" / "run.sh").write_text("#!/bin/sh\n")
    (work.directory / "tools" / "run.sh").chmod(0o700)
    (work.directory / "tools" / "empty").mkdir()
    (work.directory / "tools" / "link").symlink_to("run.sh")
    assert work.poll()
    assert not work.is_kept
    assert work.keep() == "3 files kept, 15 B"
    assert work.is_kept
    assert not work.poll()
    other = put_back(work, tmp_path / "other")
    assert other.is_kept
    assert sorted(files_below(other.directory)) == ["a.ipynb", "tools/link", "tools/run.sh"]
    assert (other.directory / "a.ipynb").read_text() == "first"
    assert os.access(other.directory / "tools" / "run.sh", os.X_OK)
    assert (other.directory / "tools" / "link").readlink() == Path("run.sh")
    assert (other.directory / "tools" / "empty").is_dir()


def test_what_goes_is_gone_and_only_the_newest_archives_stay(work: KeptWork, tmp_path: Path) -> None:
    for number in range(5):
        (work.directory / f"{number}").write_text("x")
        if number:
            (work.directory / f"{number - 1}").unlink()
        work.keep()
    assert sorted(path.name for path in work._checkpoints.iterdir()) == [
        "step-4.tony.json", "step-5.tony.json", "work-4.tar", "work-5.tar"
    ]  # fmt: skip
    assert files_below(put_back(work, tmp_path / "other").directory) == ["4"]


def test_numbers_go_on_where_they_were(work: KeptWork, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TONY_RESUME_STEP", "41")
    work.keep()
    assert newest(work).name == "work-42.tar"


def test_copies_and_half_written_files_of_jupyter_are_no_work(work: KeptWork) -> None:
    (work.directory / "job").symlink_to("/")
    for name in (".ipynb_checkpoints", "__pycache__"):
        (work.directory / name).mkdir()
        (work.directory / name / "a").touch()
    (work.directory / ".~a.ipynb").touch()
    assert not work.poll()
    (work.directory / "job").unlink()
    (work.directory / "job").mkdir()  # somebody's own
    assert work.poll()


def test_what_has_no_room_is_named_where_people_look(work: KeptWork, tmp_path: Path) -> None:
    (work.directory / "a.ipynb").write_text("first")
    (work.directory / "data.parquet").write_bytes(bytes(2000))
    assert "NOT kept, because of the size limit: data.parquet" in work.keep()
    note = (work.directory / NOT_KEPT).read_text()
    assert "2.0 KiB  data.parquet" in note
    assert "may have at most 1000 B" in note
    assert not work.poll()  # the note is none of the work
    assert files_below(put_back(work, tmp_path / "other").directory) == ["a.ipynb"]
    (work.directory / "data.parquet").unlink()
    work.keep()
    assert not (work.directory / NOT_KEPT).exists()


def test_a_file_that_is_written_meanwhile_is_kept_once_more(work: KeptWork, monkeypatch: pytest.MonkeyPatch) -> None:
    log = work.directory / "log.txt"
    log.write_text("one")
    opened = kept_work._open

    def written_meanwhile(path: Path) -> BinaryIO:
        log.write_text("one, two")
        return opened(path)

    monkeypatch.setattr(kept_work, "_open", written_meanwhile)
    assert "changed during the save, so they are kept again: log.txt" in work.keep()
    assert not work.is_kept
    monkeypatch.undo()


def test_a_file_that_cannot_be_read_is_named_and_the_rest_is_kept(work: KeptWork, tmp_path: Path) -> None:
    (work.directory / "a.ipynb").write_text("first")
    os.mkfifo(work.directory / "pipe")
    found = [*work_files_below(work.directory), WorkFile("gone", 5, 0, 0o100600)]
    assert pack_work(work.directory, found, tmp_path / "work-1.tar") == Packed([], ["gone"])
    assert [file.path for file in found] == ["a.ipynb", "gone"]


def test_what_cannot_be_noted_takes_no_room(work: KeptWork, monkeypatch: pytest.MonkeyPatch) -> None:
    (work.directory / "a.ipynb").write_text("first")
    monkeypatch.setattr(tony_sdk, "commit_checkpoint", lambda *_: False)
    with pytest.raises(OSError, match="could not be committed"):
        work.keep()
    assert list(work._checkpoints.iterdir()) == []
    monkeypatch.undo()


def test_a_start_again_in_the_same_container_goes_on_with_what_is_there(work: KeptWork) -> None:
    (work.directory / "a.ipynb").write_text("first")
    work.keep()
    (work.directory / "a.ipynb").write_text("second")
    again = KeptWork(work.directory, work._checkpoints, 1000)
    again.restore(str(newest(work)))
    assert (again.directory / "a.ipynb").read_text() == "second"
    again.poll()
    assert not again.is_kept


@pytest.mark.parametrize("name", ["../a", "/tmp/a", "b/../../a"])
def test_nothing_is_put_outside_of_the_directory(tmp_path: Path, name: str) -> None:
    with tarfile.open(tmp_path / "work-1.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo(name))
    (tmp_path / "in").mkdir()
    with pytest.raises(tarfile.TarError, match="leads out of the archive"):
        unpack_work(tmp_path / "work-1.tar", tmp_path / "in")
    assert not (tmp_path / "a").exists()


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "work-1.tar", "w") as tar:
        link = tarfile.TarInfo("out")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path / "elsewhere")
        tar.addfile(link)
        tar.addfile(tarfile.TarInfo("out/a"))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "in").mkdir()
    with pytest.raises(OSError, match="exists"):
        unpack_work(tmp_path / "work-1.tar", tmp_path / "in")
    assert not list((tmp_path / "elsewhere").iterdir())


NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=20).filter(
    lambda name: name not in (".", "..") and not name.startswith(".~") and len(name.encode()) < 200
)


@given(st.dictionaries(NAMES, st.binary(max_size=200), max_size=6))
def test_any_files_are_packed_and_put_back(
    tmp_path_factory: pytest.TempPathFactory, contents: dict[str, bytes]
) -> None:
    folder = tmp_path_factory.mktemp("any")
    for name in ("from", "to"):
        (folder / name).mkdir()
    for name, content in contents.items():
        (folder / "from" / name).write_bytes(content)
    assert pack_work(folder / "from", list(work_files_below(folder / "from")), folder / "work-1.tar") == Packed([], [])
    unpack_work(folder / "work-1.tar", folder / "to")
    kept = {name: content for name, content in contents.items() if name not in ("__pycache__", NOT_KEPT)}
    assert {path.name: path.read_bytes() for path in (folder / "to").iterdir()} == kept


@given(st.lists(st.integers(0, 500), max_size=20), st.integers(0, 1000), st.integers(0, 10))
def test_a_choice_keeps_the_smallest_and_loses_nothing(sizes: list[int], most_bytes: int, most_files: int) -> None:
    files = [WorkFile(str(number), size, 0, 0o100600) for number, size in enumerate(sizes)]
    choice = WorkChoice.of(files, most_bytes, most_files)
    assert sorted(file.path for file in (*choice.kept, *choice.left)) == sorted(file.path for file in files)
    assert sum(file.size for file in choice.kept) <= most_bytes
    assert len(choice.kept) <= most_files
    if choice.left and choice.kept:
        assert max(file.size for file in choice.kept) <= min(file.size for file in choice.left)
