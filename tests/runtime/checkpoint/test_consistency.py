"""Consistent moments of a checkpoint directory. Files are real; the clock is the test's."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tony_provider.runtime.artifacts.manifest import FileVersion, Kind, Tree, TreeNode, scan
from tony_provider.runtime.checkpoint.consistency import QUIET, Blocker, DirectoryWatch, Moment, Verified

INTERVAL = 1.5  # seconds between two looks at the directory


class World:
    """A checkpoint directory, a program that writes into it, and the watch."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.watch = DirectoryWatch()
        self.now = 1000.0
        self.verified = Verified()
        self.writing: tuple[str, ...] = ()
        self.asked = 0  # for verification
        self._written = 0
        self.look()
        self.watch.restored(self.now, scan(directory))

    def write(self, path: str, content: str = "x") -> None:
        target = self.directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
        self._date(target)

    def append(self, path: str, content: str = "x") -> None:
        with (self.directory / path).open("a") as file:
            file.write(content)
        self._date(self.directory / path)

    def _date(self, target: Path) -> None:
        """Each write has a time of its own, as on a disk where writes are milliseconds apart."""
        self._written += 1
        os.utime(target, ns=(0, self.clock_ns + self._written))

    @property
    def clock_ns(self) -> int:
        return 10**18 + round(self.now * 1e9)

    def look(self, seconds: float = 0.0) -> Moment | Blocker | None:
        """Let time pass, and look at the directory at each interval; returns what the last look has found."""
        end = self.now + seconds
        while True:
            self.watch.observe(self.now, scan(self.directory), self.writing)
            found = self.watch.moment(self.now, self._verify, self.clock_ns) if self.watch.has_news else None
            if self.now >= end:
                return found
            self.now = min(end, self.now + INTERVAL)

    def take(self) -> None:
        self.watch.taken(scan(self.directory))

    def _verify(self) -> Verified:
        self.asked += 1
        return self.verified


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def reason(found: Moment | Blocker | None) -> str:
    assert isinstance(found, Blocker), found
    return str(found)


def test_nothing_is_news_before_the_program_writes(world: World) -> None:
    assert world.look(100) is None


def test_a_save_is_complete_after_a_quiet_time(world: World) -> None:
    world.write("model.pt")
    assert reason(world.look(QUIET - 0.1)) == "model.pt was changed less than 3 s ago"
    assert world.asked == 0
    assert world.look(0.1) == Moment()
    world.take()
    assert world.look(10) is None


def test_an_unknown_format_and_several_files_are_one_save(world: World) -> None:
    world.write("state.json")
    world.look(QUIET - 1)
    world.write("buffer.pkl")
    assert reason(world.look(QUIET - 1)).startswith("buffer.pkl")
    assert world.look(1) == Moment()


@pytest.mark.parametrize("path", ["model.tmp", "tmp-step-1/model.pt", "checkpoint-12.incomplete/a"])
def test_a_temporary_name_blocks_until_it_is_abandoned(world: World, path: str) -> None:
    world.write(path)
    assert "temporary" in reason(world.look(30))
    assert world.look(40) == Moment()


def test_a_file_that_is_open_for_writing_blocks(world: World) -> None:
    world.write("model.pt")
    world.writing = ("model.pt",)
    assert reason(world.look(200)) == "model.pt is open for writing"
    world.writing = ()
    assert world.look() == Moment()


def test_a_broken_file_of_a_known_format_blocks_for_a_while(world: World) -> None:
    world.write("model.pt")
    world.verified = Verified(broken={"model.pt": "it is cut short"})
    assert reason(world.look(60)) == "model.pt is not complete: it is cut short"
    assert world.look(70) == Moment()


def test_a_log_never_blocks_and_is_no_news(world: World) -> None:
    world.write("train.log")
    world.write("model.pt")
    for _ in range(20):
        world.append("train.log")
        found = world.look(INTERVAL)
    assert found == Moment(growing=frozenset({"train.log"}))
    world.take()
    for _ in range(5):
        world.append("train.log")
        assert world.look(INTERVAL) is None
    world.writing = ("train.log",)
    world.write("model.pt", "y")
    assert world.look(QUIET) == Moment(growing=frozenset({"train.log"}))


def test_what_is_appended_for_minutes_is_taken_for_a_log(world: World) -> None:
    world.write("history")
    found = None
    for _ in range(100):
        world.append("history")
        found = world.look(INTERVAL)
    assert found == Moment(growing=frozenset({"history"}))


@pytest.mark.parametrize("name", ["last.bin", "model.txt"])
@pytest.mark.parametrize("pause", [20, 600])
def test_a_file_that_is_overwritten_and_grows_is_not_taken_for_a_log(world: World, name: str, pause: float) -> None:
    """Boosters grow by trees. LightGBM names its models ``model.txt``."""
    for count in range(10):
        world.write(name, "x" * (100 + count))
        assert world.look(pause) == Moment()
        world.take()


def test_a_file_of_a_known_format_is_not_taken_for_a_log(world: World) -> None:
    world.verified = Verified(whole=["last.pt"])
    for count in range(40):
        world.write("last.pt", "x" * (100 + count))
        assert world.look(5) == Moment()
        world.take()


def test_a_log_stays_a_log_after_a_pause(world: World) -> None:
    world.write("log.txt")
    world.write("history")
    for _ in range(100):
        world.append("history")
        world.look(INTERVAL)
    world.take()
    world.look(600)
    for name in ("log.txt", "history"):
        world.append(name)
        assert world.look() is None


def test_a_slow_save_is_not_taken_for_a_log(world: World) -> None:
    world.write("model.bin")
    for _ in range(30):
        world.append("model.bin")
        assert "model.bin" in reason(world.look(INTERVAL))
    assert world.look(QUIET) == Moment()


def test_an_append_by_each_save_is_news(world: World) -> None:
    world.write("history.bin")
    world.look(QUIET)
    world.take()
    world.append("history.bin")
    assert world.look(QUIET) == Moment()


def test_a_save_waits_for_files_that_the_former_had(world: World) -> None:
    for name in ("config.yaml", "G_100.pth", "D_100.pth"):
        world.write(name)
    assert world.look(QUIET) == Moment()
    world.take()
    world.write("G_200.pth")
    assert reason(world.look(20)) == "the save 200 still lacks files that the save 100 has"
    world.write("D_200.pth")
    assert world.look(QUIET) == Moment()


def test_a_file_that_does_not_come_again_delays_a_save_only(world: World) -> None:
    world.write("step-10/model.bin")
    world.write("step-10/vocabulary.txt")
    world.look(QUIET)
    world.take()
    world.write("step-20/model.bin")
    assert "lacks" in reason(world.look(20))
    assert world.look(11) == Moment()


def test_a_save_waits_for_files_that_each_save_overwrites(world: World) -> None:
    for _ in range(3):
        world.write("scaler.bin")
        world.look(QUIET - 1)
        world.write("model.bin")
        assert world.look(QUIET) == Moment()
        world.take()
    world.write("scaler.bin")
    assert reason(world.look(20)) == "model.bin is not written yet, although the saves before have it"


def test_a_save_that_begins_while_the_former_one_is_uploaded_also_waits(world: World) -> None:
    for _ in range(3):
        for name in ("scaler.bin", "model.bin"):
            world.write(name)
        assert world.look(QUIET) == Moment()
        world.take()
    for _ in range(2):
        for name in ("scaler.bin", "model.bin"):
            world.write(name)
        assert world.look(20) == Moment()
        uploaded = scan(world.directory)
        world.write("scaler.bin")
        world.look(2)
        world.watch.taken(uploaded)
        assert reason(world.look(20)).startswith("model.bin is not written yet")
        world.write("model.bin")
        assert world.look(20) == Moment()


def test_a_save_waits_for_the_link_to_it(world: World) -> None:
    for step in (10, 20):
        world.write(f"{step}/model.pt")
        if step > 10:
            assert reason(world.look(20)) == "last is not written yet, although the saves before have it"
            assert world.watch.after_failure(world.now, Verified) is None
            (world.directory / "last").unlink()
            assert reason(world.look(2)).startswith("last ")
            assert world.watch.after_failure(world.now, lambda: Verified(whole=["20/model.pt"])) is None
        (world.directory / "last").symlink_to(str(step))
        assert world.look(30) == Moment()
        world.take()


def test_a_file_that_only_some_saves_overwrite_delays_one_save(world: World) -> None:
    world.write("model-10.pt")
    world.write("config.json")
    world.look(QUIET)
    world.take()
    for step in (20, 30, 40, 50):  # the program saves while the watch waits
        world.write(f"model-{step}.pt")
        found = world.look(10)
    assert found == Moment()
    world.take()
    world.write("model-60.pt")
    assert world.look(QUIET) == Moment()


@pytest.mark.parametrize("name", ["model-{}.pt", "model.pt"])
def test_a_configuration_at_the_start_delays_no_save(world: World, name: str) -> None:
    world.write("config.json")
    world.look(QUIET)
    world.take()
    for step in (10, 20):
        world.write(name.format(step))
        assert world.look(QUIET) == Moment()
        world.take()


def test_a_file_that_is_overwritten_again_ends_the_wait(world: World) -> None:
    for name in ("best.pt", "last.pt"):
        world.write(name)
    world.look(QUIET)
    world.take()
    world.write("last.pt")
    assert reason(world.look(10)).startswith("best.pt is not written yet")
    world.write("last.pt")
    assert world.look(QUIET) == Moment()


def test_what_the_former_process_wrote_shows_what_a_save_lacks(world: World) -> None:
    for name in ("scaler.bin", "model.bin"):
        world.write(name)
    world.look(QUIET)
    world.take()
    world.watch.restored(world.now, scan(world.directory))
    assert world.look(10) is None
    world.write("scaler.bin")
    assert reason(world.look(10)).startswith("model.bin ")


def test_a_save_waits_no_longer_because_other_files_change(world: World) -> None:
    for name in ("model-100.bin", "vocabulary-100.bin"):
        world.write(name)
    world.look(QUIET)
    world.take()
    world.write("model-200.bin")
    for count in range(3):
        assert "lacks" in reason(world.look(9))
        world.write("state.json", str(count))
    assert world.look(QUIET + 1) == Moment()


def test_the_files_of_many_saves_are_compared_in_a_limited_time() -> None:
    def node(number: int) -> TreeNode:
        return TreeNode(Kind.FILE, 0o600, FileVersion(1, number, 1, number, 0))

    nodes = {f"sample-{number}.bin": node(number) for number in range(20_000)}
    watch = DirectoryWatch()
    watch.restored(0.0, Tree(nodes))
    tree = Tree(nodes | {"sample-20000.bin": node(20_000)})
    watch.observe(10.0, tree, ())
    watch.observe(20.0, tree, ())
    assert watch.moment(20.0, Verified) == Moment()


def test_a_program_that_pauses_within_a_save_is_waited_for_the_next_time(world: World) -> None:
    """Directories of unknown formats, each written with a pause of 8 seconds: only the first one is taken too early."""
    for step in (10, 20, 30):
        world.write(f"model-{step}-{step % 7}/a")
        early = world.look(8 - INTERVAL)
        if step == 10:
            assert early == Moment()
            world.take()
        else:
            assert isinstance(early, Blocker)
        world.write(f"model-{step}-{step % 7}/b")
        assert isinstance(world.look(QUIET), Blocker)
        assert world.look(16) == Moment()
        world.take()


def test_a_directory_that_is_overwritten_is_not_waited_for_longer(world: World) -> None:
    for _ in range(3):
        for name in ("ckpt/a", "ckpt/b"):
            world.write(name)
        assert world.look(QUIET) == Moment()
        world.take()
        world.look(100)


@pytest.mark.parametrize(
    "names", [["model.bin", "optimizer.bin"], ["ckpt-{}.data", "ckpt-{}.index", "checkpoint"], ["state.json"]]
)
def test_a_program_that_saves_all_the_time_is_stored_when_its_saves_are_known(world: World, names: list[str]) -> None:
    found = None
    for step in (10, 20, 30):
        assert not isinstance(found, Moment)
        for name in names:
            world.write(name.format(step), str(step))
        assert isinstance(world.look(), Blocker)
        found = world.look(1.4)
    assert found == Moment()
    world.take()
    for name in names:
        world.write(name.format(40), "40")
        assert isinstance(world.look(), Blocker), "the burst is not over"
    assert world.look(1.4) == Moment()


def test_a_program_that_pauses_within_its_saves_is_stored_when_it_is_quiet_only(world: World) -> None:
    for count in range(20):
        for name in ("model.bin", "optimizer.bin"):
            world.write(name, str(count))
            assert isinstance(world.look(QUIET - 1), Blocker)
    assert world.look(1) == Moment()


@pytest.mark.parametrize("name", ["shard-{1}.bin", "{1}.bin", "step-{0}/shard-{1}.bin", "run/step-{0}/{1}.bin"])
def test_numbered_files_of_a_save_with_pauses_are_stored_when_all_are_quiet_only(world: World, name: str) -> None:
    for step in (10, 20, 30):
        for number in range(2):
            world.write(name.format(step, number), str(step))
            assert isinstance(world.look(QUIET - 1), Blocker)
    assert world.look(1) == Moment()


def test_a_program_that_writes_numbered_saves_all_the_time_is_stored(world: World) -> None:
    found = None
    for step in (10, 20, 30):
        assert not isinstance(found, Moment)
        world.write(f"run/step-{step}/model.bin")
        world.write(f"run/step-{step}/optimizer.bin")
        found = world.look(2)
    assert found == Moment()


def test_one_file_that_is_overwritten_is_stored_as_soon_as_it_is_verified(world: World) -> None:
    world.verified = Verified(whole=["last.pt"])
    world.write("last.pt", "1")
    assert isinstance(world.look(), Blocker), "other files may follow"
    world.look(QUIET)
    world.take()
    world.write("last.pt.tmp", "2")
    world.look(INTERVAL)
    (world.directory / "last.pt.tmp").unlink()
    world.write("last.pt", "2")
    assert world.look() == Moment()
    world.take()
    world.write("other.pt")
    world.write("last.pt", "3")
    assert isinstance(world.look(), Blocker)


def test_a_manifest_says_exactly_when_a_save_is_complete(world: World) -> None:
    world.write("notes.txt")
    world.write("step-1/a")
    world.write("step-1.tony.json")
    world.write("step-2/a")
    world.verified = Verified(declared={"step-1.tony.json": ["step-1/a"]})
    assert world.look() == Moment(unfinished=frozenset({"notes.txt", "step-2/a"}))
    world.take()
    world.write("step-2/b")
    assert "no manifest" in reason(world.look(600))


def test_a_file_that_is_changed_after_its_manifest_waits_for_the_next_one(world: World) -> None:
    for name in ("state", "state.tony.json"):
        world.write(name)
    world.verified = Verified(declared={"state.tony.json": ["state"]})
    assert world.look() == Moment()
    world.take()
    world.write("state", "next")
    world.write("other.tony.json")
    world.verified = Verified(declared={"other.tony.json": []}, outdated=["state"])
    assert reason(world.look(60)) == "state is newer than the manifest that lists it"
    assert world.watch.after_failure(world.now, lambda: world.verified) is None


@pytest.mark.parametrize(("pause", "between"), [(6, 9), (20, 60), (100, 200)])
@pytest.mark.parametrize("names", [("model.pkl", "optimizer.json"), ("model-{}.pt", "last")])
def test_a_program_that_pauses_between_its_overwritten_files_is_learned(
    world: World, names: tuple[str, str], pause: int, between: int
) -> None:
    first, second = names
    for step in (10, 20, 30):
        world.write(first.format(step), str(step))
        found = world.look(pause)
        if step == 10:
            assert found == Moment(), "nothing shows yet that a file is missing"
            world.take()
        else:
            assert reason(found) == f"{second} is not written yet, although the saves before have it"
            assert world.watch.after_failure(world.now, Verified) is None
        world.write(second, str(step))
        assert world.look(QUIET) == Moment()
        world.take()
        world.look(between - QUIET)
    world.watch.restored(world.now, scan(world.directory))
    world.write(first.format(40))
    assert reason(world.look(pause)).startswith(second)


def test_two_files_at_equal_distances_are_stored_each_by_itself(world: World) -> None:
    for count in range(4):
        for name in ("a.bin", "b.bin"):
            world.write(name, str(count))
            assert world.look(7) == Moment()
            world.take()


# ---- after a failure -----------------------------------------------------------------------------------------------


def test_a_new_save_that_was_cut_short_is_left_out(world: World) -> None:
    world.write("step-10/model.bin")
    world.look(QUIET)
    world.take()
    world.write("step-20/a")
    world.look()
    assert world.watch.after_failure(world.now, Verified) == Moment(frozenset({"step-20", "step-20/a"}))
    world.look(QUIET)
    assert world.watch.after_failure(world.now, Verified) == Moment()
    broken = Verified(broken={"step-20/a": "it is cut short"})
    assert world.watch.after_failure(world.now, lambda: broken) == Moment(frozenset({"step-20", "step-20/a"}))


def test_a_save_in_place_that_was_cut_short_leaves_the_last_snapshot_only(world: World) -> None:
    world.write("last.bin")
    world.look(QUIET)
    world.take()
    world.write("last.bin", "half")
    world.look()
    assert world.watch.after_failure(world.now, Verified) is None
    assert world.watch.after_failure(world.now, lambda: Verified(whole=["last.bin"])) == Moment()
    world.writing = ("last.bin",)
    world.look(100)
    assert world.watch.after_failure(world.now, Verified) is None


def test_a_complete_file_of_another_kind_does_not_replace_a_save_that_was_removed(world: World) -> None:
    """The program removes its save before it writes the next one, and is killed in between."""
    for name in ("last-10.bin", "results.json"):
        world.write(name)
    world.look(QUIET)
    world.take()
    world.write("results.json", "{}")
    world.look(QUIET)
    (world.directory / "last-10.bin").unlink()
    world.write("last-20.bin", "half")
    world.look()
    assert world.watch.after_failure(world.now, Verified) is None


def test_the_directory_of_a_save_that_was_cut_short_replaces_no_save(world: World) -> None:
    world.write("step-1/a")
    world.look(QUIET)
    world.take()
    shutil.rmtree(world.directory / "step-1")
    world.write("step-2/a")
    world.look()
    assert world.watch.after_failure(world.now, Verified) is None


def test_a_save_that_is_verified_stays_with_its_directory(world: World) -> None:
    world.write("step-20/a")
    world.write("step-20.tony.json")
    world.look()
    verified = Verified(whole=["step-20/a", "step-20.tony.json"])
    assert world.watch.after_failure(world.now, lambda: verified) == Moment()


@pytest.mark.parametrize("whole", [(), ("G_200.pth",)])
def test_a_save_that_lacks_a_file_of_the_former_one_is_not_kept(world: World, whole: tuple[str, ...]) -> None:
    """The file that exists may be complete, and yet the program cannot resume without its counterpart."""
    for name in ("G_100.pth", "D_100.pth"):
        world.write(name)
    world.look(QUIET)
    world.take()
    world.write("G_200.pth")
    world.look(2 * QUIET)
    verified = Verified(whole=whole)
    assert world.watch.after_failure(world.now, lambda: verified) == Moment(frozenset({"G_200.pth"}))
    world.write("D_200.pth")
    world.look(QUIET)
    assert world.watch.after_failure(world.now, lambda: verified) == Moment()


@pytest.mark.parametrize("former", [False, True])
def test_a_complete_file_does_not_stay_without_the_rest_of_its_save(world: World, former: bool) -> None:
    """Keras replaces its last model, and is killed while it writes the best one."""
    if former:
        for name in ("last.keras", "best-1-12.25.keras"):
            world.write(name)
        world.look(QUIET)
        world.take()
    world.look(QUIET)
    world.write("last.keras", "new")
    world.write("best-2-9.75.keras")
    world.look()
    verified = Verified(whole=["last.keras"], broken={"best-2-9.75.keras": "it is cut short"})
    left_out = Moment(frozenset({"last.keras", "best-2-9.75.keras"}))
    assert world.watch.after_failure(world.now, lambda: verified) == (None if former else left_out)


def test_a_complete_file_does_not_stay_without_a_counterpart_that_is_not_overwritten_yet(world: World) -> None:
    for name in ("model.pt", "optimizer.pt"):
        world.write(name)
    world.look(QUIET)
    world.take()
    world.write("model.pt", "new")
    world.look()
    verified = Verified(whole=["model.pt", "optimizer.pt"])
    assert world.watch.after_failure(world.now, lambda: verified) is None
    world.write("optimizer.pt", "new")
    world.look()
    assert world.watch.after_failure(world.now, lambda: verified) == Moment()


def test_a_complete_file_does_not_stay_without_its_half_written_counterpart(world: World) -> None:
    for name in ("G_10.pth", "D_10.pth", "G_20.pth", "D_20.pth"):
        world.write(name)
    world.look()
    verified = Verified(whole=["G_10.pth", "D_10.pth", "G_20.pth"], broken={"D_20.pth": "it is cut short"})
    assert world.watch.after_failure(world.now, lambda: verified) == Moment(frozenset({"G_20.pth", "D_20.pth"}))


@pytest.mark.parametrize("names", [["last.pt"], ["last.pt", "other.pt"]])
def test_a_temporary_file_is_of_the_next_save(world: World, names: list[str]) -> None:
    """The program gives its files their names when they are complete, and saves all the time."""
    for name in names:
        world.write(name)
    world.look(QUIET)
    world.take()
    for name in names:
        world.write(name, "new")
    world.look()
    world.write("last.pt.tmp", "newer")
    world.look()
    assert world.watch.after_failure(world.now, lambda: Verified(whole=names)) == Moment(frozenset({"last.pt.tmp"}))


@pytest.mark.parametrize("place", ["step-20", "run/step-20"])
def test_a_save_of_which_only_the_directory_exists_is_not_complete(world: World, place: str) -> None:
    """The program has made the directory, and the first file takes long."""
    world.write(f"{place[:-2]}10/model")
    world.look(QUIET)
    world.take()
    (world.directory / place).mkdir()
    assert reason(world.look(20)) == f"{place} is still empty"
    assert world.watch.after_failure(world.now, Verified) == Moment(frozenset({place}))
    assert world.look(11) == Moment()
    world.take()
    (world.directory / "logs").mkdir()
    assert world.look(QUIET) == Moment()


def test_nothing_new_is_no_reason_to_go_back(world: World) -> None:
    assert world.watch.after_failure(world.now, Verified) == Moment()


# ---- any program whose pauses within a save are short --------------------------------------------------------------

Step = Callable[[World, int], None]


@attrs.frozen
class Program:
    """The files of one save, by what it calls them, and the pauses before each of them."""

    names: tuple[str, ...]
    pauses: tuple[float, ...]  # seconds
    rotates: bool


programs = st.builds(
    Program,
    names=st.lists(
        st.sampled_from(["last.bin", "opt.bin", "step-{}/a", "step-{}/b", "G_{}.pth", "D_{}.pth", "ckpt/x", "ckpt/y"]),
        min_size=1,
        max_size=5,
        unique=True,
    ).map(tuple),
    pauses=st.lists(st.floats(0, QUIET - 0.01), min_size=5, max_size=5).map(tuple),
    rotates=st.booleans(),
)


@settings(deadline=None, max_examples=150)
@given(program=programs, between=st.lists(st.floats(0, 60), min_size=1, max_size=6), offset=st.floats(0, INTERVAL))
def test_a_moment_shows_complete_saves_only(program: Program, between: list[float], offset: float) -> None:
    """The program notes by itself what its directory holds at the end of each save."""
    root = Path(tempfile.mkdtemp())
    try:
        world = World(root)
        complete = [content(root)]
        seen = []
        world.look(offset)
        for number, pause in enumerate(between):
            for found in run_save(world, program, number, complete):
                seen.append((found, content(root)))
            for found in each_look(world, pause):
                seen.append((found, content(root)))
        for found in each_look(world, 60):
            seen.append((found, content(root)))
        moments = [directory for found, directory in seen if isinstance(found, Moment)]
        assert all(directory in complete for directory in moments)
        assert moments[-1] == complete[-1]  # the last save is never missed
    finally:
        shutil.rmtree(root)


def run_save(world: World, program: Program, number: int, complete: list[dict[str, str]]) -> Iterator[object]:
    step = 10 * (number + 1)
    for name, pause in zip(program.names, program.pauses, strict=False):
        world.write(name.format(step), f"save {step}")
        yield from each_look(world, pause)
    complete.append(content(world.directory))
    if program.rotates and number >= 2:
        for name in program.names:
            if "{}" in name:
                (world.directory / name.format(step - 20)).unlink(missing_ok=True)
    complete.append(content(world.directory))


def each_look(world: World, seconds: float) -> Iterator[object]:
    end = world.now + seconds
    while world.now < end:
        world.now = min(end, world.now + INTERVAL)
        found = world.look()
        yield found
        if isinstance(found, Moment):
            world.take()


def content(directory: Path) -> dict[str, str]:
    return {path.relative_to(directory).as_posix(): path.read_text() for path in directory.rglob("*") if path.is_file()}
