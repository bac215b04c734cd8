"""The checkpoint directory of one container: which of its states can be stored, and what a start finds in it."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import h5py  # type: ignore[import-untyped]
import pytest

from tests.files import files_below
from tests.ordinary_user import ordinary_user
from tests.runtime.artifacts.trees import snapshot as everything
from tests.runtime.artifacts.trees import times
from tests.runtime.checkpoint.conftest import SAMPLES, torch_like
from tests.runtime.executor.checkpoint_container import CheckpointContainer, Clock, commit, controlled_clock
from tony_provider.runtime.artifacts.upload import TreeChanged
from tony_provider.runtime.checkpoint.consistency import QUIET
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.executor.checkpoint_directory import DirectoryState, Resumed
from tony_provider.runtime.jobspec.model import CheckpointSpec, Memory
from tony_provider.runtime.protocol import limits


@pytest.fixture
def clock() -> Iterator[Clock]:
    with controlled_clock() as clock:
        yield clock


@pytest.fixture
def container(tmp_path: Path, clock: Clock) -> CheckpointContainer:
    made = CheckpointContainer.make(tmp_path / "container", f"file://{tmp_path}/chain", clock)
    made.directory.empty()
    made.begin()
    return made


def names(state: DirectoryState) -> list[str]:
    return [entry.name for entry in state.entries]


def news(state: DirectoryState) -> list[str]:
    return [entry.name for entry in state.entries if entry.news]


def restore(container: CheckpointContainer, point: ResumePoint, rank: int | None = 0) -> Resumed:
    return container.directory.restore(point, rank, threading.Event())


def keep(container: CheckpointContainer) -> Resumed | None:
    return container.directory.keep(container.rank, threading.Event())


def manifest(container: CheckpointContainer, step: int, *paths: str) -> None:
    files = [{"path": path, "size": (container.path / path).stat().st_size} for path in paths]
    plain = {"step": step, "entry": paths[0].partition("/")[0], "files": files}
    (container.path / f"step-{step}.tony.json").write_text(json.dumps(plain))


def save(container: CheckpointContainer, step: int) -> None:
    """A save of a directory, with a manifest."""
    (container.path / f"weights-{step}").mkdir()
    (container.path / f"weights-{step}" / "a").write_text(f"weights of step {step}")
    manifest(container, step, f"weights-{step}/a")


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def steps(state: DirectoryState) -> dict[str, int]:
    return {entry.name: entry.step for entry in state.entries if entry.HasField("step")}


# ---- states --------------------------------------------------------------------------------------------------------


def test_a_state_is_ready_after_a_quiet_time(container: CheckpointContainer) -> None:
    assert container.look() == DirectoryState(1, True)
    (container.path / "state.bin").write_text("one")
    state = container.look(QUIET - 0.1)
    assert (state.ready, state.blocker) == (False, "state.bin was changed less than 3 s ago")
    state = container.look(0.1)
    assert (state.ready, names(state), news(state)) == (True, ["state.bin"], ["state.bin"])
    assert container.look(10) == state, "the version stays as long as the content"
    (container.path / "state.bin").write_text("another")
    assert not container.look().ready
    assert container.look(6).version > state.version


def test_a_manifest_makes_a_state_ready_at_once(container: CheckpointContainer) -> None:
    save(container, 10)
    state = container.look()
    assert (state.ready, names(state)) == (True, ["step-10.tony.json", "weights-10"])
    assert steps(state) == {"step-10.tony.json": 10, "weights-10": 10}


def test_each_file_of_a_save_has_its_step(container: CheckpointContainer) -> None:
    """Tasks that overwrite several files for each save are compared by the step of each file."""
    for step in (10, 20):
        for name in ("model.pkl", "optimizer.json"):
            (container.path / name).write_text(f"step {step}")
        manifest(container, step, "model.pkl", "optimizer.json")
        (container.path / "notes.txt").write_text(f"at step {step}")
        state = container.look(QUIET)
    assert steps(state) == {"step-20.tony.json": 20, "model.pkl": 20, "optimizer.json": 20}


@pytest.mark.parametrize("seconds", [1.0, 20.0])
@pytest.mark.parametrize("steps", [(10, 10), (10, 20)])
def test_a_file_that_was_overwritten_after_its_manifest_is_no_save(
    container: CheckpointContainer, clock: Clock, steps: tuple[int, int], seconds: float
) -> None:
    """A program overwrites its model, and is killed before it writes the manifest. The sizes are the same."""
    for step in steps:
        for name in ("model.pkl", "optimizer.json"):
            clock.now += 1
            (container.path / name).write_text(f"step {step}")
            clock.date(container.path / name)
        manifest(container, step, "model.pkl", "optimizer.json")
        clock.date(container.path / f"step-{step}.tony.json")
        state = container.look()
        assert (state.ready, state.blocker) == (True, "")
        container.store(state)
    before = container.content()
    clock.now += 1
    (container.path / "model.pkl").write_text("step 30")
    clock.date(container.path / "model.pkl")
    assert not container.look().ready
    clock.now += seconds
    container.directory.ended()
    assert not container.directory.inspect(ended=True).ready
    resumed = keep(container)
    assert resumed is not None
    assert container.content() == before


def test_a_file_that_is_open_for_writing_blocks(container: CheckpointContainer, clock: Clock) -> None:
    (container.path / "state.bin").write_text("half")
    clock.writing[container.path] = {"state.bin"}
    assert container.look(60).blocker == "state.bin is open for writing"
    clock.writing.clear()
    assert container.look().ready


def test_after_a_commit_only_changes_are_news(container: CheckpointContainer) -> None:
    (container.path / "first").write_text("1")
    (container.path / "second").write_text("2")
    stored = container.store()
    assert container.directory.base == stored.point
    state = container.look(10)
    assert (sorted(names(state)), news(state), state.blocker) == (["first", "second"], [], "")
    (container.path / "second").write_text("3")
    state = container.look(36)  # the first one may belong to the same save
    assert (names(state), news(state)) == (["second", "first"], ["second"])
    assert {entry.name: entry.first for entry in state.entries} == {"second": False, "first": True}


def test_news_come_first_and_the_newest_of_them_at_the_beginning(container: CheckpointContainer, clock: Clock) -> None:
    (container.path / "z-stored").write_text("0")
    container.store()
    for name in ("step-2", "step-10", "step-1"):
        clock.now += 1
        (container.path / name).write_text(name)
        clock.date(container.path / name)
    assert names(container.look(10)) == ["step-1", "step-10", "step-2", "z-stored"]


def test_a_start_writes_each_entry_for_the_first_time(container: CheckpointContainer) -> None:
    for number in range(2):
        (container.path / "last.bin").write_text(f"save {number}")
        container.store()
    stored = container.store(_with(container, "save 2"))
    restore(container, stored.point)
    container.begin()
    [entry] = _with(container, "save 3").entries
    assert (entry.name, entry.news, entry.first) == ("last.bin", True, True)
    [entry] = _with(container, "save 4").entries
    assert not entry.first


def _with(container: CheckpointContainer, text: str) -> DirectoryState:
    (container.path / "last.bin").write_text(text)
    return container.look(6)


def test_a_save_is_the_same_when_the_file_comes_that_it_needs(container: CheckpointContainer) -> None:
    """Ranks of torch.distributed.checkpoint that are slow: .metadata comes seconds after this rank's shard."""
    container.begin(alone=False, world_size=2)
    (container.path / "last").mkdir()
    firsts = []
    for name in ("__0_0.distcp", ".metadata", "__0_0.distcp"):
        shutil.copyfile(SAMPLES / "dcp" / "step-40" / name, container.path / "last" / name)
        container.clock.date(container.path / "last" / name)
        firsts.append([entry.first for entry in container.look(200).entries])
    assert firsts == [[True], [True], [False]]


def test_a_save_with_an_old_time_is_news(container: CheckpointContainer) -> None:
    file = torch_like(container.path / "snapshot.pt", {}, at=5000)
    container.store()
    torch_like(file, {}, at=1000)
    assert news(container.look(6)) == ["snapshot.pt"]


def test_names_of_ranks_are_one_group(container: CheckpointContainer) -> None:
    for name in ("step-10-rank0.bin", "step-00_rank_00.bin", "worker-0", "rank0", "rank10", "step-0"):
        (container.path / name).write_text("x")
    groups = {entry.name: entry.group for entry in container.look(6).entries}
    assert groups == {
        "step-10-rank0.bin": "step-10-rank*.bin",
        "step-00_rank_00.bin": "step-00_rank_*.bin",
        "worker-0": "worker-*",
        "rank0": "rank*",
        "rank10": "rank10",
        "step-0": "step-0",
    }


def test_more_files_than_a_message_can_list_are_a_blocker(
    container: CheckpointContainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: 200,000 files were copied to the storage, removed there, and copied again."""
    monkeypatch.setattr(limits, "LARGEST_MESSAGE", 100_000)
    for number in range(1000):
        (container.path / f"{number:03}").write_text("x")
    state = container.look(6)
    assert (state.ready, state.lasts) == (False, True)
    assert state.blocker.startswith("the directory has 1000 files and directories")
    assert "fewer and larger files" in state.blocker


def test_a_directory_that_is_larger_than_the_job_allows_is_not_stored(tmp_path: Path, clock: Clock) -> None:
    spec = CheckpointSpec(max_size=Memory(1), exclude=["*.cache"])
    container = CheckpointContainer.make(tmp_path / "container", f"file://{tmp_path}/chain", clock, spec=spec)
    container.begin()
    for name in ("a", "b", "c"):
        (container.path / f"step-{name}").mkdir()
        (container.path / f"step-{name}" / "model").write_bytes(bytes(500_000))
    (container.path / "small").write_bytes(bytes(10))
    (container.path / "z.cache").write_bytes(bytes(2_000_000))
    state = container.look(6)
    assert (state.ready, state.lasts) == (False, True)
    assert state.blocker == (
        "the directory has 1.4 MiB, more than checkpoint.max_size (1 MiB). The largest entries are "
        "step-a (488 KiB), step-b (488 KiB), step-c (488 KiB) and 1 more. Have the program delete old saves, leave "
        "files out with checkpoint.exclude, or raise checkpoint.max_size"
    )
    shutil.rmtree(container.path / "step-a")
    assert container.look(6).ready, "excluded files do not count"


# ---- the end of the process ----------------------------------------------------------------------------------------


def test_after_a_success_the_whole_directory_is_stored(container: CheckpointContainer) -> None:
    save(container, 10)
    (container.path / "notes").write_text("half")
    state = container.directory.inspect(ended=True, succeeded=True)
    assert (state.ready, news(state)) == (True, ["notes", "step-10.tony.json", "weights-10"])


def test_after_a_failure_what_was_just_written_and_proves_nothing_is_left_out(container: CheckpointContainer) -> None:
    save(container, 10)
    container.store(container.look())
    save(container, 20)
    (container.path / "notes").write_text("half")
    state = container.directory.inspect(ended=True)
    assert (state.ready, news(state)) == (True, ["step-20.tony.json", "weights-20"])
    tree = container.store(state).manifest.trees[0].tree
    assert [entry.path for entry in tree.entries if entry.path.endswith("a")] == ["weights-10/a", "weights-20/a"]


def test_a_save_that_was_cut_short_does_not_become_complete_with_time(container: CheckpointContainer) -> None:
    """The upload of another save may take minutes after the end of the process."""
    (container.path / "step-10.bin").write_text("whole")
    container.look(6)
    (container.path / "step-20.bin").write_text("half")
    assert news(container.directory.inspect(ended=True)) == ["step-10.bin"]
    container.clock.now += 60
    assert news(container.directory.inspect(ended=True)) == ["step-10.bin"]


def test_a_file_of_a_save_that_was_not_finished_is_left_out(container: CheckpointContainer) -> None:
    """The second file of the save took more than the quiet time."""
    (container.path / "G_10.bin").write_text("whole")
    for size in range(6):
        (container.path / "D_10.bin").write_text("half" * size)
        container.look(1.5)
    assert news(container.directory.inspect(ended=True)) == []


def test_after_a_failure_in_the_middle_of_a_save_in_place_nothing_is_stored(container: CheckpointContainer) -> None:
    file = torch_like(container.path / "snapshot.pt", {"epoch": 60}, at=1000)
    container.store()
    cut_short(file)
    state = container.directory.inspect(ended=True)
    assert (state.ready, state.entries, state.blocker) == (False, (), "")


def test_a_file_that_is_left_out_is_not_what_a_framework_loads(container: CheckpointContainer) -> None:
    """The format of HDF5 does not prove that a file is complete."""
    torch_like(container.path / "model-10.pt", {"step": 10}, at=1000)
    with h5py.File(container.path / "model-20.h5", "w") as file:
        file.create_dataset("weights", data=range(100))
    stored = container.store(container.directory.inspect(ended=True))
    assert [entry.path for entry in stored.manifest.trees[0].tree.entries] == ["model-10.pt"]
    assert (stored.manifest.entry, stored.step) == ("model-10.pt", 10)


# ---- uploads -------------------------------------------------------------------------------------------------------


def test_only_the_present_state_can_be_uploaded(container: CheckpointContainer) -> None:
    state = _with(container, "one")
    newer = _with(container, "another")
    with pytest.raises(TreeChanged):
        container.upload(state)
    assert container.upload(newer).uploaded.sent == len("another")
    (container.path / "last.bin").write_text("a change after the look")
    with pytest.raises(TreeChanged, match=r"last\.bin"):
        container.upload(newer)
    assert files_below(container.root / "tony-work" / "snapshots") == []


def test_unchanged_files_are_sent_once(container: CheckpointContainer) -> None:
    save(container, 10)
    container.store(container.look())
    save(container, 20)
    assert container.upload(container.look()).uploaded.sent == sum(
        (container.path / name).stat().st_size for name in ("step-20.tony.json", "weights-20/a")
    )
    container.directory.commit_rejected()
    assert container.upload(container.look()).uploaded.sent == sum(map(len, container.content().values()))


def test_entries_that_the_master_leaves_out_are_not_uploaded_again(container: CheckpointContainer) -> None:
    save(container, 10)
    save(container, 20)
    stored = container.store(container.look(), "step-10.tony.json", "weights-10")
    assert [entry.path for entry in stored.manifest.trees[0].tree.entries] == [
        "step-20.tony.json",
        "weights-20",
        "weights-20/a",
    ]
    assert news(container.look()) == []


def test_the_step_is_that_of_the_files_and_otherwise_the_reported(container: CheckpointContainer) -> None:
    torch_like(container.path / "snapshot.pt", {}, at=1000)
    snapshot = container.upload(container.look(6), reported=30)
    assert (snapshot.step, snapshot.reported) == (30, True)
    torch_like(container.path / "snapshot.pt", {"step": 7}, at=1001)
    snapshot = container.upload(container.look(6), reported=30)
    assert (snapshot.step, snapshot.reported) == (7, False)


# ---- a restore -----------------------------------------------------------------------------------------------------


def test_a_restored_directory_equals_the_stored_one(
    container: CheckpointContainer, tmp_path: Path, clock: Clock
) -> None:
    (container.path / "step-10" / "empty").mkdir(parents=True)
    (container.path / "step-10" / "large.bin").write_bytes(b"l" * 1_000_000)
    (container.path / "step-10" / "read-only").write_text("x")
    (container.path / "step-10" / "read-only").chmod(0o440)
    (container.path / "step-10" / "nothing").touch()
    for path in (container.path / "step-10").iterdir():
        os.utime(path, ns=(0, 10**18 + 7))
    (container.path / "latest").symlink_to("step-10/large.bin")
    (container.path / "absolute").symlink_to(container.path / "step-10")
    stored = container.store()
    another = CheckpointContainer.make(tmp_path / "another", container.chain, clock)
    (another.path / "left").write_text("of a former training")
    restore(another, stored.point)
    expected = {**everything(container.path), "absolute": ("link", "step-10")}
    assert everything(another.path) == expected
    assert times(another.path) == times(container.path)
    assert files_below(another.set_aside) == ["left"]
    another.begin()
    assert news(another.look(10)) == [], "a restored checkpoint is not stored again"


def test_no_resume_path_without_a_format_that_a_framework_loads(container: CheckpointContainer) -> None:
    (container.path / "state.json").write_text("{}")
    resumed = restore(container, container.store().point)
    assert (resumed.path, resumed.point.step) == ("", None)
    torch_like(container.path / "model.pt", {"step": 7}, at=1000)
    resumed = restore(container, container.store().point)
    assert (resumed.path, resumed.point.step) == (str(container.path / "model.pt"), 7)


def test_entries_of_other_ranks_are_restored_and_not_uploaded_again(tmp_path: Path, clock: Clock) -> None:
    chain = f"file://{tmp_path}/chain"
    ranks = [CheckpointContainer.make(tmp_path / f"rank-{rank}", chain, clock, rank) for rank in range(2)]
    for each in ranks:
        each.begin(alone=False, world_size=2)
        (each.path / "step-10").mkdir()
        (each.path / "step-10" / f"shard-{each.rank}").write_text(f"of rank {each.rank}")
        (each.path / "common").write_text(f"of rank {each.rank}")
    states = {each.rank: each.look(6) for each in ranks}
    states[0] = ranks[0].look()
    stored = commit(chain, 1, {each.rank: each.upload(states[each.rank]) for each in ranks})
    for each in ranks:
        restore(each, stored.point, each.rank)
        each.begin(alone=False, world_size=2)
        assert each.content() == {
            "step-10/shard-0": b"of rank 0",
            "step-10/shard-1": b"of rank 1",
            "common": f"of rank {each.rank}".encode(),
        }
        assert news(each.look(10)) == []
    (ranks[1].path / "step-20").mkdir()
    (ranks[1].path / "step-20" / "shard-1").write_text("newer")
    tree = ranks[1].upload(ranks[1].look(6)).uploaded.tree
    assert [entry.path for entry in tree.entries] == [
        "common",
        "step-10",
        "step-10/shard-1",
        "step-20",
        "step-20/shard-1",
    ]
    (ranks[1].path / "step-10" / "shard-0").write_text("rank 1 has written it itself")
    tree = ranks[1].upload(ranks[1].look(6)).uploaded.tree
    assert "step-10/shard-0" in [entry.path for entry in tree.entries]


def test_metadata_of_another_rank_is_obsolete_once_this_one_has_written_its_shard_again(
    tmp_path: Path, clock: Clock
) -> None:
    """As FSDP with torch.distributed.checkpoint does that overwrites one directory: rank 0 alone writes .metadata."""
    chain = f"file://{tmp_path}/chain"
    ranks = [CheckpointContainer.make(tmp_path / f"rank-{rank}", chain, clock, rank) for rank in range(2)]
    for each, names in zip(ranks, (("__0_0.distcp", ".metadata"), ("__1_0.distcp",)), strict=True):
        each.begin(alone=False, world_size=2)
        (each.path / "last").mkdir()
        for name in names:
            shutil.copy(SAMPLES / "dcp" / "step-40" / name, each.path / "last" / name)
    states = {each.rank: each.look(6) for each in ranks}
    states[0] = ranks[0].look()
    stored = commit(chain, 1, {each.rank: each.upload(states[each.rank]) for each in ranks})
    restore(ranks[1], stored.point, 1)
    ranks[1].begin(alone=False, world_size=2)
    assert (ranks[1].path / "last" / ".metadata").exists()
    shutil.copyfile(SAMPLES / "dcp" / "step-40" / "__1_0.distcp", ranks[1].path / "last" / "__1_0.distcp")
    state = ranks[1].look(6)
    assert state.ready, state.blocker
    assert [entry.needs for entry in state.entries] == [{"last/.metadata": 1}]


# ---- a start in the same container ---------------------------------------------------------------------------------


def test_a_kept_directory_has_all_complete_saves(container: CheckpointContainer) -> None:
    save(container, 10)
    container.store(container.look())
    save(container, 20)
    (container.path / "step-30.bin").write_text("half")
    container.look()
    container.directory.ended()
    container.clock.now += 60  # the restart may come late
    resumed = keep(container)
    assert resumed is not None
    assert (resumed.point.step, resumed.path) == (20, str(container.path / "weights-20"))
    assert sorted(container.content()) == [
        *(f"step-{step}.tony.json" for step in (10, 20)),
        *(f"weights-{step}/a" for step in (10, 20)),
    ]
    assert files_below(container.set_aside) == ["step-30.bin"]
    container.begin()
    assert news(container.look()) == ["step-20.tony.json", "weights-20"], "the next start stores it"


def test_a_start_in_the_same_container_goes_back_to_the_storage_if_its_file_is_cut_short(
    container: CheckpointContainer,
) -> None:
    """The process was killed while it wrote its one file in place."""
    file = torch_like(container.path / "snapshot.pt", {"epoch": 60}, at=1000)
    whole = file.read_bytes()
    container.store()
    cut_short(file)
    resumed = keep(container)
    assert resumed is not None
    assert (resumed.point.step, file.read_bytes()) == (60, whole)
    container.begin()
    assert news(container.look(10)) == []


def test_a_start_in_the_same_container_keeps_a_complete_file_that_is_newer(container: CheckpointContainer) -> None:
    file = torch_like(container.path / "snapshot.pt", {"epoch": 60}, at=1000)
    container.store()
    torch_like(file, {"epoch": 61}, at=1001)
    resumed = keep(container)
    assert resumed is not None
    assert resumed.point.step == 61


def test_a_start_in_the_same_container_takes_the_rest_if_the_storage_has_lost_the_checkpoint(
    container: CheckpointContainer, tmp_path: Path
) -> None:
    torch_like(container.path / "epoch-3.pt", {"step": 3}, at=1000)
    newer = torch_like(container.path / "epoch-4.pt", {"step": 4}, at=1001)
    container.store()
    shutil.rmtree(tmp_path / "chain")
    cut_short(newer)
    resumed = keep(container)
    assert resumed is not None
    assert (resumed.point.step, resumed.path) == (3, str(container.path / "epoch-3.pt"))


def test_a_kept_directory_has_no_directory_of_a_save_that_had_only_begun(container: CheckpointContainer) -> None:
    save(container, 10)
    container.store()
    (container.path / "weights-20").mkdir()
    container.look()
    kept = keep(container)
    assert kept is not None
    assert kept.point.step == 10
    assert sorted(path.name for path in container.path.iterdir()) == ["step-10.tony.json", "weights-10"]


def test_a_kept_directory_has_no_incomplete_file_in_a_directory_that_is_read_only(clock: Clock) -> None:
    with ordinary_user() as directory:
        container = CheckpointContainer.make(directory / "container", (directory / "chain").as_uri(), clock)
        container.begin()
        save(container, 10)
        container.store()
        (container.path / "weights-20").mkdir()
        (container.path / "weights-20" / "a").write_text("half")
        (container.path / "weights-20").chmod(0o500)
        container.look()
        container.directory.ended()
        keep(container)
        assert sorted(path.name for path in container.path.iterdir()) == ["step-10.tony.json", "weights-10"]


def test_a_kept_directory_without_a_loadable_save_has_no_resume_path(container: CheckpointContainer) -> None:
    assert keep(container) is None
    (container.path / "state.json").write_text("{}")
    container.look(6)
    container.directory.ended()
    resumed = keep(container)
    assert resumed is not None
    assert (resumed.path, resumed.point.step) == ("", None)
    assert container.content() == {"state.json": b"{}"}


def test_a_complete_save_is_kept_in_a_directory_that_is_not_stored(container: CheckpointContainer) -> None:
    """With ``mirror: off`` and on other tasks than the leader, nothing has looked at the directory before."""
    (container.path / "state.json").write_text("{}")
    container.clock.now += 600
    keep(container)
    assert container.content() == {"state.json": b"{}"}


# ---- excluded files ------------------------------------------------------------------------------------------------


@pytest.fixture
def excluding(tmp_path: Path, clock: Clock) -> CheckpointContainer:
    """A container whose checkpoints leave out some files."""
    spec = CheckpointSpec(exclude=["*.cache", "runs", "step-*/optimizer"])
    made = CheckpointContainer.make(tmp_path / "excluding", f"file://{tmp_path}/chain", clock, spec=spec)
    made.directory.empty()
    made.begin()
    return made


def write(container: CheckpointContainer, *paths: str, text: str = "x") -> None:
    for path in paths:
        (container.path / path).parent.mkdir(parents=True, exist_ok=True)
        (container.path / path).write_text(text)


def age(one: Path, other: Path) -> int:
    """Nanoseconds between the times of two entries."""
    return one.stat().st_mtime_ns - other.stat().st_mtime_ns


def test_excluded_files_are_no_news_and_block_nothing(excluding: CheckpointContainer, clock: Clock) -> None:
    write(excluding, "runs/events", "data.cache")
    assert excluding.look(6) == DirectoryState(1, True), "nothing to store"
    write(excluding, "step-1/model", "step-1/optimizer")
    clock.writing[excluding.path] = {"data.cache", "runs/events", "step-1/optimizer"}
    for number in range(6):
        write(excluding, "runs/events", "data.cache", "step-1/optimizer", text="x" * number)
        state = excluding.look(1.5)
    assert (state.ready, state.blocker, news(state)) == (True, "", ["step-1"])
    tree = excluding.store(state).manifest.trees[0].tree
    assert [entry.path for entry in tree.entries] == ["step-1", "step-1/model"]


def test_excluded_files_are_described_once(excluding: CheckpointContainer) -> None:
    assert excluding.directory.describe_excluded() == ""
    write(excluding, "step-1/model", "step-1/optimizer", "runs/deep/events", text="x" * 600)
    (excluding.path / "runs" / "link").symlink_to("deep/events")
    excluding.look(6)
    described = "checkpoint.exclude leaves 2 files (1.2 KiB) out of checkpoints: runs, step-1/optimizer"
    assert excluding.directory.describe_excluded() == described
    assert excluding.directory.describe_excluded() == ""


def test_a_restore_leaves_excluded_files_where_their_directory_stays(excluding: CheckpointContainer) -> None:
    write(excluding, "step-1/model", "step-1/optimizer", "runs/events")
    stored = excluding.store()
    before = age(excluding.path / "step-1", excluding.path / "step-1" / "model")
    write(excluding, "step-1/model", text="of a process that was killed")
    write(excluding, "step-2/model", "step-2/optimizer", "data.cache")
    restore(excluding, stored.point)
    assert excluding.content() == dict.fromkeys(["step-1/model", "step-1/optimizer", "runs/events", "data.cache"], b"x")
    assert age(excluding.path / "step-1", excluding.path / "step-1" / "model") == before
    assert news(excluding.look(6)) == [], "what is restored is stored"


def test_excluded_files_stay_if_training_begins_at_step_0(excluding: CheckpointContainer) -> None:
    write(excluding, "step-1/model", "step-1/optimizer", "data.cache")
    excluding.directory.empty()
    assert list(excluding.content()) == ["data.cache"]


def test_excluded_files_follow_no_link_in_a_restore(excluding: CheckpointContainer) -> None:
    write(excluding, "other/model")
    (excluding.path / "step-1").symlink_to("other")
    stored = excluding.store()
    (excluding.path / "step-1").unlink()
    write(excluding, "step-1/optimizer")
    restore(excluding, stored.point)
    assert not (excluding.path / "other" / "optimizer").exists()


def test_another_container_has_no_excluded_files(excluding: CheckpointContainer, tmp_path: Path, clock: Clock) -> None:
    write(excluding, "step-1/model", "step-1/optimizer", "runs/events")
    stored = excluding.store()
    other = CheckpointContainer.make(tmp_path / "other", excluding.chain, clock)
    restore(other, stored.point)
    assert other.content() == {"step-1/model": b"x"}


def test_a_save_that_orbax_has_not_finished_is_reported_with_its_files(container: CheckpointContainer) -> None:
    path = container.path / "orbax" / "10.orbax-checkpoint-tmp"
    path.mkdir(parents=True)
    (path / "_METADATA").write_text("{}")
    (container.path / "other").write_text("1")
    state = container.look(130)
    sizes = {entry.name: list(entry.sizes) for entry in state.entries}
    assert sizes == {"orbax": ["orbax/10.orbax-checkpoint-tmp/_METADATA"], "other": []}
