"""Files that are made to run away with whoever reads them, read in a process of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.checkpoint import hostile
from tests.runtime.checkpoint.conftest import SAMPLES, age
from tests.waiting import until
from tony_provider.runtime.artifacts.manifest import scan
from tony_provider.runtime.checkpoint.content import readers
from tony_provider.runtime.checkpoint.content.zips import Unreadable
from tony_provider.runtime.checkpoint.save_finder import SaveFinder
from tony_provider.runtime.executor import checkpoint_limits, processes
from tony_provider.runtime.executor.checkpoint_limits import CheckpointReader

TORCH = SAMPLES / "torch" / "checkpoint.pt"
# Read to its end, it is a whole file like any other.
WHOLE = {"name.pt"}


@pytest.fixture
def reader() -> Iterator[CheckpointReader]:
    made = CheckpointReader()
    yield made
    made.close()


def fill(directory: Path) -> None:
    for name, content in hostile.FILES.items():
        (directory / name).write_bytes(content())
    (directory / "good.pt").write_bytes(TORCH.read_bytes())
    age(directory)


def test_hostile_files_hide_no_good_checkpoint(tmp_path: Path, reader: CheckpointReader) -> None:
    fill(tmp_path)
    found = SaveFinder(tmp_path, reading=reader.read).find(scan(tmp_path))
    broken = found.verified(alone=True).broken
    assert set(broken) == set(hostile.FILES) - WHOLE, broken
    assert all(len(reason) < 1200 for reason in broken.values())
    assert set(found.verified(alone=True).whole) >= {"good.pt"}
    for name in WHOLE:
        (tmp_path / name).unlink()
    loadable = SaveFinder(tmp_path, reading=reader.read).find(scan(tmp_path)).loadable(alone=True)
    assert loadable is not None
    assert loadable.entry == "good.pt"


@pytest.mark.parametrize("name", sorted(set(hostile.FILES) - WHOLE))
def test_each_parser_is_bounded_by_itself(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(hostile.FILES[name]())
    found = SaveFinder(tmp_path).find(scan(tmp_path))
    assert found.loadable(alone=True) is None
    assert set(found.verified(alone=True).broken) == {name}


def test_says_what_the_readers_say(reader: CheckpointReader, tmp_path: Path) -> None:
    assert reader.read("torch", TORCH) == list(readers.read_here("torch", TORCH))
    with pytest.raises(FileNotFoundError):
        reader.read("torch", tmp_path / "none.pt")
    (tmp_path / "empty.pt").touch()
    with pytest.raises(Unreadable, match="it is empty"):
        reader.read("torch", tmp_path / "empty.pt")
    with pytest.raises(IsADirectoryError):
        reader.read("torch", tmp_path)


def test_its_process_is_kept_and_is_none_of_the_user_processes(reader: CheckpointReader) -> None:
    before = set(processes.descendants(os.getpid()))
    reader.read("torch", TORCH)
    process = reader._process
    assert process is not None
    reader.read("torch", TORCH)
    assert reader._process is process
    assert set(processes.descendants(os.getpid())) <= before
    reader.close()
    assert process.poll() is not None


def test_one_that_was_killed_is_replaced(reader: CheckpointReader) -> None:
    reader.read("torch", TORCH)
    assert reader._process is not None
    os.kill(reader._process.pid, signal.SIGKILL)
    until(lambda: reader._process is None or reader._process.poll() is not None, "it to be killed")
    assert reader.read("torch", TORCH) == list(readers.read_here("torch", TORCH))


def test_a_file_that_takes_the_processor_is_given_up(
    reader: CheckpointReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_limits, "_CPU_SECONDS", 0)
    (tmp_path / "long.pt").write_bytes(b"\x80\x02" + b"N0" * 2_000_000)
    with pytest.raises(Unreadable, match="exceeded its CPU time limit"):
        reader.read("torch", tmp_path / "long.pt")
    monkeypatch.undo()
    assert reader.read("torch", TORCH) == list(readers.read_here("torch", TORCH))
