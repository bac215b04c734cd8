"""The search of working directories finds what a program has written there, and reads little else."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tony_provider.runtime.executor import unstored_files
from tony_provider.runtime.executor.unstored_files import WorkingDirectories

OLD = 1_600_000_000  # seconds since the epoch


def put(path: Path, *, old: bool = False) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"weights")
    if old:
        for each in (path, path.parent):
            os.utime(each, (OLD, OLD))
    return path


def directories(container: Path, *without: Path) -> WorkingDirectories:
    return WorkingDirectories(container, without, time.time_ns() - 60 * 10**9)


def test_only_files_that_were_written_since_the_start_are_found(tmp_path: Path) -> None:
    put(tmp_path / "pretrained" / "model.pt", old=True)
    put(tmp_path / "runs" / "train" / "weights" / "last.pt")
    put(tmp_path / "train.py")
    assert list(directories(tmp_path).scan([])) == ["runs/train/weights/last.pt"]


def test_what_is_stored_and_what_is_linked_is_left_out(tmp_path: Path) -> None:
    container, elsewhere = tmp_path / "container", tmp_path / "elsewhere"
    stored = put(container / "work" / "checkpoints" / "model.pt").parent
    put(elsewhere / "model.pt")
    (container / "linked").symlink_to(elsewhere)
    assert directories(container, stored).scan([]) == {}


@pytest.mark.parametrize("name", [".cache", "node_modules", "models--gpt2", "huggingface"])
def test_caches_are_left_out(tmp_path: Path, name: str) -> None:
    put(tmp_path / name / "model.safetensors")
    assert directories(tmp_path).scan([]) == {}


@pytest.mark.parametrize("mark", ["pyvenv.cfg", ".cache/huggingface/metadata"])
def test_environments_and_downloaded_models_are_left_out(tmp_path: Path, mark: str) -> None:
    put(tmp_path / "there" / mark)
    put(tmp_path / "there" / "model.safetensors")
    assert directories(tmp_path).scan([]) == {}


def test_directories_that_have_changed_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unstored_files, "_MOST_ENTRIES", 50)
    for number in range(20):
        for name in ("a.pt", "b.pt", "c.pt"):
            put(tmp_path / f"data-{number:02}" / name, old=True)
    put(tmp_path / "outputs" / "model.pt")
    assert list(directories(tmp_path).scan([])) == ["outputs/model.pt"]


def test_one_look_reads_a_limited_number_of_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unstored_files, "_MOST_ENTRIES", 10)
    for number in range(100):
        put(tmp_path / f"{number:03}.pt")
    assert len(directories(tmp_path).scan([])) == 10


def test_the_directory_to_which_a_process_has_gone_is_searched(tmp_path: Path) -> None:
    container, elsewhere = tmp_path / "container", tmp_path / "elsewhere"
    container.mkdir()
    put(elsewhere / "model.pt")
    with subprocess.Popen([sys.executable, "-c", "input()"], cwd=elsewhere, stdin=subprocess.PIPE) as process:
        found = directories(container)
        assert list(found.scan([process.pid])) == [f"{elsewhere}/model.pt"]
        assert directories(container, elsewhere).scan([process.pid]) == {}, "it is stored"
        process.communicate(b"\n")
    assert list(found.scan([])) == [f"{elsewhere}/model.pt"], "it stays"


def test_a_directory_above_that_of_the_container_is_not_searched(tmp_path: Path) -> None:
    container = tmp_path / "container"
    container.mkdir()
    put(tmp_path / "model.pt")
    with subprocess.Popen([sys.executable, "-c", "input()"], cwd=tmp_path, stdin=subprocess.PIPE) as process:
        assert directories(container).scan([process.pid]) == {}
        process.communicate(b"\n")
