"""From the store into a task's directory, on each kind of store."""

from __future__ import annotations

import io
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.checkpoints import new_directory
from tests.runtime.checkpoint.conftest import SAMPLES, run_tensorflow
from tests.runtime.storage.conftest import Place
from tony_provider.runtime.artifacts.checksum import SummedFile
from tony_provider.runtime.cancellation import Cancelled
from tony_provider.runtime.checkpoint import checkpoint_model
from tony_provider.runtime.checkpoint.catalog import Catalog
from tony_provider.runtime.checkpoint.checkpoint_model import (
    CheckpointFile,
    LocalCheckpoint,
    Manifest,
    StoredCheckpoint,
)
from tony_provider.runtime.checkpoint.errors import DamagedCheckpoint
from tony_provider.runtime.checkpoint.formats import find
from tony_provider.runtime.checkpoint.restore import Restored, choose_files, empty, restore
from tony_provider.runtime.checkpoint.snapshot import take
from tony_provider.runtime.codec import dump_json
from tony_provider.runtime.storage import LocalStorage, StorageError, StorageTimeout, uris


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A task's directory, with its checkpoint directory ``checkpoints``."""
    (tmp_path / "work" / "checkpoints").mkdir(parents=True)
    return tmp_path / "work"


def mirror(
    place: Place, directory: Path, checkpoint: LocalCheckpoint, *, rank: int = 0, into: str = ""
) -> StoredCheckpoint:
    """As an executor does it."""
    catalog = Catalog(place.storage, place.root)
    step = checkpoint.step or 0
    uri = into or new_directory(catalog, step)
    files = list(send(place, directory, checkpoint, uri, rank))
    return catalog.commit(uri, Manifest(step, step, checkpoint.format, checkpoint.entry, files))


def send(place: Place, directory: Path, checkpoint: LocalCheckpoint, uri: str, rank: int) -> list[CheckpointFile]:
    snapshot = take(directory, checkpoint, directory.parent / f"snapshot-{rank}")
    files = []
    for file in snapshot.files:
        with file.local.open("rb") as opened:
            source = SummedFile(opened)
            target = uris.join(checkpoint_model.rank_directory(uri, rank), checkpoint_model.stored_path(file.path))
            place.storage.write(target, source)  # type: ignore[arg-type]
        files.append(CheckpointFile(file.path, source.size, source.text, rank))
    snapshot.check()
    snapshot.remove()
    return files


def get(place: Place, stored: StoredCheckpoint, work: Path, rank: int = 0, reuse: tuple[Path, ...] = ()) -> Restored:
    return restore(place.storage, stored.point, work / "checkpoints", rank, cancelled=threading.Event(), reuse=reuse)


def content(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


@pytest.fixture
def source(tmp_path: Path) -> Path:
    target = tmp_path / "source" / "checkpoints"
    shutil.copytree(SAMPLES / "accelerate", target)
    return target


@pytest.fixture
def stored(place: Place, source: Path) -> StoredCheckpoint:
    for path in source.rglob("*"):
        os.utime(path, (1e9, 1e9))
    return mirror(place, source, find(source).complete[-1])


def test_the_directory_holds_exactly_the_checkpoint(
    place: Place, stored: StoredCheckpoint, source: Path, work: Path
) -> None:
    (work / "checkpoints" / "leftover").write_text("x")
    restored = get(place, stored, work)
    assert restored.stored.step == 2
    assert restored.entry == work / "checkpoints" / "checkpoint_2"
    assert (restored.copied, restored.reused) == (stored.manifest.size, 0)
    assert restored.stored.manifest == stored.manifest
    assert content(restored.entry) == content(source / "checkpoint_2")
    assert [path.name for path in (work / "checkpoints").iterdir()] == ["checkpoint_2"]
    assert [path.name for path in (work / "set-aside").iterdir()] == ["leftover"]
    assert sorted(path.name for path in work.iterdir()) == ["checkpoints", "set-aside"]
    found = find(work / "checkpoints")
    assert [(one.step, one.entry) for one in found.complete] == [(2, "checkpoint_2")]  # at once
    assert all(path.stat().st_mode & 0o077 == 0 for path in (work / "checkpoints").rglob("*"))


def test_what_is_here_already_is_not_copied(place: Place, stored: StoredCheckpoint, source: Path, work: Path) -> None:
    directory = work / "checkpoints"
    shutil.copytree(source / "checkpoint_2", directory / "checkpoint_2")
    damaged = directory / "checkpoint_2" / "optimizer.bin"
    data = damaged.read_bytes()
    damaged.write_bytes(data[:-1] + b"?")
    missing = directory / "checkpoint_2" / "scheduler.bin"
    size = missing.stat().st_size
    missing.unlink()
    restored = get(place, stored, work)
    assert restored.copied == len(data) + size
    assert restored.reused == stored.manifest.size - restored.copied
    assert content(restored.entry) == content(source / "checkpoint_2")
    assert get(place, stored, work).copied == 0


def test_a_kept_snapshot_serves_as_well(place: Place, stored: StoredCheckpoint, source: Path, work: Path) -> None:
    kept = take(source, find(source).complete[-1], work / "snapshot")
    restored = get(place, stored, work, reuse=(work / "none", kept.directory))
    assert (restored.copied, restored.reused) == (0, stored.manifest.size)
    kept.remove()
    assert content(restored.entry) == content(source / "checkpoint_2")


def test_only_the_last_of_what_was_set_aside_is_kept(place: Place, stored: StoredCheckpoint, work: Path) -> None:
    for name in ("first", "second"):
        (work / "checkpoints" / name).write_text(name)
        get(place, stored, work)
    assert not (work / "set-aside" / "first").exists()
    assert (work / "set-aside" / "second").exists()


def test_a_directory_that_is_missing(place: Place, stored: StoredCheckpoint, work: Path) -> None:
    (work / "checkpoints").rmdir()
    assert get(place, stored, work).entry.is_dir()


def test_links_in_the_directory_are_not_taken_for_files(
    place: Place, stored: StoredCheckpoint, source: Path, work: Path
) -> None:
    (work / "checkpoints" / "checkpoint_2").mkdir()
    name = "checkpoint_2/optimizer.bin"
    (work / "checkpoints" / name).symlink_to(source / name)
    restored = get(place, stored, work)
    assert restored.reused == 0
    assert not (work / "checkpoints" / name).is_symlink()


def test_names_that_hdfs_does_not_have(place: Place, tmp_path: Path, work: Path) -> None:
    names = ("a:b/100%.pt", "a:b/100%25.pt", "a:b/12:30:00 ü.pt", "a:b/x?y=1#z&[*].pt")
    source = tmp_path / "source" / "checkpoints"
    for number, name in enumerate(names):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(str(number))
    files = {name: (source / name).read_bytes() for name in names}
    stored = mirror(place, source, LocalCheckpoint(1, "pytorch", "a:b", names))
    assert Catalog(place.storage, place.root).newest() == stored
    assert content(get(place, stored, work).entry.parent) == files


# ---- damage ------------------------------------------------------------------------------------------------------


def rank_file(stored: StoredCheckpoint, path: str = "checkpoint_2/optimizer.bin") -> str:
    return uris.join(checkpoint_model.rank_directory(stored.uri, 0), path)


def flip(place: Place, stored: StoredCheckpoint) -> None:
    data = place.storage.open_read(rank_file(stored)).read()
    place.storage.write(rank_file(stored), data[:100] + bytes([data[100] ^ 1]) + data[101:], overwrite=True)


def cut(place: Place, stored: StoredCheckpoint) -> None:
    data = place.storage.open_read(rank_file(stored)).read()
    place.storage.write(rank_file(stored), data[:-1], overwrite=True)


def grow(place: Place, stored: StoredCheckpoint) -> None:
    data = place.storage.open_read(rank_file(stored)).read()
    place.storage.write(rank_file(stored), data + b"x", overwrite=True)


def lose(place: Place, stored: StoredCheckpoint) -> None:
    place.storage.remove(rank_file(stored))


def lose_all(place: Place, stored: StoredCheckpoint) -> None:
    place.storage.remove(stored.uri, recursive=True)


def uncommit(place: Place, stored: StoredCheckpoint) -> None:
    place.storage.remove(uris.join(stored.uri, checkpoint_model.MANIFEST_FILE))


def cut_manifest(place: Place, stored: StoredCheckpoint) -> None:
    place.storage.write(uris.join(stored.uri, checkpoint_model.MANIFEST_FILE), b"{", overwrite=True)


@pytest.mark.parametrize("damage", [flip, cut, grow, lose, lose_all, uncommit, cut_manifest])
def test_a_damaged_one_changes_nothing(
    place: Place, stored: StoredCheckpoint, work: Path, damage: Callable[[Place, StoredCheckpoint], None]
) -> None:
    damage(place, stored)
    (work / "checkpoints" / "mine").write_text("x")
    (work / "set-aside").mkdir()
    with pytest.raises(DamagedCheckpoint) as raised:
        get(place, stored, work)
    assert raised.value.uri == stored.uri
    assert content(work / "checkpoints") == {"mine": b"x"}
    assert sorted(path.name for path in work.iterdir()) == ["checkpoints", "set-aside"]


class Failing(LocalStorage):
    """A store that is lost in the middle of a file."""

    def open_read(self, uri: str, *, offset: int = 0, length: int | None = None) -> BinaryIO:
        if uri.endswith("optimizer.bin"):
            raise StorageTimeout(uri, "read", "it fell silent")
        return super().open_read(uri, offset=offset, length=length)


@attrs.define
class Garbling(LocalStorage):
    """A way from the store on which one file is changed so many times."""

    times: int
    way: Callable[[bytes], bytes]
    read: int = 0

    def open_read(self, uri: str, *, offset: int = 0, length: int | None = None) -> BinaryIO:
        source = super().open_read(uri, offset=offset, length=length)
        if not uri.endswith("optimizer.bin"):
            return source
        self.read += 1
        with source:
            data = source.read()
        return io.BytesIO(self.way(data) if self.read <= self.times else data)


def local(tmp_path: Path, storage: LocalStorage | None = None) -> Place:
    return Place("local", storage or LocalStorage(), f"file://{tmp_path}/store")


def committed(tmp_path: Path, source: Path) -> StoredCheckpoint:
    for path in source.rglob("*"):
        os.utime(path, (1e9, 1e9))
    return mirror(local(tmp_path), source, find(source).complete[-1])


def test_a_store_that_does_not_answer_is_no_damage(tmp_path: Path, source: Path, work: Path) -> None:
    stored = committed(tmp_path, source)
    (work / "checkpoints" / "mine").write_text("x")
    with pytest.raises(StorageError, match="fell silent"):
        get(local(tmp_path, Failing()), stored, work)
    assert content(work) == {"checkpoints/mine": b"x"}


WAYS: list[Callable[[bytes], bytes]] = [lambda data: data[:-1] + b"?", lambda data: data[:-1], lambda data: data + b"?"]


@pytest.mark.parametrize("way", WAYS)
def test_what_goes_wrong_on_its_way_is_read_again(
    tmp_path: Path, source: Path, work: Path, way: Callable[[bytes], bytes]
) -> None:
    stored = committed(tmp_path, source)
    storage = Garbling(1, way)
    restored = get(local(tmp_path, storage), stored, work)
    assert content(restored.entry) == content(source / "checkpoint_2")
    assert (restored.copied, storage.read) == (stored.manifest.size, 2)


def test_what_is_wrong_twice_is_damaged(tmp_path: Path, source: Path, work: Path) -> None:
    stored = committed(tmp_path, source)
    storage = Garbling(2, WAYS[0])
    with pytest.raises(DamagedCheckpoint, match=r"optimizer\.bin of rank 0 is not what was committed"):
        get(local(tmp_path, storage), stored, work)
    assert storage.read == 2
    assert content(work) == {}


def test_it_can_be_cancelled(tmp_path: Path, source: Path, work: Path) -> None:
    stored = committed(tmp_path, source)
    cancelled = threading.Event()
    cancelled.set()
    (work / "checkpoints" / "mine").write_text("x")
    with pytest.raises(Cancelled):
        restore(LocalStorage(), stored.point, work / "checkpoints", 0, cancelled=cancelled)
    assert content(work) == {"checkpoints/mine": b"x"}


def test_a_disk_that_cannot_be_written(tmp_path: Path, source: Path, work: Path) -> None:
    stored = committed(tmp_path, source)
    where = work / "checkpoints" / ("x" * 200) / ("y" * 200)
    with pytest.raises(OSError, match="No such file"):
        restore(LocalStorage(), stored.point, where, 0, cancelled=threading.Event())
    assert content(work) == {}


@pytest.mark.parametrize("path", ["../../outside", "/tmp/outside", "a/../../b"])
def test_a_manifest_cannot_lead_out_of_the_directory(tmp_path: Path, source: Path, work: Path, path: str) -> None:
    stored = committed(tmp_path, source)
    files = [attrs.evolve(stored.manifest.files[0], path=path)]
    evil = attrs.evolve(stored.manifest, files=files)
    storage = LocalStorage()
    storage.write(uris.join(stored.uri, checkpoint_model.MANIFEST_FILE), dump_json(evil), overwrite=True)
    with pytest.raises(DamagedCheckpoint, match="does not lie in a directory"):
        restore(storage, stored.point, work / "checkpoints", 0, cancelled=threading.Event())


def test_an_unknown_checksum(tmp_path: Path, source: Path, work: Path) -> None:
    stored = committed(tmp_path, source)
    files = [attrs.evolve(file, checksum="crc64:00") for file in stored.manifest.files]
    LocalStorage().write(
        uris.join(stored.uri, checkpoint_model.MANIFEST_FILE),
        dump_json(attrs.evolve(stored.manifest, files=files)),
        overwrite=True,
    )
    with pytest.raises(DamagedCheckpoint, match="not the one that was committed"):
        get(Place("local", LocalStorage(), ""), stored, work)
    with pytest.raises(DamagedCheckpoint, match="crc64"):
        restore(
            LocalStorage(),
            attrs.evolve(stored.point, checksum=""),
            work / "checkpoints",
            0,
            cancelled=threading.Event(),
        )


# ---- several ranks -----------------------------------------------------------------------------------------------


def test_each_rank_gets_its_own_and_what_the_others_have(place: Place, tmp_path: Path, work: Path) -> None:
    catalog = Catalog(place.storage, place.root)
    uri = new_directory(catalog, 40)
    files: list[CheckpointFile] = []
    for rank, names in ((0, (".metadata", "__0_0.distcp")), (1, ("__1_0.distcp",))):
        directory = tmp_path / f"rank-{rank}" / "checkpoints"
        for name in names:
            (directory / "step-40").mkdir(parents=True, exist_ok=True)
            shutil.copyfile(SAMPLES / "dcp" / "step-40" / name, directory / "step-40" / name)
        (directory / "step-40" / "state.json").write_text(f"of rank {rank}")
        for path in directory.rglob("*"):
            os.utime(path, (1e9, 1e9))
        (shard,) = find(directory, part=True).complete
        files += send(place, directory, shard, uri, rank)
    stored = catalog.commit(uri, Manifest(40, 40, "pytorch", "step-40", files))
    for rank, own in ((0, b"of rank 0"), (1, b"of rank 1"), (2, b"of rank 0")):
        restored = get(place, stored, work, rank)
        assert (restored.entry / "state.json").read_bytes() == own
        assert sorted(path.name for path in restored.entry.iterdir()) == [
            ".metadata",
            "__0_0.distcp",
            "__1_0.distcp",
            "state.json",
        ]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abc")), unique=True, min_size=1),
    st.integers(0, 4),
)
def test_which_files_a_rank_gets(places: list[tuple[int, str]], rank: int) -> None:
    files = [CheckpointFile(path, 1, "", owner) for owner, path in places]
    chosen = choose_files(Manifest(1, 1, "x", "a", files), rank)
    assert [file.path for file in chosen] == sorted({path for _, path in places})
    for file in chosen:
        owners = [owner for owner, path in places if path == file.path]
        assert file.rank == (rank if rank in owners else min(owners))


# ---- a fresh start -----------------------------------------------------------------------------------------------


def test_an_empty_directory_for_a_fresh_start(work: Path) -> None:
    for name in ("first", "second"):
        (work / "checkpoints" / name).write_text("x")
        empty(work / "checkpoints")
        assert list((work / "checkpoints").iterdir()) == []
        assert (work / "checkpoints").stat().st_mode & 0o777 == 0o700
        assert [path.name for path in (work / "set-aside").iterdir()] == [name]
    empty(work / "checkpoints", aside=work / "elsewhere")
    assert sorted(path.name for path in work.iterdir()) == ["checkpoints", "elsewhere", "set-aside"]


# ---- with the libraries ------------------------------------------------------------------------------------------


def test_what_was_restored_loads(tensorflow_samples: Path, tmp_path: Path) -> None:
    """Only one checkpoint is there, and TensorFlow, tf_keras and Keras go on from it."""
    names = ("manager", "sharded_bundle", "tf_keras_backup", "keras_backup", "keras_archives")
    for name in names:
        source = tmp_path / "source" / name / "checkpoints"
        shutil.copytree(tensorflow_samples / name, source)
        place = Place("local", LocalStorage(), f"file://{tmp_path}/store/{name}")
        stored = mirror(place, source, find(source).complete[-1])
        (tmp_path / "restored" / name).mkdir(parents=True)
        restore(place.storage, stored.point, tmp_path / "restored" / name, 0, cancelled=threading.Event())
    said = run_tensorflow("check", tmp_path / "restored").splitlines()
    assert said == [
        "manager ckpt-30 30",
        "sharded ['v0', 'v1']",
        "tf_keras_backup [3, 4]",
        "keras_backup [3, 4]",
        "archive 3",
    ]
