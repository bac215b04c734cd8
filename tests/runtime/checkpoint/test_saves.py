"""Saves of known formats, as their libraries wrote them: complete, damaged, in several containers, and which loads."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import zipfile
from fnmatch import fnmatchcase
from pathlib import Path

import attrs
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.runtime.checkpoint.conftest import SAMPLES, Sample, age, torch_like
from tony_provider.runtime.am.snapshot_rounds import unmet
from tony_provider.runtime.artifacts.manifest import scan
from tony_provider.runtime.checkpoint.consistency import Verified
from tony_provider.runtime.checkpoint.content import readers
from tony_provider.runtime.checkpoint.save_finder import Save, SaveFinder, Saves


@attrs.frozen
class Case:
    """A sample, what loads of it, and its files that cannot lose their end unnoticed."""

    sample: str
    entry: str  # how the loadable one begins
    step: int | None
    verified: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()  # files that cannot be missing unnoticed


_DATA = ".data-00000-of-00001"
CASES = [
    Case("manager", "ckpt-30", 30, ("ckpt-30.index", f"ckpt-30{_DATA}"), (f"ckpt-20{_DATA}",)),
    Case(
        "sharded_bundle", "ckpt-7", 7, ("ckpt-7.index", "ckpt-7.data-00001-of-00002"), ("ckpt-7.data-00000-of-00002",)
    ),
    Case("saved_models", "saved-03", None, ("saved-03/variables/variables.index",), ("saved-03/saved_model.pb",)),
    Case("tf_keras_backup", "chief/ckpt-3", 3, ("chief/ckpt-3.index",), (f"chief/ckpt-3{_DATA}",)),
    Case("keras_backup", ".", 3, ("latest.weights.h5", "training_metadata.json"), ("latest.weights.h5",)),
    Case("keras_archives", "archive-03.keras", None, ("archive-03.keras",)),
    Case("keras_weights", "epoch-03.weights.h5", None, ("epoch-02.weights.h5",)),
    Case(
        "torch",
        "epoch=3-step=120.ckpt",
        120,
        ("nocrc.pt", "checkpoint.pt", "last.ckpt", "model-20.pth", "legacy-50.pt"),
    ),
    Case(
        "dcp",
        "step-40",
        40,
        ("step-40/.metadata", "step-40/__0_0.distcp"),
        ("step-40/.metadata", "step-40/__1_0.distcp"),
    ),
    Case("accelerate", "checkpoint_2", None, ("checkpoint_2/model.safetensors", "checkpoint_2/optimizer.bin")),
    Case(
        "sharded",
        "checkpoint-77",
        None,
        ("checkpoint-77/model.safetensors.index.json",),
        ("checkpoint-77/model.safetensors.index.json", "checkpoint-77/model-00001-of-00002.safetensors"),
    ),
    Case(
        "orbax",
        "30",
        30,
        ("30/default/manifest.ocdbt", "3/state/manifest.ocdbt", "8/_METADATA", "8/w/.zarray"),
        ("8/w/0.0",),
    ),
    Case("manifest", "model", 5, ("model/a", "step-5.tony.json"), ("model/b",)),
]


@pytest.fixture(params=CASES, ids=[case.sample for case in CASES])
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


def find(directory: Path, world_size: int = 1) -> Saves:
    return SaveFinder(directory, world_size=world_size).find(scan(directory))


def entries(found: Saves, kind: str) -> list[tuple[int | None, str]]:
    """Step and entry of all complete saves of a format that are not part of another save."""
    complete = [save for save in found.saves if save.format == kind and not save.problem]
    roots = [save.entry for save in complete if save.entry == "." or save.entry in found.view.directories]
    inner = tuple("" if root == "." else f"{root}/" for root in roots)
    return sorted(
        ((save.step, save.entry) for save in complete if save.entry in roots or not save.entry.startswith(inner)),
        key=lambda each: (each[0] or 0, each[1]),
    )


def copy(source: Path, target: Path, *, at: float) -> Path:
    """Copy a file or directory. ``at``: the time of its files, in seconds since the epoch."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        return age(Path(shutil.copytree(source, target)), at)
    shutil.copyfile(source, target)
    os.utime(target, (at, at))
    return target


def loadable(directory: Path, *, alone: bool = True) -> tuple[int | None, str] | None:
    found = find(directory).loadable(alone=alone)
    return None if found is None else (found.step, found.entry)


def in_order(directory: Path) -> None:
    """Give the files times in the order of their names' numbers, as their libraries wrote them."""
    for number, path in enumerate(sorted(directory.rglob("*"), key=lambda path: (len(str(path)), str(path)))):
        os.utime(path, (1e9 + number, 1e9 + number))


# ---- complete and damaged ------------------------------------------------------------------------------------------


def test_a_complete_save_has_no_problem(case: Case, sample: Sample) -> None:
    directory = sample(case.sample)
    if case.sample != "keras_backup" and case.sample != "dcp":
        in_order(directory)
    found = find(directory)
    verified = found.verified(alone=True)
    assert verified.broken == {}
    best = found.loadable(alone=True)
    assert best is not None
    if case.sample not in ("torch", "orbax"):  # of which no order of times is known
        assert best.entry.startswith(case.entry)
        assert best.step == case.step
    for save in found.saves:
        assert set(save.files) <= set(found.view.files)


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("manager", "tensorflow", [(20, "ckpt-20"), (30, "ckpt-30")]),
        ("sharded_bundle", "tensorflow", [(7, "ckpt-7")]),
        ("tf_keras_weights", "tensorflow", [(1, "weights.01-*"), (2, "weights.02-*"), (3, "weights.03-*")]),
        ("saved_models", "tensorflow", [(None, f"saved-0{number}") for number in (1, 2, 3)]),
        ("tf_keras_backup", "keras", [(3, "chief/ckpt-3")]),
        ("keras_backup", "keras", [(3, ".")]),
        ("keras_archives", "keras", [(None, f"archive-0{number}.keras") for number in (1, 2, 3)]),
        ("tf_keras_archives", "keras", [(None, f"archive-0{number}.keras") for number in (1, 2, 3)]),
        ("keras_weights", "keras", [(None, f"epoch-0{number}.weights.h5") for number in (1, 2, 3)]),
        (
            "torch",
            "pytorch",
            [
                (None, "model-20.pth"),
                (None, "nocrc.pt"),
                (7, "checkpoint.pt"),
                (8, "last.ckpt"),
                (50, "legacy-50.pt"),
                (120, "epoch=3-step=120.ckpt"),
            ],
        ),
        ("dcp", "pytorch", [(40, "step-40")]),
        ("accelerate", "pytorch", [(None, "checkpoint_1"), (None, "checkpoint_2")]),
        ("sharded", "pytorch", [(None, "checkpoint-77")]),
        ("orbax", "orbax", [(3, "3"), (6, "checkpoint_00000006"), (8, "8"), (20, "20"), (30, "30")]),
        ("manifest", "manifest", [(5, "model")]),
    ],
)
def test_all_saves_in_a_directory_are_found(
    name: str, kind: str, expected: list[tuple[int | None, str]], sample: Sample
) -> None:
    directory = sample(name)
    found = entries(find(directory), kind)
    assert [step for step, _ in found] == [step for step, _ in expected]
    for (_, entry), (_, pattern) in zip(found, expected, strict=True):
        assert fnmatchcase(entry, pattern)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_file_that_is_cut_short_is_broken(
    case: Case, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory, sample: Sample
) -> None:
    if not case.verified:
        return
    directory = tmp_path_factory.getbasetemp() / f"short-{case.sample}"
    if not directory.exists():
        sample(case.sample).rename(directory)
    name = data.draw(st.sampled_from(case.verified))
    content = (directory / name).read_bytes()
    most = len(content.rstrip()) - 1
    times = (directory / name).stat()
    try:
        (directory / name).write_bytes(content[: data.draw(st.integers(0, min(8, most)) | st.integers(0, most))])
        os.utime(directory / name, ns=(times.st_atime_ns, times.st_mtime_ns))
        verified = find(directory).verified(alone=True)
        assert name in verified.broken, verified.broken
        assert name not in verified.whole
    finally:
        (directory / name).write_bytes(content)
        os.utime(directory / name, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_a_missing_file_is_a_problem_of_a_task_that_is_alone(case: Case, sample: Sample) -> None:
    directory = sample(case.sample)
    for name in case.needed:
        (directory / name).rename(directory.parent / "away")
        alone = find(directory).verified(alone=True)
        assert alone.broken, name
        (directory.parent / "away").rename(directory / name)
    assert find(directory).verified(alone=True).broken == {}


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_the_files_hold_nothing_is_raised(
    case: Case, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory, sample: Sample
) -> None:
    directory = tmp_path_factory.getbasetemp() / f"any-{case.sample}"
    if not directory.exists():
        sample(case.sample).rename(directory)
    file = data.draw(st.sampled_from(sorted(path for path in directory.rglob("*") if path.is_file())))
    content = file.read_bytes()
    place = data.draw(st.integers(0, len(content)))
    try:
        file.write_bytes(
            content[:place] + data.draw(st.binary(max_size=40)) + content[place + data.draw(st.integers(0, 40)) :]
        )
        found = find(directory)
        found.verified(alone=True)
        found.loadable(alone=False)
    finally:
        file.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("keras_archives", "archive-03.keras"),
        ("tf_keras_archives", "archive-03.keras"),
        ("torch", "checkpoint.pt"),
        ("torch", "model-20.pth"),
        ("accelerate", "checkpoint_2/optimizer.bin"),
    ],
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_bit_of_an_archive_can_flip_unnoticed(
    name: str, file: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory, sample: Sample
) -> None:
    directory = tmp_path_factory.getbasetemp() / f"flipped-{name}"
    if not directory.exists():
        sample(name).rename(directory)
    content = (directory / file).read_bytes()
    with zipfile.ZipFile(directory / file) as archive:
        member = data.draw(st.sampled_from([each for each in archive.infolist() if each.file_size]))
        place = content.index(archive.read(member)) + data.draw(st.integers(0, member.file_size - 1))
    _check_flip(directory, file, content, place, data.draw(st.integers(0, 7)))


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_bit_of_an_index_can_flip_unnoticed(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory, sample: Sample
) -> None:
    directory = tmp_path_factory.getbasetemp() / "flipped-index"
    if not directory.exists():
        sample("manager").rename(directory)
    content = (directory / "ckpt-30.index").read_bytes()
    place = data.draw(st.integers(0, len(content) - 48 - 1))  # padding follows
    _check_flip(directory, "ckpt-30.index", content, place, data.draw(st.integers(0, 7)))
    assert loadable(directory) is not None


def _check_flip(directory: Path, file: str, content: bytes, place: int, bit: int) -> None:
    """Assert that the file is broken with this bit changed, and write its content back."""
    assert file not in find(directory).verified(alone=True).broken
    try:
        (directory / file).write_bytes(content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :])
        found = find(directory)
        verified, best = found.verified(alone=True), found.loadable(alone=True)
        assert file in verified.broken
        assert file not in verified.whole
        assert best is None or file not in best.files
    finally:
        (directory / file).write_bytes(content)


# ---- other formats -------------------------------------------------------------------------------------------------


def test_files_of_unknown_formats_are_neither_whole_nor_broken(tmp_path: Path) -> None:
    contents = {
        "scaler.joblib": pickle.dumps({"a": 1}) + b"more behind it",
        "model.pt": b'{"a format": "of its own"}',
        "state.json": b"{}",
        "weights.ckpt": b"\x80\x04 no pickle",
        "latest": b"step-3",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    found = find(tmp_path)
    assert found.saves == []
    assert found.loadable(alone=True) is None


def test_an_empty_and_a_missing_directory_have_no_saves(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "none"):
        found = find(directory)
        assert found.saves == []
        assert found.verified(alone=True) == Verified(frozenset(), {}, {})
        assert found.loadable(alone=True) is None


def test_files_of_other_purposes_are_no_saves(tmp_path: Path) -> None:
    for name in ("notes.txt", "events.out.tfevents.1", "checkpoint", "latest", "model.pb", "x.ckpt", "log-5/a"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("something")
    (tmp_path / "README").write_bytes(b"PK\x03\x04 is how a zip archive begins")
    assert find(tmp_path).saves == []


def test_names_that_are_not_text_hide_no_other_save(tmp_path: Path) -> None:
    torch_like(tmp_path / "model.pth", {"step": 20}, at=1000)
    shutil.copyfile(tmp_path / "model.pth", os.fsencode(tmp_path) + b"/model-\xff-30.pth")
    assert len(list(tmp_path.iterdir())) == 2
    assert entries(find(tmp_path), "pytorch") == [(20, "model.pth")]


def test_links_are_no_saves(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    torch_like(tmp_path / "runs" / "model.pth", {"step": 20}, at=1000)
    (tmp_path / "runs" / "last.pth").symlink_to("model.pth")
    (tmp_path / "runs" / "round").symlink_to(".")
    (tmp_path / "all").symlink_to("runs")
    assert entries(find(tmp_path), "pytorch") == [(20, "runs/model.pth")]


def test_a_zip_of_another_library_is_verified_and_not_loadable(tmp_path: Path) -> None:
    for name in ("ppo_1000_steps.zip", "agent.pt"):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("data", "x" * 100)
    assert set(find(tmp_path).verified(alone=True).whole) == {"ppo_1000_steps.zip", "agent.pt"}
    assert find(tmp_path).loadable(alone=True) is None
    whole = (tmp_path / "ppo_1000_steps.zip").read_bytes()
    (tmp_path / "ppo_1000_steps.zip").write_bytes(whole[:-5])
    assert set(find(tmp_path).verified(alone=True).broken) == {"ppo_1000_steps.zip"}


@pytest.mark.parametrize("name", ["model_260101_235950.pt", "model-0.98.pt", "model_20.pth"])
def test_a_number_in_a_name_is_not_a_step(tmp_path: Path, name: str) -> None:
    torch_like(tmp_path / name, {"model": {}}, at=1000)
    assert loadable(tmp_path) == (None, name)
    torch_like(tmp_path / name, {"model": {}, "step": 7}, at=1000)
    assert loadable(tmp_path) == (7, name)


@pytest.mark.parametrize(
    ("source", "name", "step"),
    [
        ("checkpoint.pt", "checkpoint.pt", 7),  # from its content
        ("checkpoint.pt", "resnet50.pt", 7),
        ("checkpoint.pt", "model-3.pt", 7),
        ("checkpoint.pt", "step-3.pt", 3),
        ("last.ckpt", "last.ckpt", 8),
        ("legacy-50.pt", "old.pth", 50),
        ("model-20.pth", "model-20.pth.tar", None),
        ("nocrc.pt", "step-4.pt", 4),
        ("nocrc.pt", "any.pt", None),
    ],
)
def test_the_step_of_a_torch_file_is_its_labelled_number_or_in_its_content(
    tmp_path: Path, source: str, name: str, step: int | None
) -> None:
    copy(SAMPLES / "torch" / source, tmp_path / name, at=1000)
    assert loadable(tmp_path) == (step, name)


@pytest.mark.parametrize(
    ("key", "step"),
    [("EPOCHS_RUN", 6), ("iter_num", 250), ("Epoch", 2), ("global_step", 0), ("epochs", None), ("steps", None)],
)
def test_keys_of_a_torch_file_that_have_its_step(tmp_path: Path, key: str, step: int | None) -> None:
    torch_like(tmp_path / "snapshot.pt", {"MODEL_STATE": {}, key: 100 if step is None else step}, at=1000)
    assert loadable(tmp_path) == (step, "snapshot.pt")


def test_a_torch_file_may_have_any_name(tmp_path: Path) -> None:
    torch_like(tmp_path / "snapshot", {"epoch": 3}, at=1000)
    torch_like(tmp_path / "state.bin", {"epoch": 4}, at=1001)
    assert entries(find(tmp_path), "pytorch") == [(3, "snapshot"), (4, "state.bin")]
    assert set(find(tmp_path).verified(alone=True).whole) == {"snapshot", "state.bin"}


def test_a_legacy_torch_file_is_verified_to_its_end(tmp_path: Path) -> None:
    legacy = copy(SAMPLES / "torch" / "legacy-50.pt", tmp_path / "legacy.pt", at=1000)
    assert set(find(tmp_path).verified(alone=True).whole) == {"legacy.pt"}
    whole = legacy.read_bytes()
    for length in (0, 5, 13, len(whole) // 2, len(whole) - 1):
        legacy.write_bytes(whole[:length])
        assert set(find(tmp_path).verified(alone=True).broken) == {"legacy.pt"}, length


@pytest.mark.parametrize("suffix", ["", ".txt"])
def test_a_cut_archive_without_a_suffix_of_pytorch_is_of_an_unknown_format(tmp_path: Path, suffix: str) -> None:
    whole = torch_like(tmp_path / f"snapshot{suffix}", {"epoch": 3}, at=1000)
    whole.write_bytes(whole.read_bytes()[:-5])
    assert find(tmp_path).saves == []


# ---- NumPy ---------------------------------------------------------------------------------------------------------


def save_arrays(path: Path, **arrays: object) -> None:
    np.savez(path, **arrays)  # type: ignore[arg-type]


def test_the_step_of_an_archive_of_numpy(tmp_path: Path) -> None:
    save_arrays(tmp_path / "state.npz", weights=np.arange(1000.0))
    assert loadable(tmp_path) == (None, "state.npz")
    assert set(find(tmp_path).verified(alone=True).whole) == {"state.npz"}
    save_arrays(tmp_path / "state.npz", weights=np.arange(1000.0), epoch=np.int64(7))
    assert loadable(tmp_path) == (7, "state.npz")
    save_arrays(tmp_path / "state.npz", step=np.uint8(200))
    assert loadable(tmp_path) == (200, "state.npz")
    (tmp_path / "state.npz").rename(tmp_path / "step-30.npz")
    assert loadable(tmp_path) == (30, "step-30.npz")


@pytest.mark.parametrize("number", [np.float64(3), np.int32(-1), np.arange(3), np.str_("7"), np.bool_(True)])
def test_arrays_that_are_no_step(tmp_path: Path, number: object) -> None:
    save_arrays(tmp_path / "state.npz", step=number)
    assert loadable(tmp_path) == (None, "state.npz")


def test_an_archive_of_numpy_that_is_cut_short_is_broken(tmp_path: Path) -> None:
    save_arrays(tmp_path / "state.npz", weights=np.arange(1000.0))
    (tmp_path / "state.npz").write_bytes((tmp_path / "state.npz").read_bytes()[:-10])
    assert set(find(tmp_path).verified(alone=True).broken) == {"state.npz"}
    assert loadable(tmp_path) is None


@pytest.mark.parametrize("dtype", ["<f4", ">i8", "<U5", "S3", "?", "c16"])
def test_an_array_has_the_length_that_its_header_says(tmp_path: Path, dtype: str) -> None:
    np.save(tmp_path / "weights.npy", np.zeros((3, 4), dtype))
    data = (tmp_path / "weights.npy").read_bytes()
    assert set(find(tmp_path).verified(alone=True).whole) == {"weights.npy"}
    assert loadable(tmp_path) == (None, "weights.npy")
    for length in (0, 3, 20, len(data) - 1):
        (tmp_path / "weights.npy").write_bytes(data[:length])
        assert set(find(tmp_path).verified(alone=True).broken) == {"weights.npy"}
        assert loadable(tmp_path) is None


def test_an_array_whose_header_has_no_length_is_neither_whole_nor_broken(tmp_path: Path) -> None:
    np.save(tmp_path / "weights.npy", np.zeros(3, [("a", "<i4"), ("b", "<f8")]))
    assert find(tmp_path).verified(alone=True) == Verified(frozenset(), {}, {})
    assert loadable(tmp_path) == (None, "weights.npy")


@pytest.mark.parametrize("header", [b"{'descr'", b"__import__('os')", b"[]", b"{'descr': '<f4', 'shape': 3}", b"\xff"])
def test_an_array_with_an_impossible_header_is_broken(tmp_path: Path, header: bytes) -> None:
    (tmp_path / "weights.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    assert set(find(tmp_path).verified(alone=True).broken) == {"weights.npy"}


# ---- what a framework loads ----------------------------------------------------------------------------------------


def trainer(directory: Path, step: int, *, at: int) -> None:
    """A directory of transformers' Trainer."""
    directory.mkdir(parents=True)
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        torch_like(directory / name, {}, at=at)
    shutil.copyfile(SAMPLES / "accelerate" / "checkpoint_1" / "model.safetensors", directory / "model.safetensors")
    (directory / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    for path in directory.iterdir():
        os.utime(path, (at, at))


def test_the_newest_directory_of_a_trainer_is_loaded_whatever_lies_beside_it(tmp_path: Path) -> None:
    trainer(tmp_path / "checkpoint-6", 6, at=1000)
    trainer(tmp_path / "checkpoint-12", 12, at=1001)
    torch_like(tmp_path / "training_args.bin", {}, at=2000)  # of save_model()
    assert loadable(tmp_path) == (12, "checkpoint-12")
    (tmp_path / "checkpoint-12" / "trainer_state.json").unlink()
    assert loadable(tmp_path) == (6, "checkpoint-6")
    assert "trainer_state.json is missing" in find(tmp_path).verified(alone=True).broken["checkpoint-12/rng_state.pth"]


def test_the_last_written_is_loaded_whatever_its_name(tmp_path: Path) -> None:
    for number, name in enumerate(("step-20.pt", "c.pt", "a-30.pt", "step-10.pt", "b.pt")):
        torch_like(tmp_path / name, {"step": 50 - number}, at=1000 + number)
        found = loadable(tmp_path)
        assert found is not None
        assert found[1] == name
    torch_like(tmp_path / "step-20.pt", {}, at=2000)
    assert loadable(tmp_path) == (20, "step-20.pt")


def test_files_of_several_steps_in_a_directory_with_a_number_in_its_name(tmp_path: Path) -> None:
    inside = tmp_path / "version_0" / "checkpoints"
    inside.mkdir(parents=True)
    for step in (4, 8):
        torch_like(inside / f"epoch=0-step={step}.ckpt", {}, at=1000 + step)
    assert entries(find(tmp_path), "pytorch") == [
        (step, f"version_0/checkpoints/epoch=0-step={step}.ckpt") for step in (4, 8)
    ]
    assert loadable(tmp_path) == (8, "version_0/checkpoints/epoch=0-step=8.ckpt")


def test_a_directory_of_deepspeed_is_one_save(tmp_path: Path) -> None:
    names = ("mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt")
    for step in (10, 20):
        for name in names:
            copy(SAMPLES / "torch" / "checkpoint.pt", tmp_path / f"ds/global_step{step}" / name, at=1000 + step)
    (tmp_path / "ds" / "latest").write_text("global_step20")
    assert entries(find(tmp_path), "pytorch") == [(10, "ds/global_step10"), (20, "ds/global_step20")]
    best = find(tmp_path).loadable(alone=True)
    assert best is not None
    assert (best.step, best.files) == (20, tuple(f"ds/global_step20/{name}" for name in names))


def test_a_directory_of_deepspeed_without_the_states_of_a_rank_is_not_complete(tmp_path: Path) -> None:
    names = [f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt" for rank in range(2)]
    for name in ("mp_rank_00_model_states.pt", *names):
        copy(SAMPLES / "torch" / "checkpoint.pt", tmp_path / "global_step5" / name, at=1000)
    assert find(tmp_path, 2).verified(alone=True).broken == {}
    (tmp_path / "global_step5" / names[1]).unlink()
    broken = find(tmp_path, 2).verified(alone=True).broken
    assert set(broken.values()) == {f"global_step5/{names[1]} is missing"}


def test_files_of_megatron_have_the_step_of_their_content(tmp_path: Path) -> None:
    for step in (10, 20):
        (tmp_path / f"iter_{step:07d}" / "mp_rank_00").mkdir(parents=True)
        file = tmp_path / f"iter_{step:07d}" / "mp_rank_00" / "model_optim_rng.pt"
        torch_like(file, {"iteration": step}, at=1000 + step)
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("20\n")
    assert loadable(tmp_path) == (20, "iter_0000020/mp_rank_00/model_optim_rng.pt")


def test_a_backup_of_keras_is_preferred_to_all_but_a_manifest(tensorflow_samples: Path, tmp_path: Path) -> None:
    for number, name in enumerate(("keras_backup", "keras_archives", "manager")):
        copy(tensorflow_samples / name, tmp_path / name, at=1000 + number)
    assert loadable(tmp_path) == (3, "keras_backup")
    shutil.rmtree(tmp_path / "keras_backup")  # as Keras does at the end of its training
    found = loadable(tmp_path)
    assert found is not None
    assert found[1].startswith("manager/ckpt-")


def test_weights_of_a_keras_backup_that_are_newer_than_its_epoch_are_half_a_save(sample: Sample) -> None:
    directory = sample("keras_backup")
    assert loadable(directory) == (3, ".")
    weights, epoch = directory / "latest.weights.h5", directory / "training_metadata.json"
    os.utime(weights, (2000, 2000))
    os.utime(epoch, (1000, 1000))
    reason = "latest.weights.h5 is newer than training_metadata.json, which is written last"
    assert find(directory).verified(alone=True).broken == {weights.name: reason, epoch.name: reason}
    os.utime(epoch, (2000, 2000))
    assert find(directory).verified(alone=True).broken == {}
    assert loadable(directory) == (3, ".")


def test_files_of_hdf5_are_loadable_and_never_proven_complete(sample: Sample) -> None:
    directory = sample("keras_weights")
    in_order(directory)
    assert find(directory).verified(alone=True) == Verified(frozenset(), {}, {})
    assert loadable(directory) == (None, "epoch-03.weights.h5")


def test_an_orbax_step_that_is_being_written_is_not_complete(tmp_path: Path) -> None:
    copy(SAMPLES / "orbax" / "20", tmp_path / "20", at=1000)
    temporary = copy(SAMPLES / "orbax" / "30", tmp_path / "40.orbax-checkpoint-tmp-7", at=2000)
    broken = find(tmp_path).verified(alone=True).broken
    files = [path.relative_to(tmp_path).as_posix() for path in temporary.rglob("*") if path.is_file()]
    assert broken == dict.fromkeys(files, "Orbax has not given the directory its final name")
    assert loadable(tmp_path) == (20, "20")
    temporary.rename(tmp_path / "40")
    assert find(tmp_path).verified(alone=True).broken == {}
    assert loadable(tmp_path) == (40, "40")
    # Without renames, as in object stores, the directory has its name from the beginning.
    metadata = tmp_path / "40" / "_CHECKPOINT_METADATA"
    metadata.write_text(json.dumps({**json.loads(metadata.read_text()), "commit_timestamp_nsecs": None}))
    assert set(find(tmp_path).verified(alone=True).broken.values()) == {"Orbax has not committed it"}
    assert loadable(tmp_path) == (20, "20")


def test_a_file_that_is_called_the_best_is_loaded_only_if_there_is_no_other(tmp_path: Path) -> None:
    torch_like(tmp_path / "best.ckpt", {}, at=2000)
    assert loadable(tmp_path) == (None, "best.ckpt")
    torch_like(tmp_path / "last.ckpt", {}, at=1000)
    assert loadable(tmp_path) == (None, "last.ckpt")


def test_a_manifest_is_preferred_to_all_others(tmp_path: Path) -> None:
    torch_like(tmp_path / "step-9.pt", {}, at=2000)
    (tmp_path / "mine").write_bytes(b"abc")
    plain = {"step": 5, "entry": "mine", "files": [{"path": "mine", "size": 3}]}
    (tmp_path / "x.tony.json").write_text(json.dumps(plain))
    assert loadable(tmp_path) == (5, "mine")
    assert find(tmp_path).verified(alone=True).declared == {"x.tony.json": ("mine",)}
    (tmp_path / "mine").write_bytes(b"ab")
    assert find(tmp_path).verified(alone=True).declared == {}
    for checksum, is_right in (("crc32:352441c2", True), ("crc32:352441c3", False), ("md5", False)):
        (tmp_path / "mine").write_bytes(b"abc")
        plain["files"] = [{"path": "mine", "size": 3, "checksum": checksum}]
        (tmp_path / "x.tony.json").write_text(json.dumps(plain))
        assert bool(find(tmp_path).verified(alone=True).declared) is is_right


def test_saves_may_share_a_file_such_as_a_pointer_to_the_newest(tmp_path: Path) -> None:
    """A program that keeps its two newest saves, and lists the pointer in each manifest."""
    for step in (1, 2, 3):
        for name in (f"save-{step}", "newest"):
            (tmp_path / name).write_text(f"save-{step}")
            os.utime(tmp_path / name, (1000 * step, 1000 * step))
        files = [{"path": name, "size": 6} for name in (f"save-{step}", "newest")]
        manifest = tmp_path / f"step-{step}.tony.json"
        manifest.write_text(json.dumps({"step": step, "entry": f"save-{step}", "files": files}))
        os.utime(manifest, (1000 * step + 1, 1000 * step + 1))
    (tmp_path / "save-1").unlink()
    assert loadable(tmp_path) == (3, "save-3")
    verified = find(tmp_path).verified(alone=True)
    assert verified.declared == {"step-3.tony.json": ("save-3", "newest")}
    assert set(verified.outdated) == set()
    os.utime(tmp_path / "newest", (9000, 9000))
    assert set(find(tmp_path).verified(alone=True).outdated) == {"newest"}


def write_manifest(directory: Path, **changes: object) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "a").write_bytes(b"abc")
    plain = {"step": 5, "entry": "a", "files": [{"path": "a", "size": 3}], **changes}
    (directory / "x.tony.json").write_text(json.dumps(plain))


@pytest.mark.parametrize(
    "changes",
    [
        {"step": -1},
        {"step": True},
        {"step": "5"},
        {"step": None},
        {"step": 10**400},
        {"entry": "../a"},
        {"entry": "/a"},
        {"entry": 1},
        {"files": []},
        {"files": {}},
        {"files": [{"path": "a"}]},
        {"files": [{"path": "../a", "size": 3}]},
        {"files": [{"path": "a", "size": "3"}]},
        {"files": [{"path": "a", "size": 4}]},
        {"files": [{"path": "b", "size": 3}]},
        {"files": [{"path": "a", "size": 3, "checksum": "abc"}]},
        {"files": [{"path": "a", "size": 3, "checksum": "crc64:00"}]},
        {"files": [{"path": "a", "size": 3, "checksum": 1}]},
    ],
)
def test_an_impossible_manifest_is_broken(tmp_path: Path, changes: dict[str, object]) -> None:
    write_manifest(tmp_path)
    assert loadable(tmp_path) == (5, "a")
    write_manifest(tmp_path, **changes)
    verified = find(tmp_path).verified(alone=True)
    assert "x.tony.json" in verified.broken
    assert verified.declared == {}
    assert loadable(tmp_path) is None


def test_the_paths_in_a_manifest_are_relative_to_its_directory(tmp_path: Path) -> None:
    write_manifest(tmp_path / "deep" / "er")
    assert loadable(tmp_path) == (5, "deep/er/a")
    assert find(tmp_path).verified(alone=True).declared == {"deep/er/x.tony.json": ("deep/er/a",)}


def test_a_manifest_may_name_a_file_with_a_temporary_name(tmp_path: Path) -> None:
    write_manifest(tmp_path, entry="a.tmp", files=[{"path": "a.tmp", "size": 3}])
    (tmp_path / "a").rename(tmp_path / "a.tmp")
    assert loadable(tmp_path) == (5, "a.tmp")


# ---- saves of several ranks ----------------------------------------------------------------------------------------


def needs(saves: Saves) -> dict[str, int]:
    return {path: size for save in saves.saves for path, size in save.needs.items()}


def sizes(*directories: Path) -> dict[str, int]:
    return {
        path.relative_to(directory).as_posix(): path.stat().st_size
        for directory in directories
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_a_distributed_checkpoint_is_complete_with_all_shards(sample: Sample, tmp_path: Path) -> None:
    ranks = [sample("dcp"), tmp_path / "other"]
    (ranks[1] / "step-40").mkdir(parents=True)
    (ranks[0] / "step-40" / "__1_0.distcp").rename(ranks[1] / "step-40" / "__1_0.distcp")
    for directory in ranks:
        found = find(directory, 2)
        assert found.verified(alone=False).broken == {}
        assert found.verified(alone=True).broken
        assert unmet(needs(found), sizes(*ranks)) is None
    assert unmet(needs(find(ranks[0], 2)), sizes(ranks[0])) == "step-40/__1_0.distcp"
    assert unmet(needs(find(ranks[1], 2)), sizes(ranks[1])) == "step-40/.metadata"
    shard = ranks[1] / "step-40" / "__1_0.distcp"
    shard.write_bytes(shard.read_bytes()[:-1])
    assert unmet(needs(find(ranks[0], 2)), sizes(*ranks)) == "step-40/__1_0.distcp"


def test_a_shard_that_is_newer_than_the_metadata_belongs_to_another_save(sample: Sample) -> None:
    directory = sample("dcp")
    os.utime(directory / "step-40" / "__1_0.distcp")
    assert "is newer than step-40/.metadata" in find(directory).verified(alone=True).broken["step-40/__0_0.distcp"]
    assert loadable(directory) is None


@pytest.mark.parametrize(
    ("directory", "names"),
    [
        ("checkpoint-12", ["rng_state_{}.pth"]),
        ("checkpoint_3", ["random_states_{}.pkl"]),
        (
            "global_step8",
            ["zero_pp_rank_{}_mp_rank_00_optim_states.pt", "bf16_zero_pp_rank_{}_mp_rank_00_optim_states.pt"],
        ),
    ],
)
def test_a_file_of_one_rank_needs_those_of_all_others(tmp_path: Path, directory: str, names: list[str]) -> None:
    for name in names:
        (tmp_path / directory).mkdir(exist_ok=True)
        torch_like(tmp_path / directory / name.format(1), {}, at=1000)
    found = needs(find(tmp_path, 4))
    expected = {f"{directory}/{name.format(rank)}" for name in names for rank in range(4)}
    assert set(found) - {"checkpoint-12/trainer_state.json"} == expected
    assert needs(find(tmp_path, 1)) == {path: 1 for path in found if "trainer_state" in path}


# ---- reading -------------------------------------------------------------------------------------------------------


def test_unchanged_files_are_not_read_again(sample: Sample) -> None:
    directory = sample("torch")
    read: list[str] = []

    def counted(reader: str, path: Path) -> object:
        read.append(path.name)
        return readers.read_here(reader, path)

    finder = SaveFinder(directory, reading=counted)
    first = finder.find(scan(directory)).saves
    assert "checkpoint.pt" in read
    read.clear()
    os.link(directory / "checkpoint.pt", directory.parent / "held")  # as an upload does
    assert finder.find(scan(directory)).saves == first
    assert read == []
    os.utime(directory / "checkpoint.pt")
    finder.find(scan(directory))
    assert read == ["checkpoint.pt"]


def test_a_broken_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    finder = SaveFinder(tmp_path)
    whole = (SAMPLES / "torch" / "checkpoint.pt").read_bytes()
    (tmp_path / "checkpoint.pt").write_bytes(whole[:-1])
    assert set(finder.find(scan(tmp_path)).verified(alone=True).broken) == {"checkpoint.pt"}
    (tmp_path / "checkpoint.pt").write_bytes(whole)
    found = finder.find(scan(tmp_path))
    assert set(found.verified(alone=True).whole) == {"checkpoint.pt"}
    assert entries(found, "pytorch") == [(7, "checkpoint.pt")]


def test_a_file_that_vanishes_after_the_scan_hides_no_other_save(sample: Sample) -> None:
    directory = sample("torch")
    tree = scan(directory)
    (directory / "checkpoint.pt").unlink()
    found = [entry for _, entry in entries(SaveFinder(directory).find(tree), "pytorch")]
    assert len(found) == 5
    assert "checkpoint.pt" not in found


def test_an_error_of_ours_hides_no_other_saves(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = sample("manifest")
    torch_like(directory / "step-9.pt", {}, at=2000)

    def fail(*_: object) -> Save:
        raise RuntimeError("a fault")

    monkeypatch.setattr("tony_provider.runtime.checkpoint.save_formats._manifest_save", fail)
    assert loadable(directory) == (9, "step-9.pt")


# ---- what is not loaded ----------------------------------------------------------------------------------------------


def test_a_part_of_an_incomplete_directory_is_not_loaded(tmp_path: Path) -> None:
    copy(SAMPLES / "dcp" / "step-40", tmp_path / "step-40", at=1000)
    (tmp_path / "step-40" / ".metadata").unlink()
    assert loadable(tmp_path) is None


@pytest.mark.parametrize("name", ["losses.npy", "metrics.npz"])
def test_arrays_beside_a_torch_file_are_not_loaded(tmp_path: Path, name: str) -> None:
    np.save(tmp_path / "losses.npy", np.zeros(3))
    np.savez(tmp_path / "metrics.npz", losses=np.zeros(3))
    for other in {"losses.npy", "metrics.npz"} - {name}:
        (tmp_path / other).unlink()
    torch_like(tmp_path / "snapshot.pt", {}, at=1000)
    assert loadable(tmp_path) == (None, "snapshot.pt")


@pytest.mark.parametrize("name", ["ckpt-5_temp/model.pt", "tmp-checkpoint-5/model.pt", "step-5.tmp/a.pt", "b.pt.tmp"])
def test_a_file_with_a_temporary_name_is_not_loaded(tmp_path: Path, name: str) -> None:
    torch_like(tmp_path / "last.pt", {}, at=1000)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    torch_like(tmp_path / name, {}, at=2000)
    assert loadable(tmp_path) == (None, "last.pt")
