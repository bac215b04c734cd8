"""Programs that save in their working directory are told from programs that download or prepare something there."""

from __future__ import annotations

import attrs
import pytest

from tony_provider.runtime.artifacts.manifest import FileVersion
from tony_provider.runtime.checkpoint.save_finder import StraySaves, may_be_save, save_remedy

SECOND = 10**9


@attrs.define
class Directory:
    """The files of a working directory, which a test writes; each look is five seconds after the one before."""

    now: float = 1000.0
    files: dict[str, FileVersion] = attrs.field(factory=dict)
    strays: StraySaves = attrs.field(factory=StraySaves)
    _inodes: int = 0

    def write(self, path: str, size: int = 1000, *, in_place: bool = False) -> None:
        assert may_be_save(path)
        self._inodes += 1
        inode = self.files[path].inode if in_place and path in self.files else self._inodes
        when = int(self.now * SECOND)
        self.files[path] = FileVersion(1, inode, size, when, when)

    def look(self, seconds: float = 5, *, ended: bool = False) -> str | None:
        self.now += seconds
        found = self.strays.observe(self.files, int(self.now * SECOND), ended=ended)
        return found.path if found else None


@pytest.mark.parametrize(
    "path",
    [
        "checkpoint-500/model.safetensors",
        "checkpoint-500/model-00001-of-00003.safetensors",
        "checkpoint-500/trainer_state.json",
        "lightning_logs/version_0/checkpoints/epoch=1-step=32.ckpt",
        "outputs/step_1000/model.bin",
        "global_step12/mp_rank_00_model_states.pt",
        "ckpt-20.index",
        "rl_model_20000_steps.zip",
    ],
)
def test_a_name_of_a_numbered_save_is_enough(path: str) -> None:
    directory = Directory()
    directory.write(path)
    assert directory.look(1) is None, "it may still be written"
    assert directory.look() == path


@pytest.mark.parametrize("path", ["model.pt", "runs/detect/train/weights/last.pt", "out/ckpt.pt", "best.keras"])
@pytest.mark.parametrize("in_place", [True, False])
def test_a_file_that_is_written_twice_is_a_save(path: str, *, in_place: bool) -> None:
    directory = Directory()
    directory.write(path)
    assert [directory.look(), directory.look()] == [None, None]
    directory.write(path, in_place=in_place)
    assert directory.look() == path


def test_a_program_that_saves_all_the_time_is_found() -> None:
    directory = Directory()
    directory.write("model.pt")
    for _ in range(3):
        found = directory.look(1)
        directory.write("model.pt", in_place=True)
    assert found == "model.pt"


def test_a_series_of_numbered_files_is_found() -> None:
    directory = Directory()
    directory.write("weights_1.pth")
    assert directory.look(60) is None
    directory.write("weights_2.pth")
    assert directory.look() == "weights_1.pth"


def test_a_file_that_is_written_once_is_no_save() -> None:
    """It may be a pretrained model. At the end of a job, its log says that the working directory is gone."""
    directory = Directory()
    for name in ("yolo11n.pt", "yolo26n.pt", "model.pt", "resnet18-f37072fd.pth", "resnet50-0676ba61.pth"):
        directory.write(name)
        assert directory.look(20) is None
    assert directory.look(ended=True) is None


def test_a_download_that_pauses_is_no_save() -> None:
    directory = Directory()
    for size in range(1, 9):
        directory.write("sam_vit_h.pth", size * 1000, in_place=True)
        assert directory.look(20) is None
    assert directory.look(ended=True) is None


def test_the_pieces_of_a_pretrained_model_are_no_saves() -> None:
    directory = Directory()
    for piece in range(1, 5):
        directory.write(f"llama/model-{piece:05}-of-00004.safetensors")
        assert directory.look(60) is None


def test_a_data_set_that_the_program_prepares_is_no_save() -> None:
    directory = Directory()
    for number in range(60):
        directory.write(f"processed/data_{number}.pt")
        assert directory.look(1) is None
    assert directory.look(60) is None


def test_features_that_are_appended_for_hours_are_no_saves() -> None:
    directory = Directory()
    for size in range(1, 9):
        directory.write("features.h5", size, in_place=True)
        assert directory.look(600) is None


@pytest.mark.parametrize(
    "path", ["train.py", "data/train.npz", "config.json", "events.out.tfevents.1", "model.pt.tmp", "archive.zip"]
)
def test_other_files_are_not_followed(path: str) -> None:
    assert not may_be_save(path)


@pytest.mark.parametrize(
    ("path", "argument"),
    [
        ("checkpoint-500/model.safetensors", "output_dir="),
        ("lightning_logs/version_0/checkpoints/epoch=1-step=32.ckpt", "default_root_dir="),
        ("models/epoch=1-step=32.ckpt", "dirpath="),
        ("runs/detect/train/weights/last.pt", "project="),
        ("checkpoints/checkpoint_0/random_states_0.pkl", "project_dir="),
        ("global_step12/zero_pp_rank_0_mp_rank_00_optim_states.pt", "save_checkpoint("),
        ("rl_model_20000_steps.zip", "save_path="),
        ("checkpoints/checkpoint_last.pt", "--save-dir"),
        ("model.pt", "the directory TONY_CHECKPOINT_DIR"),
    ],
)
def test_the_remedy_names_the_argument_of_the_library(path: str, argument: str) -> None:
    assert argument in save_remedy(path)
    assert "TONY_CHECKPOINT_DIR" in save_remedy(path)
