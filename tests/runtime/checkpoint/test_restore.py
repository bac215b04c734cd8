"""Restores of committed checkpoints into a task's directory; the single files are in tests/runtime/artifacts."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.checkpoints import checksum, new_directory
from tests.runtime.artifacts import trees
from tests.runtime.checkpoint.conftest import SAMPLES, run_tensorflow
from tests.runtime.storage.conftest import Place
from tony_provider.runtime.artifacts.manifest import Entry, Kind, StoredTree, scan
from tony_provider.runtime.artifacts.tree_restore import RestoredTree, empty_directory
from tony_provider.runtime.artifacts.upload import ArtifactUpload, StoredFiles, Throttle
from tony_provider.runtime.checkpoint import stored_checkpoint
from tony_provider.runtime.checkpoint.catalog import (
    Catalog,
    check_manifest,
    copy_checkpoint,
    restore_checkpoint,
)
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.checkpoint.stored_checkpoint import DamagedCheckpoint, Manifest, RankTree, StoredCheckpoint
from tony_provider.runtime.common.codec import dump_json
from tony_provider.runtime.common.concurrency import Cancelled
from tony_provider.runtime.storage import LocalStorage, Storage, StorageError, StorageTimeout, uris


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A task's directory, with its checkpoint directory ``checkpoints``."""
    (tmp_path / "work" / "checkpoints").mkdir(parents=True)
    return tmp_path / "work"


def commit(place: Place, directories: Mapping[int, Path], entry: str = "") -> StoredCheckpoint:
    """Commit the directory of each rank as an executor and the master do it."""
    catalog = Catalog(place.storage, place.root)
    ranks = []
    for rank, directory in directories.items():
        upload = ArtifactUpload(place.storage, catalog.objects_uri, f"u{rank}", Throttle(None))
        hold = directory.with_name(f"hold-{rank}")
        ranks.append(RankTree(rank, upload.run(directory, scan(directory), StoredFiles(), hold).tree))
    return catalog.commit(new_directory(catalog, 2), Manifest(2, 2, ranks, "pytorch", entry))


def get(place: Place, stored: StoredCheckpoint, work: Path, rank: int | None = 0) -> RestoredTree:
    checkpoint, tree = restored(place.storage, stored.point, work / "checkpoints", rank)
    assert checkpoint == stored
    return tree


def restored(
    storage: Storage, point: ResumePoint, directory: Path, rank: int | None = 0
) -> tuple[StoredCheckpoint, RestoredTree]:
    aside = directory.with_name("set-aside")
    return restore_checkpoint(storage, point, directory, rank, cancelled=threading.Event(), aside=aside)


def content(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


@pytest.fixture
def source(tmp_path: Path) -> Path:
    target = tmp_path / "source" / "checkpoints"
    shutil.copytree(SAMPLES / "accelerate", target)
    (target / "last").symlink_to("checkpoint_2")
    (target / "empty").mkdir()
    return target


@pytest.fixture
def stored(place: Place, source: Path) -> StoredCheckpoint:
    return commit(place, {0: source}, "checkpoint_2")


def test_the_directory_is_as_it_was_at_the_save(
    place: Place, stored: StoredCheckpoint, source: Path, work: Path
) -> None:
    (work / "checkpoints" / "leftover").write_text("x")
    restored = get(place, stored, work)
    assert (restored.copied, restored.reused) == (stored.manifest.size, 0)
    assert trees.snapshot(work / "checkpoints") == trees.snapshot(source)
    assert trees.times(work / "checkpoints") == trees.times(source)
    assert [path.name for path in (work / "set-aside").iterdir()] == ["leftover"]
    assert sorted(path.name for path in work.iterdir()) == ["checkpoints", "set-aside"]


def test_files_that_the_directory_has_are_not_copied(place: Place, stored: StoredCheckpoint, work: Path) -> None:
    get(place, stored, work)
    damaged = work / "checkpoints" / "checkpoint_2" / "optimizer.bin"
    data = damaged.read_bytes()
    damaged.write_bytes(data[:-1] + b"?")
    restored = get(place, stored, work)
    assert (restored.copied, restored.reused) == (len(data), stored.manifest.size - len(data))
    assert damaged.read_bytes() == data


def test_the_next_upload_sends_nothing_after_a_restore(place: Place, stored: StoredCheckpoint, work: Path) -> None:
    restored = get(place, stored, work)
    directory = work / "checkpoints"
    upload = ArtifactUpload(place.storage, place.uri("objects"), "u9", Throttle(None))
    uploaded = upload.run(directory, scan(directory), restored.stored, work / "hold")
    assert uploaded.sent == 0
    assert uploaded.tree.objects == stored.manifest.objects


def test_only_the_last_content_that_was_set_aside_is_kept(place: Place, stored: StoredCheckpoint, work: Path) -> None:
    for name in ("first", "second"):
        (work / "checkpoints" / name).write_text(name)
        get(place, stored, work)
    assert not (work / "set-aside" / "first").exists()
    assert (work / "set-aside" / "second").exists()


def test_the_former_content_goes_where_the_caller_wants_it(tmp_path: Path, source: Path, work: Path) -> None:
    place = local(tmp_path)
    (work / "checkpoints" / "mine").write_text("x")
    point = commit(place, {0: source}).point
    aside = work / "elsewhere"
    restore_checkpoint(place.storage, point, work / "checkpoints", 0, cancelled=threading.Event(), aside=aside)
    assert content(aside) == {"mine": b"x"}
    assert sorted(path.name for path in work.iterdir()) == ["checkpoints", "elsewhere"]


def test_a_missing_directory_is_made(place: Place, stored: StoredCheckpoint, source: Path, work: Path) -> None:
    (work / "checkpoints").rmdir()
    get(place, stored, work)
    assert trees.snapshot(work / "checkpoints") == trees.snapshot(source)
    assert [path.name for path in work.iterdir()] == ["checkpoints"]


def test_names_that_hdfs_does_not_have(place: Place, tmp_path: Path, work: Path) -> None:
    source = tmp_path / "source" / "checkpoints"
    for number, name in enumerate(("a:b/100%.pt", "a:b/100%25.pt", "a:b/12:30:00 ü.pt", "a:b/x?y=1#z&[*].pt")):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(str(number))
    stored = commit(place, {0: source}, "a:b")
    assert Catalog(place.storage, place.root).newest() == stored
    get(place, stored, work)
    assert content(work / "checkpoints") == content(source)


# ---- damage --------------------------------------------------------------------------------------------------------


def object_uri(place: Place, stored: StoredCheckpoint) -> str:
    (name,) = stored.manifest.objects
    return place.uri(f"objects/{name}")


def object_data(place: Place, stored: StoredCheckpoint) -> bytes:
    with place.storage.open_read(object_uri(place, stored)) as file:
        return file.read()


def write_manifest(place: Place, stored: StoredCheckpoint, data: bytes) -> None:
    place.storage.write(uris.join(stored.uri, stored_checkpoint.MANIFEST_FILE), data, overwrite=True)


def flip(place: Place, stored: StoredCheckpoint) -> None:
    data = object_data(place, stored)
    place.storage.write(object_uri(place, stored), data[:100] + bytes([data[100] ^ 1]) + data[101:], overwrite=True)


def cut(place: Place, stored: StoredCheckpoint) -> None:
    place.storage.write(object_uri(place, stored), object_data(place, stored)[:-1], overwrite=True)


def lose(place: Place, stored: StoredCheckpoint) -> None:
    place.storage.remove(object_uri(place, stored))


def lose_all(place: Place, stored: StoredCheckpoint) -> None:
    place.storage.remove(stored.uri, recursive=True)


def uncommit(place: Place, stored: StoredCheckpoint) -> None:
    place.storage.remove(uris.join(stored.uri, stored_checkpoint.MANIFEST_FILE))


def cut_manifest(place: Place, stored: StoredCheckpoint) -> None:
    write_manifest(place, stored, b"{")


def other_manifest(place: Place, stored: StoredCheckpoint) -> None:
    write_manifest(place, stored, dump_json(attrs.evolve(stored.manifest, generation=2)))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (flip, r"in the object u0-0 does not match its stored checksum"),
        (cut, r"in the object u0-0 does not match its stored checksum"),
        (lose, r"the object u0-0, which holds \S+, is missing"),
        (lose_all, "its manifest is missing, or the checkpoint was removed"),
        (uncommit, "its manifest is missing, or the checkpoint was removed"),
        (cut_manifest, "its manifest cannot be read"),
        (other_manifest, "is not the one that was committed"),
    ],
)
def test_a_damaged_checkpoint_changes_nothing(
    place: Place,
    stored: StoredCheckpoint,
    work: Path,
    damage: Callable[[Place, StoredCheckpoint], None],
    reason: str,
) -> None:
    damage(place, stored)
    (work / "checkpoints" / "mine").write_text("x")
    (work / "set-aside").mkdir()
    with pytest.raises(DamagedCheckpoint, match=reason) as raised:
        get(place, stored, work)
    assert raised.value.uri == stored.uri
    assert content(work / "checkpoints") == {"mine": b"x"}
    assert sorted(path.name for path in work.iterdir()) == ["checkpoints", "set-aside"]


def test_a_resume_point_without_a_checksum_takes_any_manifest(tmp_path: Path, source: Path, work: Path) -> None:
    place = local(tmp_path)
    stored = commit(place, {0: source})
    other_manifest(place, stored)
    point = attrs.evolve(stored.point, checksum="")
    checkpoint, _ = restored(place.storage, point, work / "checkpoints")
    assert checkpoint.manifest.generation == 2
    assert trees.snapshot(work / "checkpoints") == trees.snapshot(source)


class Failing(LocalStorage):
    """A store whose connection is lost when an object is read."""

    def open_read(self, uri: str, *, offset: int = 0, length: int | None = None) -> BinaryIO:
        if "/objects/" in uri:
            raise StorageTimeout(uri, "read", "it fell silent")
        return super().open_read(uri, offset=offset, length=length)


def local(tmp_path: Path, storage: LocalStorage | None = None) -> Place:
    return Place("local", storage or LocalStorage(), f"file://{tmp_path}/store")


def test_a_store_that_does_not_answer_is_no_damage(tmp_path: Path, source: Path, work: Path) -> None:
    stored = commit(local(tmp_path), {0: source})
    (work / "checkpoints" / "mine").write_text("x")
    with pytest.raises(StorageError, match="fell silent"):
        get(local(tmp_path, Failing()), stored, work)
    assert content(work) == {"checkpoints/mine": b"x"}


def test_a_restore_can_be_cancelled(tmp_path: Path, source: Path, work: Path) -> None:
    stored = commit(local(tmp_path), {0: source})
    cancelled = threading.Event()
    cancelled.set()
    (work / "checkpoints" / "mine").write_text("x")
    aside = work / "set-aside"
    with pytest.raises(Cancelled):
        restore_checkpoint(LocalStorage(), stored.point, work / "checkpoints", 0, cancelled=cancelled, aside=aside)
    assert content(work) == {"checkpoints/mine": b"x"}


def test_a_disk_that_cannot_be_written_is_no_damage(tmp_path: Path, source: Path, work: Path) -> None:
    stored = commit(local(tmp_path), {0: source})
    where = work / "checkpoints" / ("x" * 200) / ("y" * 200)
    with pytest.raises(OSError, match="No such file"):
        restored(LocalStorage(), stored.point, where)
    assert content(work) == {}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda entry: attrs.evolve(entry, path="../../outside"), "is not a path below the directory"),
        (lambda entry: attrs.evolve(entry, path="/tmp/outside"), "is not a path below the directory"),
        (lambda entry: attrs.evolve(entry, path="a/../../b"), "is not a path below the directory"),
        (lambda entry: attrs.evolve(entry, checksum="crc64:00"), "crc64"),
        (lambda entry: attrs.evolve(entry, object="../u0-0"), "does not fit"),
    ],
)
def test_a_manifest_cannot_lead_out_of_the_directory(
    tmp_path: Path, source: Path, work: Path, change: Callable[[Entry], Entry], reason: str
) -> None:
    place = local(tmp_path)
    stored = commit(place, {0: source})
    (rank,) = stored.manifest.trees
    first = next(entry for entry in rank.tree.entries if entry.kind is Kind.FILE)
    entries = [change(entry) if entry is first else entry for entry in rank.tree.entries]
    evil = attrs.evolve(stored.manifest, trees=[RankTree(0, StoredTree(entries, rank.tree.objects))])
    write_manifest(place, stored, dump_json(evil))
    point = attrs.evolve(stored.point, checksum="")
    with pytest.raises(DamagedCheckpoint, match=reason):
        restored(place.storage, point, work / "checkpoints")
    assert content(work) == {}


# ---- several ranks -------------------------------------------------------------------------------------------------


def test_each_rank_gets_its_own_files_and_those_of_the_others(place: Place, tmp_path: Path, work: Path) -> None:
    directories = {}
    for rank, names in ((0, (".metadata", "__0_0.distcp")), (1, ("__1_0.distcp",))):
        directory = directories[rank] = tmp_path / f"rank-{rank}" / "checkpoints"
        (directory / "step-40").mkdir(parents=True)
        for name in names:
            shutil.copyfile(SAMPLES / "dcp" / "step-40" / name, directory / "step-40" / name)
        (directory / "step-40" / "state.json").write_text(f"of rank {rank}")
    stored = commit(place, directories, "step-40")
    for wanted, own in ((0, b"of rank 0"), (1, b"of rank 1"), (2, b"of rank 0"), (None, b"of rank 0")):
        get(place, stored, work, wanted)
        found = content(work / "checkpoints" / "step-40")
        assert found.pop("state.json") == own
        assert found == content(SAMPLES / "dcp" / "step-40")


def file(path: str, data: bytes = b"x", *, at: int = 100, stored: str = "o") -> Entry:
    """A small file in a separate object. ``at``: the modification time of the file."""
    return Entry(path, Kind.FILE, 0o600, at, len(data), checksum(data), f"{stored}-{path.encode().hex()}")


def directory(path: str, *, at: int = 100) -> Entry:
    return Entry(path, Kind.DIRECTORY, 0o700, at)


def manifest(*trees: list[Entry]) -> Manifest:
    """The manifest of several ranks, from the entries of each."""
    ranks = []
    for rank, entries in enumerate(trees):
        objects = {entry.object: entry.size for entry in entries if entry.object}
        ranks.append(RankTree(rank, StoredTree(sorted(entries, key=lambda entry: entry.path), objects)))
    return Manifest(1, 1, ranks)


def test_a_file_in_the_way_of_a_directory_of_another_rank_hides_it() -> None:
    own = [file("step", stored="own")]
    other = [directory("step"), directory("step/deep"), file("step/deep/a"), file("step/b"), file("c")]
    found = manifest(own, other).tree_of(0)
    assert [entry.path for entry in found.entries] == ["c", "step"]
    assert set(found.objects) == {own[0].object, file("c").object}
    assert [entry.path for entry in manifest(own, other).tree_of(1).entries] == [
        "c",
        "step",
        "step/b",
        "step/deep",
        "step/deep/a",
    ]


def test_a_link_in_the_way_of_a_directory_of_another_rank_hides_it() -> None:
    own = [directory("real"), Entry("step", Kind.LINK, 0o777, 100, target="real")]
    found = manifest(own, [directory("step"), file("step/a")]).tree_of(0)
    assert found.entries == own


def test_files_of_other_ranks_are_never_newer_than_own_files_in_the_same_entry() -> None:
    own = [directory("step"), file("step/a", at=50), file("step/b", at=60), file("own", at=500)]
    other = [directory("step"), file("step/c", at=70), file("step/d", at=40), file("other", at=900)]
    found = {entry.path: entry.mtime_ns for entry in manifest(own, other).tree_of(0).entries}
    assert found == {"step": 100, "step/a": 50, "step/b": 60, "own": 500, "step/c": 50, "step/d": 40, "other": 900}


def test_the_order_of_entries_in_a_manifest_does_not_matter_or_is_rejected() -> None:
    tree = StoredTree([file("step/a"), directory("step")], {file("step/a").object: 1})
    try:
        check_manifest("file:///x/save-000001-00000000", Manifest(1, 1, [RankTree(0, tree)]))
    except DamagedCheckpoint:
        return
    assert [entry.path for entry in Manifest(1, 1, [RankTree(0, tree)]).tree_of(0).entries] == ["step", "step/a"]


def test_own_paths_are_those_that_the_rank_has_written() -> None:
    found = manifest([directory("step"), file("step/a")], [file("b")])
    assert found.own_paths(0) == {"step", "step/a"}
    assert found.own_paths(1) == {"b"}
    assert found.own_paths(2) == frozenset()


@st.composite
def entries_of_one_rank(draw: st.DrawFn, rank: int) -> list[Entry]:
    found: dict[str, Entry] = {}
    for path in sorted(draw(st.sets(st.sampled_from(["a", "b", "a/a", "a/b", "b/a", "a/a/a", "a-b"]), max_size=6))):
        parent = path.rpartition("/")[0]
        if parent and (parent not in found or found[parent].kind is not Kind.DIRECTORY):
            continue
        kind, at = draw(st.sampled_from(list(Kind))), draw(st.integers(0, 9))
        if kind is Kind.FILE:
            found[path] = file(path, at=at, stored=f"o{rank}")
        elif kind is Kind.DIRECTORY:
            found[path] = directory(path, at=at)
        else:
            found[path] = Entry(path, kind, 0o777, at, target="a")
    return list(found.values())


@given(
    all_entries=st.tuples(*(entries_of_one_rank(rank) for rank in range(3))),
    wanted=st.none() | st.integers(0, 3),
)
def test_a_rank_restores_its_own_tree_and_every_free_path_of_the_others(
    all_entries: tuple[list[Entry], ...], wanted: int | None
) -> None:
    found = manifest(*all_entries).tree_of(wanted)
    found.check()
    order = sorted(range(3), key=lambda rank: (rank != wanted, rank))
    entries = {entry.path: entry for entry in found.entries}
    assert list(entries) == sorted(entries)
    assert [entry for entry in found.entries if entry.path in {own.path for own in all_entries[order[0]]}] == sorted(
        all_entries[order[0]], key=lambda entry: entry.path
    )
    for path in {entry.path for each in all_entries for entry in each}:
        above = [path[:end] for end in range(len(path)) if path[end] == "/"]
        has_place = all(place in entries and entries[place].kind is Kind.DIRECTORY for place in above)
        assert (path in entries) == has_place
        if has_place:
            first = next(entry for rank in order for entry in all_entries[rank] if entry.path == path)
            assert attrs.evolve(entries[path], mtime_ns=first.mtime_ns) == first
            assert entries[path].mtime_ns <= first.mtime_ns
    for path, entry in entries.items():
        top = path.partition("/")[0]
        own = [each.mtime_ns for each in all_entries[order[0]] if each.path.partition("/")[0] == top and each.object]
        if own and path not in {each.path for each in all_entries[order[0]]}:
            assert entry.mtime_ns <= min(own)
    assert set(found.objects) == {entry.object for entry in found.entries} - {""}


def test_saves_are_changed_in_the_order_of_their_times(place: Place, tmp_path: Path) -> None:
    """accelerate's example chooses the newest save by ``os.path.getctime``, which no program can set."""
    source = tmp_path / "source"
    names = [*(f"step_{number}" for number in (2, 12, 4, 10, 6, 8)), "last.pt", "a.pt"]
    source.mkdir()
    for when, name in enumerate(names, 1):
        path = source / name
        if path.suffix:
            path.write_text(name)
        else:
            path.mkdir()
            (path / "state").write_text(name)
            os.utime(path / "state", (when, when))
        os.utime(path, (when, when))
    stored = commit(place, {0: source})
    work = tmp_path / "work"
    work.mkdir()
    restored(place.storage, stored.point, work / "checkpoints")
    assert [path.name for path in sorted((work / "checkpoints").iterdir(), key=os.path.getctime)] == names
    assert len({os.lstat(path).st_ctime_ns for path in (work / "checkpoints").iterdir()}) == len(names)


# ---- a fresh start -------------------------------------------------------------------------------------------------


def test_an_empty_directory_for_a_fresh_start(work: Path) -> None:
    for name in ("first", "second"):
        (work / "checkpoints" / name).write_text("x")
        empty_directory(work / "checkpoints", aside=work / "set-aside")
        assert list((work / "checkpoints").iterdir()) == []
        assert (work / "checkpoints").stat().st_mode & 0o777 == 0o700
        assert [path.name for path in (work / "set-aside").iterdir()] == [name]
    assert sorted(path.name for path in work.iterdir()) == ["checkpoints", "set-aside"]


def test_a_copy_of_a_checkpoint_leaves_the_directories_beside_it(place: Place, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "model").write_text("trained")
    stored = commit(place, {0: source})
    beside = tmp_path / "copy.aside"
    beside.mkdir()
    (beside / "notes").write_text("mine")
    before = set(tmp_path.iterdir())
    copy_checkpoint(place.storage, stored.uri, tmp_path / "copy", 0, threading.Event())
    assert (tmp_path / "copy" / "model").read_text() == "trained"
    assert (beside / "notes").read_text() == "mine"
    assert set(tmp_path.iterdir()) - before == {tmp_path / "copy"}


# ---- with the libraries --------------------------------------------------------------------------------------------


def test_tensorflow_and_keras_load_a_restored_directory(tensorflow_samples: Path, tmp_path: Path) -> None:
    for name in ("manager", "sharded_bundle", "tf_keras_backup", "keras_backup", "keras_archives"):
        source = tmp_path / "source" / name
        shutil.copytree(tensorflow_samples / name, source)
        place = Place("local", LocalStorage(), f"file://{tmp_path}/store/{name}")
        stored = commit(place, {0: source})
        shutil.rmtree(source)
        (tmp_path / "restored").mkdir(exist_ok=True)
        restored(place.storage, stored.point, tmp_path / "restored" / name)
        shutil.rmtree(tmp_path / "store" / name)
    said = run_tensorflow("check", tmp_path / "restored").splitlines()
    assert said == [
        "manager ckpt-30 30",
        "sharded ['v0', 'v1']",
        "tf_keras_backup [3, 4]",
        "keras_backup [3, 4]",
        "archive 3",
    ]
