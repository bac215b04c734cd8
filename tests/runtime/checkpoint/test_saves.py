"""Saves of known formats, as their libraries wrote them: complete, damaged, in several containers, and which loads."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import zipfile
from pathlib import Path

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.runtime.checkpoint.conftest import SAMPLES, Sample
from tests.runtime.checkpoint.test_rewritten import torch_like
from tony_provider.runtime.artifacts.tree import scan
from tony_provider.runtime.checkpoint.content import readers
from tony_provider.runtime.checkpoint.saves import Save, SaveFinder, Saves, unmet


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


def test_an_error_of_ours_hides_no_other_saves(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = sample("manifest")
    torch_like(directory / "step-9.pt", {}, at=2000)

    def fail(*_: object) -> Save:
        raise RuntimeError("a fault")

    monkeypatch.setattr("tony_provider.runtime.checkpoint.saves.manifests._save", fail)
    assert loadable(directory) == (9, "step-9.pt")
