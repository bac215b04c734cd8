"""Uploads of a directory tree, and restores from what they have stored, on each kind of store."""

from __future__ import annotations

import io
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.runtime.artifacts import trees
from tests.runtime.storage.conftest import Place
from tony_provider.runtime.artifacts import manifest
from tony_provider.runtime.artifacts import upload as upload_module
from tony_provider.runtime.artifacts.manifest import Entry, InvalidManifest, Kind, StoredTree, scan
from tony_provider.runtime.artifacts.tree_restore import DamagedObject, RestoredTree, empty_directory, restore_tree
from tony_provider.runtime.artifacts.upload import (
    SMALL,
    ArtifactUpload,
    StoredFiles,
    Throttle,
    TreeChanged,
    UploadedTree,
)
from tony_provider.runtime.common.codec import dump_json, load_json
from tony_provider.runtime.common.concurrency import Cancelled
from tony_provider.runtime.storage import LocalStorage, Source, Storage, StorageUnreachable

LARGE = SMALL + 1
NONE = StoredFiles()


def send(
    storage: Storage, objects: str, directory: Path, stored: StoredFiles = NONE, name: str = "u1", **more: Any
) -> UploadedTree:
    hold = directory.with_name("hold")
    return ArtifactUpload(storage, objects, name, Throttle(None)).run(directory, scan(directory), stored, hold, **more)


def get(storage: Storage, objects: str, tree: StoredTree, directory: Path) -> RestoredTree:
    aside = directory.with_name("aside")
    return restore_tree(storage, objects, tree, directory, aside=aside, cancelled=threading.Event())


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A directory with everything that a tree can hold."""
    directory = tmp_path / "source" / "checkpoints"
    for name, size in {"step-1/large": LARGE, "step-1/small": 10, "latest": 100, "step-1/none": 0}.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(os.urandom(size))
    (directory / "step-1" / "empty").mkdir(mode=0o750)
    (directory / "last").symlink_to("step-1/large")
    (directory / "latest").chmod(0o444)
    for number, path in enumerate(sorted(directory.rglob("*"))):
        os.utime(path, ns=(number * 10**9, 10**18 + number * 10**9), follow_symlinks=False)
    return directory


@pytest.fixture
def target(tmp_path: Path) -> Path:
    directory = tmp_path / "target" / "checkpoints"
    directory.mkdir(parents=True)
    return directory


# ---- on each kind of store -----------------------------------------------------------------------------------------


def test_a_restored_tree_equals_the_uploaded_one(place: Place, source: Path, target: Path) -> None:
    (target / "leftover").write_text("x")
    uploaded = send(place.storage, place.uri("objects"), source)
    tree = load_json(dump_json(uploaded.tree), StoredTree)
    assert tree == uploaded.tree
    restored = get(place.storage, place.uri("objects"), tree, target)
    assert trees.snapshot(target) == trees.snapshot(source)
    assert trees.times(target) == trees.times(source)
    assert (restored.copied, restored.reused) == (LARGE + 110, 0)
    assert uploaded.sent == LARGE + 110
    assert sorted(place.names("objects")) == ["u1-0", "u1-1"]  # a large file, and a pack of two small ones
    assert not source.with_name("hold").exists()
    assert sorted(path.name for path in target.parent.iterdir()) == ["aside", "checkpoints"]
    assert [path.name for path in (target.parent / "aside").iterdir()] == ["leftover"]


def test_a_very_large_file_is_copied_in_parts(
    place: Place, source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "PART", LARGE // 3)
    streams: list[str] = []
    write = place.storage.write

    def noted(uri: str, source: Source, **more: Any) -> int:
        streams.append(uri.rpartition("/")[2])
        return write(uri, source, **more)

    monkeypatch.setattr(place.storage, "write", noted)
    uploaded = send(place.storage, place.uri("objects"), source)
    parts = {each for each in streams if each.startswith("u1-0")}
    in_parts = {"u1-0", "u1-0-part-1", "u1-0-part-2", "u1-0-part-3"}
    assert parts == (in_parts if place.kind == "webhdfs" else {"u1-0"})  # only HDFS can join files
    assert sorted(place.names("objects")) == ["u1-0", "u1-1"]
    get(place.storage, place.uri("objects"), uploaded.tree, target)
    assert trees.snapshot(target) == trees.snapshot(source)


def test_a_file_that_became_shorter_before_it_is_sent_has_changed(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for number in range(6):  # more than are sent at once, and the largest are sent first
        (source / f"file-{number}").write_bytes(bytes(LARGE + number))
    write = place.storage.write

    def truncated(uri: str, source_: Source, **more: Any) -> int:
        os.truncate(source / "file-0", 5)
        return write(uri, source_, **more)

    monkeypatch.setattr(place.storage, "write", truncated)
    with pytest.raises(TreeChanged, match="file-0"):
        send(place.storage, place.uri("objects"), source)


def test_parts_of_a_failed_upload_are_known(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(LocalStorage):
        def can_join(self, directory: str) -> bool:
            return True

        def join(self, uri: str, others: Sequence[str]) -> None:
            raise StorageUnreachable(uri, "append files to", "no answer")

    monkeypatch.setattr(manifest, "PART", LARGE // 2)
    storage, objects = Failing(), f"file://{tmp_path}/objects"
    upload = ArtifactUpload(storage, objects, "u1", Throttle(None))
    with pytest.raises(StorageUnreachable):
        upload.run(source, scan(source), NONE, source.with_name("hold"))
    assert {each.name for each in (tmp_path / "objects").iterdir()} <= set(upload.objects)


def test_unchanged_files_are_sent_once(place: Place, source: Path, target: Path) -> None:
    first = send(place.storage, place.uri("objects"), source)
    again = send(place.storage, place.uri("objects"), source, first.stored, "u2")
    assert (again.sent, again.tree) == (0, first.tree)
    (source / "step-1" / "small").write_bytes(b"other")
    third = send(place.storage, place.uri("objects"), source, again.stored, "u3")
    assert third.sent == 5
    get(place.storage, place.uri("objects"), third.tree, target)
    assert trees.snapshot(target) == trees.snapshot(source)
    after_restore = get(place.storage, place.uri("objects"), third.tree, target).stored
    assert send(place.storage, place.uri("objects"), target, after_restore, "u4").sent == 0


def test_a_file_that_was_renamed_linked_or_made_read_only_is_not_sent_again(place: Place, source: Path) -> None:
    first = send(place.storage, place.uri("objects"), source)
    large = source / "step-1" / "large"
    large.chmod(0o400)
    os.link(large, source / "best")
    large.rename(source / "step-2")
    again = send(place.storage, place.uri("objects"), source, first.stored, "u2")
    assert again.sent == 0
    named = {entry.path: (entry.object, entry.mode) for entry in again.tree.entries if entry.size == LARGE}
    assert named == {"best": ("u1-0", 0o400), "step-2": ("u1-0", 0o400)}


def test_files_that_share_their_stored_bytes_are_restored_apart(place: Place, source: Path, target: Path) -> None:
    for name in ("large", "small"):
        os.link(source / "step-1" / name, source / f"best-{name}")
    first = send(place.storage, place.uri("objects"), source)
    tree = send(place.storage, place.uri("objects"), source, first.stored, "u2").tree
    for _ in range(2):  # from the storage, and from what the directory has
        get(place.storage, place.uri("objects"), tree, target)
        assert trees.snapshot(target) == trees.snapshot(source)
        (target / "best-large").chmod(0o600)
        inodes = {(target / name).stat().st_ino for name in ("best-large", "step-1/large")}
        assert len(inodes) == 2
        (target / "best-large").chmod((source / "best-large").stat().st_mode & 0o777)


def test_what_the_directory_still_has_is_not_copied(place: Place, source: Path, target: Path) -> None:
    tree = send(place.storage, place.uri("objects"), source).tree
    shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
    (target / "step-1" / "small").write_bytes(b"?" * 10)
    restored = get(place.storage, place.uri("objects"), tree, target)
    assert (restored.copied, restored.reused) == (10, LARGE + 100)
    assert trees.snapshot(target) == trees.snapshot(source)


# ---- packs ---------------------------------------------------------------------------------------------------------


def test_small_files_share_objects(tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload_module, "PACK", 1000)
    directory = tmp_path / "many"
    directory.mkdir()
    for number in range(100):
        (directory / f"{number:03d}").write_bytes(os.urandom(100))
    tree = send(LocalStorage(), f"file://{tmp_path}/objects", directory).tree
    assert list(tree.objects.values()) == [1000] * 10
    get(LocalStorage(), f"file://{tmp_path}/objects", tree, target)
    assert trees.snapshot(target) == trees.snapshot(directory)


def test_a_pack_of_which_little_is_used_is_replaced(tmp_path: Path) -> None:
    directory = tmp_path / "many"
    directory.mkdir()
    for number in range(10):
        (directory / str(number)).write_bytes(os.urandom(100))
    objects = f"file://{tmp_path}/objects"
    uploaded = send(LocalStorage(), objects, directory)
    for number in range(5):
        (directory / str(number)).unlink()
    half = send(LocalStorage(), objects, directory, uploaded.stored, "u2")
    assert (half.sent, list(half.tree.objects)) == (0, ["u1-0"])
    (directory / "5").unlink()
    fewer = send(LocalStorage(), objects, directory, half.stored, "u3")
    assert (fewer.sent, list(fewer.tree.objects)) == (400, ["u3-0"])


# ---- changes during an upload --------------------------------------------------------------------------------------


class Meddling(LocalStorage):
    """Something else happens while an object is written."""

    def __init__(self, meddle: Callable[[], object]) -> None:
        super().__init__()
        self._meddle = meddle

    def write(self, uri: str, source: Source, **more: Any) -> int:
        self._meddle()
        return super().write(uri, source, **more)


def test_a_large_file_may_be_removed_or_replaced_meanwhile(tmp_path: Path, source: Path, target: Path) -> None:
    before = trees.snapshot(source)

    def meddle() -> None:
        (source / "step-1" / "large").unlink(missing_ok=True)
        (source / "step-1" / "small").write_bytes(b"other")

    objects = f"file://{tmp_path}/objects"
    uploaded = send(Meddling(meddle), objects, source)
    get(LocalStorage(), objects, uploaded.tree, target)
    assert trees.snapshot(target) == before
    assert sorted(uploaded.stored.files) == ["latest"]  # the others have to be sent again


@pytest.mark.parametrize("copy", [False, True])
def test_a_write_into_a_large_file_is_noticed_or_does_no_harm(
    tmp_path: Path, source: Path, target: Path, copy: bool
) -> None:
    before = trees.snapshot(source)

    def meddle() -> None:
        with (source / "step-1" / "large").open("r+b") as file:
            file.write(b"?")

    objects = f"file://{tmp_path}/objects"
    if not copy:
        with pytest.raises(TreeChanged, match="step-1/large was changed"):
            send(Meddling(meddle), objects, source)
        return
    uploaded = send(Meddling(meddle), objects, source, copy=True)
    get(LocalStorage(), objects, uploaded.tree, target)
    assert trees.snapshot(target) == before


@pytest.mark.parametrize("path", ["step-1/large", "step-1/small"])
@pytest.mark.parametrize("change", ["write", "remove", "link"])
def test_a_change_after_the_scan_is_noticed(tmp_path: Path, source: Path, path: str, change: str) -> None:
    tree = scan(source)
    if change == "write":
        (source / path).write_bytes(b"?" * (source / path).stat().st_size)
    else:
        (source / path).unlink()
    if change == "link":
        (source / path).symlink_to("/etc/hostname")
    objects = f"file://{tmp_path}/objects"
    with pytest.raises(TreeChanged, match=path):
        ArtifactUpload(LocalStorage(), objects, "u1", Throttle(None)).run(source, tree, NONE, tmp_path / "hold")
    assert not (tmp_path / "hold").exists()


@pytest.mark.parametrize("size", [100, LARGE])
def test_a_growing_file_is_stored_up_to_its_scanned_length(tmp_path: Path, target: Path, size: int) -> None:
    directory = tmp_path / "logs"
    directory.mkdir()
    (directory / "events").write_bytes(b"a" * size)
    tree = scan(directory)
    with (directory / "events").open("ab") as file:
        file.write(b"b" * 50)
    objects = f"file://{tmp_path}/objects"
    work = ArtifactUpload(LocalStorage(), objects, "u1", Throttle(None))
    uploaded = work.run(directory, tree, NONE, tmp_path / "hold", growing=["events"])
    get(LocalStorage(), objects, uploaded.tree, target)
    assert (target / "events").read_bytes() == b"a" * size
    assert uploaded.stored.files == {}


def test_the_first_failure_ends_all(tmp_path: Path, source: Path) -> None:
    def fail() -> None:
        raise StorageUnreachable("file:///", "write", "it is gone")

    work = ArtifactUpload(Meddling(fail), f"file://{tmp_path}/objects", "u1", Throttle(None))
    with pytest.raises(StorageUnreachable):
        work.run(source, scan(source), NONE, tmp_path / "hold")
    assert sorted(work.objects) == ["u1-0", "u1-1"]  # for the caller to remove
    assert not (tmp_path / "hold").exists()


# ---- damage --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["flip", "cut", "lose"])
@pytest.mark.parametrize("name", ["u1-0", "u1-1"])
def test_a_damaged_object_changes_nothing(place: Place, source: Path, target: Path, damage: str, name: str) -> None:
    tree = send(place.storage, place.uri("objects"), source).tree
    uri = place.uri(f"objects/{name}")
    with place.storage.open_read(uri) as stream:
        data = stream.read()
    if damage == "lose":
        place.storage.remove(uri)
    else:
        place.storage.write(uri, data[:-1] + (bytes([data[-1] ^ 1]) if damage == "flip" else b""), overwrite=True)
    (target / "mine").write_text("x")
    (target.parent / "aside").mkdir()
    with pytest.raises(DamagedObject, match=name):
        get(place.storage, place.uri("objects"), tree, target)
    assert sorted(path.name for path in target.iterdir()) == ["mine"]
    assert sorted(path.name for path in target.parent.iterdir()) == ["aside", "checkpoints"]


@attrs.define
class Garbling(LocalStorage):
    """A network that changes the bytes of an object for some time."""

    times: int
    read: int = 0

    def open_read(self, uri: str, *, offset: int = 0, length: int | None = None) -> BinaryIO:
        self.read += 1
        with super().open_read(uri, offset=offset, length=length) as source:
            data = source.read()
        return io.BytesIO(data[:-1] + bytes([data[-1] ^ 1]) if self.read <= self.times else data)


def test_bytes_that_the_network_changed_are_read_again(tmp_path: Path, source: Path, target: Path) -> None:
    objects = f"file://{tmp_path}/objects"
    tree = send(LocalStorage(), objects, source).tree
    get(Garbling(1), objects, tree, target)
    assert trees.snapshot(target) == trees.snapshot(source)


def test_a_restore_can_be_cancelled(tmp_path: Path, source: Path, target: Path) -> None:
    objects = f"file://{tmp_path}/objects"
    tree = send(LocalStorage(), objects, source).tree
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(Cancelled):
        restore_tree(LocalStorage(), objects, tree, target, aside=tmp_path / "aside", cancelled=cancelled)
    assert list(target.parent.iterdir()) == [target]


def test_times_in_the_future_move_back_together(tmp_path: Path, target: Path) -> None:
    directory = tmp_path / "skewed"
    directory.mkdir()
    now = time.time_ns()
    for number, name in enumerate(("old", "new")):
        (directory / name).write_text(name)
        when = now + (number + 1) * 3600 * 10**9
        os.utime(directory / name, ns=(when, when))
    tree = send(LocalStorage(), f"file://{tmp_path}/objects", directory).tree
    get(LocalStorage(), f"file://{tmp_path}/objects", tree, target)
    found = trees.times(target)
    assert found["new"] - found["old"] == 3600 * 10**9
    assert found["new"] < time.time_ns()


def test_a_fresh_start_empties_the_directory(target: Path) -> None:
    (target / "locked").mkdir()
    (target / "locked" / "a").write_text("x")
    (target / "locked").chmod(0o500)
    empty_directory(target, aside=target.with_name("aside"))
    assert list(target.iterdir()) == []
    empty_directory(target, aside=target.with_name("aside"))
    assert sorted(path.name for path in target.parent.iterdir()) == ["aside", "checkpoints"]
    assert list(target.with_name("aside").iterdir()) == []


# ---- manifests that other programs have changed --------------------------------------------------------------------

FILE = Entry("a", Kind.FILE, 0o600, 1, 10, "crc32:00000000", "u1-0")
DIRECTORY = Entry("d", Kind.DIRECTORY, 0o700, 1)
LINK = Entry("l", Kind.LINK, 0o777, 1, target="a")


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ([attrs.evolve(FILE, path="../a")], "is not a path below the directory"),
        ([attrs.evolve(FILE, path="/a")], "is not a path below the directory"),
        ([attrs.evolve(FILE, path="d/a")], "is not one of its directories"),
        ([LINK, attrs.evolve(FILE, path="l/a")], "is not one of its directories"),
        ([FILE, attrs.evolve(FILE, path="a/b")], "is not one of its directories"),
        ([FILE, FILE], "twice"),
        ([attrs.evolve(LINK, target="../x")], "leads out"),
        ([attrs.evolve(LINK, target="/etc/passwd")], "leads out"),
        ([DIRECTORY, attrs.evolve(LINK, path="d/l", target="x/../../..")], "leads out"),
        ([attrs.evolve(FILE, mode=0o4755)], "is not between 0 and 0o777"),
        ([attrs.evolve(FILE, size=11)], "does not fit"),
        ([attrs.evolve(FILE, offset=1)], "does not fit"),
        ([attrs.evolve(FILE, object="../u1")], "does not fit"),
        ([attrs.evolve(FILE, size=0, object="u2-0")], "does not fit"),
        ([attrs.evolve(FILE, size=-1)], "negative"),
        ([attrs.evolve(FILE, mtime_ns=1 << 90)], "negative or above"),
        ([attrs.evolve(FILE, checksum="crc64:0")], "not a checksum"),
        ([attrs.evolve(DIRECTORY, size=1)], "not a file"),
        ([attrs.evolve(FILE, size=6), attrs.evolve(FILE, path="b", size=6, offset=4)], "overlap"),
    ],
)
def test_a_manifest_that_is_no_tree_is_rejected(
    tmp_path: Path, target: Path, entries: list[Entry], reason: str
) -> None:
    with pytest.raises(InvalidManifest, match=reason):
        get(LocalStorage(), f"file://{tmp_path}/objects", StoredTree(entries, {"u1-0": 10}), target)
    assert list(target.parent.iterdir()) == [target]


def test_an_object_has_a_plain_name(tmp_path: Path, target: Path) -> None:
    for name in ("../x", "A", "", "-x", "x/y"):
        with pytest.raises(InvalidManifest, match="name of a stored object"):
            StoredTree([], {name: 1}).check()


# ---- any sequence of changes ---------------------------------------------------------------------------------------


class Saves(RuleBasedStateMachine):
    """A program changes its directory in any way; every upload is later restored exactly."""

    @initialize()
    def begin(self) -> None:
        self.root = Path(tempfile.mkdtemp())
        self.directory = self.root / "checkpoints"
        self.directory.mkdir()
        self.objects = f"file://{self.root}/objects"
        self.storage = LocalStorage()
        self.stored = NONE
        self.saved: list[tuple[StoredTree, dict[str, object], dict[str, int]]] = []
        self.clock = 10**18

    def teardown(self) -> None:
        if hasattr(self, "root"):
            shutil.rmtree(self.root)

    @rule(path=trees.paths, content=trees.contents, tick=st.integers(0, 3))
    def write(self, path: str, content: bytes, tick: int) -> None:
        self.clock += tick * 10**9
        trees.write(self.directory, path, content, self.clock)

    @rule(path=trees.paths, data=st.binary(min_size=1, max_size=9))
    def write_in_place(self, path: str, data: bytes) -> None:
        target = self.directory / path
        if target.is_file() and not target.is_symlink():
            with target.open("r+b") as file:
                file.write(data)

    @rule(path=trees.paths, other=trees.paths)
    def rename(self, path: str, other: str) -> None:
        if (self.directory / path).is_file() and not other.startswith(path) and not path.startswith(other):
            trees.clear_way(self.directory, other)
            if (self.directory / path).exists():
                (self.directory / path).rename(self.directory / other)

    @rule(path=trees.paths, other=trees.paths)
    def link(self, path: str, other: str) -> None:
        source = self.directory / path
        if source.is_file() and not other.startswith(path) and not path.startswith(other):
            trees.clear_way(self.directory, other)
            if source.is_file():
                os.link(source, self.directory / other, follow_symlinks=False)

    @rule(path=trees.paths, other=trees.paths)
    def point(self, path: str, other: str) -> None:
        trees.clear_way(self.directory, path)
        (self.directory / path).symlink_to(self.directory / other)

    @rule(path=trees.paths)
    def remove(self, path: str) -> None:
        trees.clear_way(self.directory, path)

    @rule(path=trees.paths, mode=st.sampled_from([0o600, 0o644, 0o755, 0o400]))
    def chmod(self, path: str, mode: int) -> None:
        if (self.directory / path).is_file() and not (self.directory / path).is_symlink():
            (self.directory / path).chmod(mode)

    @rule()
    def save(self) -> None:
        uploaded = send(self.storage, self.objects, self.directory, self.stored, f"u{len(self.saved)}")
        self.stored = uploaded.stored
        content = {
            name: ("link", next(each.target for each in uploaded.tree.entries if each.path == name))
            if isinstance(value, tuple) and value[0] == "link"
            else value
            for name, value in trees.snapshot(self.directory).items()
        }
        self.saved.append((uploaded.tree, content, trees.times(self.directory)))

    @rule(data=st.data(), in_place=st.booleans())
    def restore(self, data: st.DataObject, in_place: bool) -> None:
        if not self.saved:
            return
        tree, content, times = data.draw(st.sampled_from(self.saved))
        target = self.directory if in_place else self.root / "elsewhere"
        target.mkdir(exist_ok=True)
        restored = get(self.storage, self.objects, tree, target)
        assert trees.snapshot(target) == content
        assert trees.times(target) == times or max(times.values()) > time.time_ns() - 10**9
        if in_place:
            self.stored = restored.stored
            again = send(self.storage, self.objects, self.directory, self.stored, f"again{time.time_ns()}")
            assert again.sent == 0 or set(again.tree.objects) != set(tree.objects)

    @invariant()
    def nothing_is_left_beside_the_directory(self) -> None:
        if hasattr(self, "root"):
            names = {path.name for path in self.root.iterdir()}
            assert names <= {"checkpoints", "objects", "aside", "elsewhere"}


TestSaves = Saves.TestCase
TestSaves.settings = settings(deadline=None, max_examples=60, stateful_step_count=25)
