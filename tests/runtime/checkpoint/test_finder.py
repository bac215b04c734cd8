"""Looking again and again while a program writes, and what is preferred."""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.checkpoint.conftest import LONG_AGO, SAMPLES, Sample, age
from tony_provider.runtime.checkpoint.content import readers
from tony_provider.runtime.checkpoint.formats import (
    Broken,
    CheckpointFinder,
    FoundCheckpoints,
    directory_view,
    find,
    set_aside,
)
from tony_provider.runtime.spec.model import CheckpointFormat

TORCH = SAMPLES / "torch"


def entries(found: FoundCheckpoints) -> list[tuple[int | None, str]]:
    return [(one.step, one.entry) for one in found.complete]


def put(source: Path, target: Path, when: float = LONG_AGO) -> None:
    """A file or directory that was written at that time."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        age(Path(shutil.copytree(source, target)), when)
    else:
        shutil.copyfile(source, target)
        os.utime(target, (when, when))


@pytest.mark.parametrize("wanted", CheckpointFormat)
def test_an_empty_directory_and_none(tmp_path: Path, wanted: CheckpointFormat) -> None:
    assert find(tmp_path, wanted) == FoundCheckpoints([], [])
    assert find(tmp_path / "none", wanted) == FoundCheckpoints([], [])


def test_a_file_in_place_of_the_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        find(tmp_path / "file")


def test_other_files_are_nothing(tmp_path: Path) -> None:
    for name in ("notes.txt", "events.out.tfevents.1", "checkpoint", "latest", "model.pb", "x.ckpt", "log-5/a"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("something")
    assert find(tmp_path, now=math.inf) == FoundCheckpoints([], [])


def test_names_that_are_no_text(tmp_path: Path) -> None:
    put(TORCH / "model-20.pth", tmp_path / "model-20.pth")
    shutil.copyfile(TORCH / "model-20.pth", os.fsencode(tmp_path) + b"/model-\xff-30.pth")
    assert entries(find(tmp_path)) == [(20, "model-20.pth")]


def test_links_are_not_followed(tmp_path: Path) -> None:
    put(TORCH / "model-20.pth", tmp_path / "here" / "model-20.pth")
    (tmp_path / "here" / "last.pth").symlink_to("model-20.pth")
    (tmp_path / "here" / "round").symlink_to(".")
    (tmp_path / "link").symlink_to("here")
    assert entries(find(tmp_path / "link")) == [(20, "model-20.pth")]


def test_what_has_not_changed_is_not_read_again(sample: Sample) -> None:
    directory = sample("torch")
    read: list[str] = []

    def counted(reader: str, path: Path) -> Any:
        read.append(path.name)
        return readers.read_here(reader, path)

    finder = CheckpointFinder(directory, reading=counted)
    first = finder.look()
    assert "checkpoint.pt" in read
    read.clear()
    assert finder.look() == first
    assert read == []
    os.utime(directory / "checkpoint.pt", (LONG_AGO + 1, LONG_AGO + 1))
    finder.look()
    assert read == ["checkpoint.pt"]


def test_a_broken_file_is_judged_anew_when_it_changes(tmp_path: Path) -> None:
    finder = CheckpointFinder(tmp_path)
    whole = (TORCH / "checkpoint.pt").read_bytes()
    (tmp_path / "checkpoint.pt").write_bytes(whole[:-1])
    assert finder.look() == FoundCheckpoints([], [])
    assert [one.paths for one in finder.look(math.inf).broken] == [("checkpoint.pt",)]
    (tmp_path / "checkpoint.pt").write_bytes(whole)
    assert entries(finder.look()) == [(7, "checkpoint.pt")]


def test_a_file_that_says_no_step_keeps_the_one_that_it_came_at(tmp_path: Path) -> None:
    finder = CheckpointFinder(tmp_path)
    put(TORCH / "model-20.pth", tmp_path / "best.pth")
    assert entries(finder.look(current_step=50)) == [(50, "best.pth")]
    assert entries(finder.look(current_step=60)) == [(50, "best.pth")]
    put(TORCH / "model-20.pth", tmp_path / "best.pth", LONG_AGO + 5)
    assert entries(finder.look(current_step=70)) == [(70, "best.pth")]


@pytest.mark.parametrize(
    ("sample", "name", "step"),
    [
        ("checkpoint.pt", "checkpoint.pt", 7),  # its content says so
        ("checkpoint.pt", "resnet50.pt", 7),
        ("checkpoint.pt", "model-3.pt", 7),
        ("checkpoint.pt", "step-3.pt", 3),
        ("last.ckpt", "last.ckpt", 8),
        ("legacy-50.pt", "old.pth", 50),
        ("model-20.pth", "model-20.pth.tar", 20),
        ("model-20.pth", "weights.pt", 99),
        ("nocrc.pt", "step-4.pt", 4),
    ],
)
def test_the_step_of_a_file_of_pytorch(tmp_path: Path, sample: str, name: str, step: int) -> None:
    put(TORCH / sample, tmp_path / name)
    assert entries(find(tmp_path, current_step=99)) == [(step, name)]


def test_backups_of_keras_are_preferred_to_all_else(tensorflow_samples: Path, tmp_path: Path) -> None:
    put(tensorflow_samples / "keras_backup", tmp_path / "backup")
    put(tensorflow_samples / "keras_archives", tmp_path / "archives")
    put(tensorflow_samples / "manager", tmp_path / "manager")
    assert entries(find(tmp_path)) == [(3, "backup")]
    # While it is written anew, nothing else steps in.
    (tmp_path / "backup" / "latest.weights.h5").write_bytes(b"")
    assert find(tmp_path) == FoundCheckpoints([], [])
    # At the end of its training Keras removes it.
    shutil.rmtree(tmp_path / "backup")
    assert entries(find(tmp_path))[-1] == (30, "manager/ckpt-30")


def test_weights_that_are_newer_than_what_says_their_epoch(sample: Sample) -> None:
    directory = sample("keras_backup")
    now = time.time()
    os.utime(directory / "latest.weights.h5", (now, now))
    assert find(directory, now=now) == FoundCheckpoints([], [])
    found = find(directory, now=now + 60)
    assert found.complete == []
    assert found.broken[0].paths == ("latest.weights.h5", "training_metadata.json")
    os.utime(directory / "training_metadata.json", (now, now))
    assert entries(find(directory, now=now)) == [(3, ".")]


def test_a_file_without_checksums_must_be_left_alone(tensorflow_samples: Path, tmp_path: Path) -> None:
    put(tensorflow_samples / "keras_weights", tmp_path / "a")
    finder = CheckpointFinder(tmp_path / "a", CheckpointFormat.KERAS)
    now = time.time()
    os.utime(tmp_path / "a" / "epoch-03.weights.h5", (now, now))
    assert [step for step, _ in entries(finder.look(now))] == [1, 2]
    assert [step for step, _ in entries(finder.look(now + directory_view.QUIET + 1))] == [1, 2, 3]


def test_of_one_step_the_last_written_is_the_newest(tmp_path: Path) -> None:
    put(TORCH / "model-20.pth", tmp_path / "a-20.pth", LONG_AGO + 2)
    put(TORCH / "model-20.pth", tmp_path / "b-20.pth", LONG_AGO + 3)
    put(TORCH / "model-20.pth", tmp_path / "c-20.pth", LONG_AGO + 1)
    assert [entry for _, entry in entries(find(tmp_path))] == ["c-20.pth", "a-20.pth", "b-20.pth"]


@pytest.mark.parametrize("name", ["ckpt-5_temp", "tmp-checkpoint-5", "step-5.tmp", "workertemp_1"])
def test_temporary_directories(sample: Sample, name: str) -> None:
    directory = sample("manager")
    inside = directory / name
    inside.mkdir()
    for path in directory.glob("ckpt-30*"):
        path.rename(inside / path.name)
    put(TORCH / "checkpoint.pt", inside / "optimizer.pt")
    assert entries(find(directory, now=math.inf)) == [(20, "ckpt-20")]


# ---- directories that are one checkpoint -------------------------------------------------------------------------


def test_a_directory_that_nothing_says_the_end_of(tmp_path: Path) -> None:
    source = SAMPLES / "accelerate" / "checkpoint_1"
    now = time.time()
    put(source, tmp_path / "checkpoint_1", now - 10)
    finder = CheckpointFinder(tmp_path)
    nothing = FoundCheckpoints([], [])  # its process may have died over it
    assert find(tmp_path, now=math.inf) == finder.look() == nothing
    age(tmp_path / "checkpoint_1", now - 40)
    assert entries(finder.look()) == [(1, "checkpoint_1")]

    put(source, tmp_path / "checkpoint_2", now - 10)  # it holds what the one before it holds
    assert entries(finder.look(now)) == [(1, "checkpoint_1"), (2, "checkpoint_2")]
    (tmp_path / "checkpoint_2" / "optimizer.bin").unlink()
    assert entries(finder.look(math.inf)) == [(1, "checkpoint_1")]
    put(source, tmp_path / "checkpoint_3", now)
    assert entries(finder.look(now)) == [(1, "checkpoint_1")]  # still being written, perhaps


def test_a_directory_that_is_being_removed_is_no_checkpoint_any_more(tmp_path: Path) -> None:
    put(SAMPLES / "accelerate", tmp_path / "a")
    put(SAMPLES / "orbax", tmp_path / "o")
    finder = CheckpointFinder(tmp_path)
    assert len(finder.look().complete) == 7
    (tmp_path / "a" / "checkpoint_2" / "random_states_0.pkl").unlink()
    (tmp_path / "o" / "30" / "default" / "_sharding").unlink()
    assert [entry for _, entry in entries(finder.look())] == [
        "a/checkpoint_1",
        "o/3",
        "o/checkpoint_00000006",
        "o/8",
        "o/20",
    ]


def test_what_deepspeed_and_megatron_write(tmp_path: Path) -> None:
    names = ("mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt")
    for step in (10, 20):
        for name in names:
            put(TORCH / "checkpoint.pt", tmp_path / "ds" / f"global_step{step}" / name, time.time() - 5)
        put(TORCH / "checkpoint.pt", tmp_path / "mega" / f"iter_{step:07d}" / "mp_rank_00" / "model_optim_rng.pt")
    (tmp_path / "ds" / "latest").write_text("global_step20")
    (tmp_path / "mega" / "latest_checkpointed_iteration.txt").write_text("20\n")
    found = find(tmp_path)
    complete = sorted(found.complete, key=lambda one: (one.step, one.entry))
    assert [(one.step, one.entry, one.generated) for one in complete] == [
        (10, "ds/global_step10", {"ds/latest": b"global_step10"}),
        (10, "mega/iter_0000010", {"mega/latest_checkpointed_iteration.txt": b"10"}),
        (20, "ds/global_step20", {"ds/latest": b"global_step20"}),
        (20, "mega/iter_0000020", {"mega/latest_checkpointed_iteration.txt": b"20"}),
    ]
    assert complete[2].files == ("ds/global_step20/" + names[0], "ds/global_step20/" + names[1], "ds/latest")


def test_the_directory_that_a_file_names_is_complete_at_once(tmp_path: Path) -> None:
    put(TORCH / "checkpoint.pt", tmp_path / "global_step10" / "mp_rank_00_model_states.pt", time.time())
    assert find(tmp_path) == FoundCheckpoints([], [])
    (tmp_path / "latest").write_text("global_step10")
    assert entries(find(tmp_path)) == [(10, "global_step10")]


def test_distributed_checkpoints_are_whole_with_their_metadata(tmp_path: Path) -> None:
    now = time.time()
    put(SAMPLES / "dcp" / "step-40", tmp_path / "step-40", now)
    assert entries(find(tmp_path)) == [(40, "step-40")]
    (tmp_path / "step-40" / ".metadata").rename(tmp_path / "step-40" / ".metadata.tmp")
    assert find(tmp_path) == FoundCheckpoints([], [])
    assert [one.reason for one in find(tmp_path, now=math.inf).broken] == [
        "step-40: its .metadata, which is written last, is missing"
    ]


def test_a_rank_has_its_own_shards_only(tmp_path: Path) -> None:
    put(SAMPLES / "dcp" / "step-40", tmp_path / "0" / "step-40")
    put(SAMPLES / "dcp" / "step-40", tmp_path / "1" / "step-40")
    (tmp_path / "0" / "step-40" / "__1_0.distcp").unlink()
    (tmp_path / "1" / "step-40" / "__0_0.distcp").unlink()
    (tmp_path / "1" / "step-40" / ".metadata").unlink()
    assert find(tmp_path / "0").complete == find(tmp_path / "1").complete == []
    assert find(tmp_path / "0", part=True).complete[0].files == ("step-40/.metadata", "step-40/__0_0.distcp")
    assert find(tmp_path / "1", part=True).complete[0].files == ("step-40/__1_0.distcp",)
    # What is there must be whole all the same.
    shard = tmp_path / "0" / "step-40" / "__0_0.distcp"
    shard.write_bytes(shard.read_bytes()[:-1])
    assert find(tmp_path / "0", part=True, now=math.inf).complete == []


def test_files_of_several_steps_in_one_directory(tmp_path: Path) -> None:
    """Whose name has a number, too."""
    for step in (4, 8):
        put(TORCH / "model-20.pth", tmp_path / "version_0" / "checkpoints" / f"epoch=0-step={step}.ckpt")
    assert [step for step, _ in entries(find(tmp_path))] == [4, 8]


def test_an_orbax_step_that_is_being_written(tmp_path: Path) -> None:
    source = SAMPLES / "orbax" / "30"
    put(source, tmp_path / "40.orbax-checkpoint-tmp-7", time.time())
    assert find(tmp_path, now=math.inf) == FoundCheckpoints([], [])
    (tmp_path / "40.orbax-checkpoint-tmp-7").rename(tmp_path / "40")
    assert entries(find(tmp_path)) == [(40, "40")]
    # Where there are no renames: the name is there from the beginning.
    metadata = tmp_path / "40" / "_CHECKPOINT_METADATA"
    metadata.write_text(json.dumps({**json.loads(metadata.read_text()), "commit_timestamp_nsecs": None}))
    assert find(tmp_path) == FoundCheckpoints([], [])
    assert [one.reason for one in find(tmp_path, now=math.inf).broken] == ["40: it was never committed"]


# ---- manifests ---------------------------------------------------------------------------------------------------


def write_manifest(directory: Path, **changes: object) -> Path:
    plain = {"step": 5, "entry": "a", "files": [{"path": "a", "size": 3}], **changes}
    (directory / "a").write_bytes(b"abc")
    (directory / "x.tony.json").write_text(json.dumps(plain))
    return age(directory)


def test_a_manifest_may_have_checksums(tmp_path: Path) -> None:
    write_manifest(tmp_path, files=[{"path": "a", "size": 3, "checksum": "crc32:352441c2"}])
    assert entries(find(tmp_path)) == [(5, "a")]
    write_manifest(tmp_path, files=[{"path": "a", "size": 3, "checksum": "crc32:352441c3"}])
    assert [one.reason for one in find(tmp_path).broken] == ["x.tony.json: a is not what its checksum says"]


@pytest.mark.parametrize(
    "changes",
    [
        {"step": -1},
        {"step": True},
        {"step": "5"},
        {"step": None},
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
        {"files": [{"path": "a", "size": 3, "checksum": 1}]},
    ],
)
def test_manifests_that_are_none(tmp_path: Path, changes: dict[str, object]) -> None:
    found = find(write_manifest(tmp_path, **changes))
    assert found.complete == []
    assert len(found.broken) == 1
    assert "x.tony.json" in found.broken[0].paths


def test_a_manifest_below_names_what_is_beside_it(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    write_manifest(tmp_path / "deep" / "er")
    assert find(tmp_path).complete[0].files == ("deep/er/a", "deep/er/x.tony.json")
    assert entries(find(tmp_path)) == [(5, "deep/er/a")]


def test_a_manifest_may_name_what_has_a_temporary_name(tmp_path: Path) -> None:
    write_manifest(tmp_path, entry="a.tmp", files=[{"path": "a.tmp", "size": 3}])
    (tmp_path / "a").rename(tmp_path / "a.tmp")
    assert entries(find(tmp_path)) == [(5, "a.tmp")]


# ---- setting aside -----------------------------------------------------------------------------------------------


def test_what_is_broken_is_set_aside(sample: Sample, tmp_path: Path) -> None:
    directory = sample("manager")
    data = directory / "ckpt-30.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:-1])
    found = find(directory, now=math.inf)
    set_aside(directory, [*found.broken, Broken(("gone", "a/b"), "")], tmp_path / "aside")
    assert sorted(path.name for path in (tmp_path / "aside").iterdir() if path.is_file()) == [
        data.name,
        "ckpt-30.index",
    ]
    again = find(directory, now=math.inf)
    assert (entries(again), again.broken) == ([(20, "ckpt-20")], [])
