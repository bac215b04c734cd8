"""Programs that write the same file again and again: each save is a checkpoint, whatever its name."""

from __future__ import annotations

import io
import math
import os
import pickle
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tony_provider.runtime.checkpoint.formats import CheckpointFinder, find
from tony_provider.runtime.checkpoint.formats.step_names import is_best


def torch_like(path: Path, state: object, *, at: float) -> Path:
    """What ``torch.save`` of this state writes, as far as it is looked at."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(state, protocol=2))
        archive.writestr("archive/version", "3")
    os.utime(path, (at, at))
    return path


def entries(directory: Path) -> list[tuple[int | None, str]]:
    return [(one.step, one.entry) for one in find(directory, now=math.inf).complete]


def test_without_a_step_the_last_written_is_the_newest(tmp_path: Path) -> None:
    finder = CheckpointFinder(tmp_path)
    torch_like(tmp_path / "snapshot.pt", {"model": {}}, at=1000)
    [first] = finder.look(math.inf).complete
    torch_like(tmp_path / "snapshot.pt", {"model": {}}, at=1001)
    [second] = finder.look(math.inf).complete
    assert (first.step, second.step) == (None, None)
    assert first.stamps != second.stamps
    assert second.saved_ms == 1_001_000


@pytest.mark.parametrize(("key", "step"), [("EPOCHS_RUN", 6), ("iter_num", 250), ("Epoch", 2), ("global_step", 0)])
def test_what_the_file_says_of_its_step(tmp_path: Path, key: str, step: int) -> None:
    torch_like(tmp_path / "snapshot.pt", {"MODEL_STATE": {}, key: step}, at=1000)
    assert entries(tmp_path) == [(step, "snapshot.pt")]


def test_a_file_of_any_name(tmp_path: Path) -> None:
    torch_like(tmp_path / "snapshot", {"epoch": 3}, at=1000)
    torch_like(tmp_path / "state.bin", {"epoch": 4}, at=1001)
    (tmp_path / "notes.bin").write_bytes(b"PK\x03\x04 is how a zip archive begins")
    (tmp_path / "README").write_text("about these files")
    found = find(tmp_path, now=math.inf)
    assert [(one.step, one.entry) for one in found.complete] == [(3, "snapshot"), (4, "state.bin")]
    assert found.broken == [], "what is none is nobody's business"


def test_of_known_and_unknown_steps_the_last_written_is_the_newest(tmp_path: Path) -> None:
    torch_like(tmp_path / "model-10.pt", {}, at=1000)
    torch_like(tmp_path / "snapshot.pt", {}, at=1005)
    assert entries(tmp_path) == [(10, "model-10.pt"), (None, "snapshot.pt")]
    torch_like(tmp_path / "model-20.pt", {}, at=1010)
    assert entries(tmp_path) == [(None, "snapshot.pt"), (10, "model-10.pt"), (20, "model-20.pt")]


def test_files_that_are_written_again_and_again_belong_together(tmp_path: Path) -> None:
    """As the ImageNet example of PyTorch does: a restart looks for checkpoint.pth.tar."""
    torch_like(tmp_path / "checkpoint.pth.tar", {"epoch": 3}, at=1000)
    torch_like(tmp_path / "model_best.pth.tar", {"epoch": 3}, at=1001)
    newest = find(tmp_path, now=math.inf).complete[-1]
    assert newest.entry == "checkpoint.pth.tar"
    assert newest.files == ("checkpoint.pth.tar", "model_best.pth.tar")
    assert set(newest.stamps) == set(newest.files)
    torch_like(tmp_path / "epoch-4.pt", {}, at=1002)
    newest = find(tmp_path, now=math.inf).complete[-1]
    assert newest.files == ("epoch-4.pt",), "a numbered one stands for itself"


@pytest.mark.parametrize(
    ("name", "best"), [("model_best.pth.tar", True), ("best", True), ("Best-3.keras", True), ("bestow.pt", False)]
)
def test_what_is_kept_for_being_the_best(name: str, *, best: bool) -> None:
    assert is_best(name) is best


# ---- NumPy ---------------------------------------------------------------------------------------------------------


def save(path: Path, at: float, **arrays: object) -> None:
    np.savez(path, **arrays)  # type: ignore[arg-type]
    os.utime(path, (at, at))


def test_archives_of_numpy(tmp_path: Path) -> None:
    save(tmp_path / "state.npz", 1000, weights=np.arange(1000.0))
    assert entries(tmp_path) == [(None, "state.npz")]
    save(tmp_path / "state.npz", 1000, weights=np.arange(1000.0), epoch=np.int64(7))
    assert entries(tmp_path) == [(7, "state.npz")]
    save(tmp_path / "step-30.npz", 1000, weights=np.arange(10.0), epoch=7)
    assert entries(tmp_path)[-1] == (30, "step-30.npz")


@pytest.mark.parametrize("number", [np.float64(3), np.int32(-1), np.arange(3), np.str_("7")])
def test_what_is_no_step_in_an_archive(tmp_path: Path, number: object) -> None:
    save(tmp_path / "state.npz", 1000, step=number)
    assert entries(tmp_path) == [(None, "state.npz")]


def test_an_archive_that_is_cut_short(tmp_path: Path) -> None:
    save(tmp_path / "state.npz", 1000, weights=np.arange(1000.0))
    data = (tmp_path / "state.npz").read_bytes()
    (tmp_path / "state.npz").write_bytes(data[:-10])
    assert entries(tmp_path) == []


@pytest.mark.parametrize("dtype", ["<f4", ">i8", "<U5", "S3", "?", "c16"])
def test_arrays_of_numpy_are_as_long_as_they_say(tmp_path: Path, dtype: str) -> None:
    np.save(tmp_path / "weights.npy", np.zeros((3, 4), dtype))
    data = (tmp_path / "weights.npy").read_bytes()
    assert entries(tmp_path) == [(None, "weights.npy")]
    for length in (0, 3, 20, len(data) - 1):
        (tmp_path / "weights.npy").write_bytes(data[:length])
        assert entries(tmp_path) == []


def test_an_array_that_does_not_say_how_long_it_is_counts_when_it_is_left_alone(tmp_path: Path) -> None:
    np.save(tmp_path / "weights.npy", np.zeros(3, [("a", "<i4"), ("b", "<f8")]))
    written = (tmp_path / "weights.npy").stat().st_mtime
    assert find(tmp_path, now=written + 1).complete == []
    assert [one.entry for one in find(tmp_path, now=written + 60).complete] == ["weights.npy"]


def test_arrays_beside_checkpoints_of_another_kind_do_not_count(tmp_path: Path) -> None:
    """Such as the losses so far."""
    torch_like(tmp_path / "snapshot.pt", {}, at=1000)
    np.save(tmp_path / "losses.npy", np.zeros(3))
    assert entries(tmp_path) == [(None, "snapshot.pt")]


@pytest.mark.parametrize("header", [b"{'descr'", b"__import__('os')", b"[]", b"{'descr': '<f4', 'shape': 3}", b"\xff"])
def test_a_header_that_makes_no_sense(tmp_path: Path, header: bytes) -> None:
    buffer = io.BytesIO(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    (tmp_path / "weights.npy").write_bytes(buffer.getvalue())
    assert entries(tmp_path) == []


# ---- several files ---------------------------------------------------------------------------------------------------


def test_while_one_of_the_files_is_written_there_is_none(tmp_path: Path) -> None:
    """Model and optimizer belong together: one without the other is half a checkpoint."""
    now = time.time()
    torch_like(tmp_path / "model.pt", {}, at=now)
    whole = torch_like(tmp_path / "optimizer.pt", {}, at=now).read_bytes()
    (tmp_path / "optimizer.pt").write_bytes(whole[: len(whole) // 2])
    assert find(tmp_path, now=now).complete == []
    (tmp_path / "optimizer.pt").write_bytes(whole)
    assert find(tmp_path, now=now).complete[-1].files == ("model.pt", "optimizer.pt")


def test_arrays_do_not_stand_in_for_a_checkpoint_that_is_being_written(tmp_path: Path) -> None:
    np.save(tmp_path / "data.npy", np.zeros(3))
    whole = torch_like(tmp_path / "snapshot.pt", {"epoch": 5}, at=1000).read_bytes()
    (tmp_path / "snapshot.pt").write_bytes(whole[:-10])
    assert find(tmp_path).complete == []


def test_what_is_reported_and_what_files_say_are_not_compared(tmp_path: Path) -> None:
    """Steps are reported, and files are called after epochs: the last written is the newest."""
    finder = CheckpointFinder(tmp_path)
    torch_like(tmp_path / "ckpt_epoch_3.pt", {}, at=1000)
    torch_like(tmp_path / "best.pt", {}, at=1001)
    newest = finder.look(math.inf, current_step=1200).complete[-1]
    assert (newest.step, newest.reported, newest.entry) == (1200, True, "best.pt")
    torch_like(tmp_path / "ckpt_epoch_4.pt", {}, at=1002)
    newest = finder.look(math.inf, current_step=1600).complete[-1]
    assert (newest.step, newest.reported, newest.entry) == (4, False, "ckpt_epoch_4.pt")


def test_a_part_of_several_ranks_takes_no_step_from_what_was_reported(tmp_path: Path) -> None:
    torch_like(tmp_path / "shard.pt", {}, at=1000)
    assert [one.step for one in find(tmp_path, now=math.inf, part=True, current_step=7).complete] == [None]


@pytest.mark.parametrize("key", ["epochs", "steps", "iterations"])
def test_how_many_there_are_to_be_is_no_step(tmp_path: Path, key: str) -> None:
    torch_like(tmp_path / "snapshot.pt", {key: 100}, at=1000)
    assert entries(tmp_path) == [(None, "snapshot.pt")]


def test_unsigned_steps(tmp_path: Path) -> None:
    save(tmp_path / "state.npz", 1000, step=np.uint8(200))
    assert entries(tmp_path) == [(200, "state.npz")]
