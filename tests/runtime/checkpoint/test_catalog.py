"""Committed checkpoints on each kind of store."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.checkpoints import new_directory
from tests.runtime.storage.conftest import Place
from tony_provider.runtime.artifacts import checksum
from tony_provider.runtime.checkpoint import checkpoint_model
from tony_provider.runtime.checkpoint.catalog import REASON_FILE, Catalog
from tony_provider.runtime.checkpoint.checkpoint_model import CheckpointFile, Manifest, StoredCheckpoint
from tony_provider.runtime.checkpoint.errors import DamagedCheckpoint
from tony_provider.runtime.codec import dump_json
from tony_provider.runtime.spec.model import AfterSuccess
from tony_provider.runtime.storage import LocalStorage, StorageError, StorageExists, StorageNotFound, uris

FILES = {0: {"ckpt.index": b"index", "data/a": b"a" * 1000}, 1: {"data/b": b"bb"}}


@pytest.fixture
def catalog(place: Place) -> Catalog:
    return Catalog(place.storage, place.root)


def manifest_of(number: int, /, **changes: object) -> Manifest:
    listed = []
    for rank, ones in FILES.items():
        for path, data in ones.items():
            summed = checksum.Checksum()
            summed.update(data)
            listed.append(CheckpointFile(path, len(data), summed.text, rank))
    values = {
        "save": number,
        "step": number,
        "format": "tensorflow",
        "entry": "ckpt",
        "files": listed,
        "committed_ms": 1000,
        **changes,
    }
    return Manifest(**values)  # type: ignore[arg-type]


def upload(place: Place, uri: str) -> None:
    for rank, ones in FILES.items():
        for path, data in ones.items():
            place.storage.write(uris.join(checkpoint_model.rank_directory(uri, rank), path), data)


def commit(place: Place, catalog: Catalog, step: int, **changes: object) -> StoredCheckpoint:
    uri = new_directory(catalog, step)
    upload(place, uri)
    return catalog.commit(uri, manifest_of(step, **changes))


def names(place: Place, directory: str) -> list[str]:
    try:
        return [status.name for status in place.storage.list(place.uri(directory))]
    except StorageNotFound:
        return []


def test_a_new_chain_has_none(catalog: Catalog) -> None:
    assert catalog.newest() is None
    assert catalog.list() == []
    assert catalog.prune(1) == []
    assert catalog.remove_unfinished() == []
    catalog.finish(AfterSuccess.REMOVE)


def test_the_newest_is_the_last_save_whatever_its_step(place: Place, catalog: Catalog) -> None:
    for save, step in ((1, 30), (2, None), (3, 10)):
        uri = uris.join(catalog.uri, checkpoint_model.directory_name(save, step))
        upload(place, uri)
        catalog.commit(uri, attrs.evolve(manifest_of(save), step=step))
        newest = Catalog(place.storage, place.root).newest()
        assert newest is not None
        assert (newest.save, newest.step) == (save, step)


def test_the_newest_is_the_highest_step(place: Place, catalog: Catalog) -> None:
    stored = [commit(place, catalog, step) for step in (20, 9, 100)]
    assert catalog.newest() == stored[2]
    assert [one.step for one in catalog.list()] == [9, 20, 100]
    other = Catalog(place.storage, place.root)
    assert other.newest() == stored[2]
    assert other.list() == catalog.list()
    assert stored[2].manifest.size == 1007


def test_of_one_step_the_later_one(place: Place, catalog: Catalog) -> None:
    commit(place, catalog, 5, committed_ms=1000)
    later = commit(place, catalog, 5, committed_ms=3000)
    commit(place, catalog, 5, committed_ms=2000)
    assert catalog.newest() == later


def test_what_is_not_committed_does_not_count(place: Place, catalog: Catalog) -> None:
    stored = commit(place, catalog, 5)
    upload(place, new_directory(catalog, 6))
    empty = new_directory(catalog, 7)
    place.storage.make_directories(empty)
    place.storage.make_directories(uris.join(catalog.uri, "something"))
    assert catalog.newest() == stored
    assert catalog.list() == [stored]
    with pytest.raises(StorageNotFound):
        catalog.load(empty)


def test_a_commit_may_come_twice_but_not_differently(place: Place, catalog: Catalog) -> None:
    stored = commit(place, catalog, 5)
    assert catalog.commit(stored.uri, stored.manifest) == stored
    with pytest.raises(StorageExists):
        catalog.commit(stored.uri, manifest_of(5, generation=2))
    assert Catalog(place.storage, place.root).newest() == stored


def test_what_nobody_could_read_again_is_not_committed(
    place: Place, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: it was committed, and set aside as damaged by whoever was to go on from it."""
    monkeypatch.setattr("tony_provider.runtime.checkpoint.catalog.MANIFEST", 300)
    with pytest.raises(DamagedCheckpoint, match=r"3 files.*fewer and larger"):
        commit(place, catalog, 1)
    assert catalog.newest() is None


def test_of_two_commits_at_once_one_wins(place: Place, catalog: Catalog) -> None:
    uri = new_directory(catalog, 5)
    upload(place, uri)

    def try_it(generation: int) -> StoredCheckpoint | StorageExists:
        try:
            return Catalog(place.storage, place.root).commit(uri, manifest_of(5, generation=generation))
        except StorageExists as error:
            return error

    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(try_it, range(4)))
    won = [one for one in done if isinstance(one, StoredCheckpoint)]
    assert won == [catalog.newest()]


@pytest.mark.parametrize(
    "changes",
    [
        {"files": []},
        {"step": 6},
        {"entry": "../x"},
        {"entry": ""},
        {"files": [CheckpointFile("../../x", 1, "crc32:0")]},
        {"files": [CheckpointFile("/x", 1, "crc32:0")]},
        {"files": [CheckpointFile(".", 1, "crc32:0")]},
        {"files": [CheckpointFile("ckpt.index", 5, "crc32:0"), CheckpointFile("ckpt.index", 5, "crc32:1")]},
        {"files": [CheckpointFile("ckpt.index", 4, "crc32:0")]},
        {"files": [CheckpointFile("missing", 4, "crc32:0")]},
        {"files": [CheckpointFile("ckpt.index", 5, "crc32:0", rank=2)]},
        {"files": [CheckpointFile("data", 0, "crc32:0")]},
        {"saved_ms": -1},
        {"committed_ms": 1 << 60},
    ],
)
def test_what_cannot_be_a_checkpoint_is_not_committed(tmp_path: Path, changes: dict[str, object]) -> None:
    place = Place("local", LocalStorage(), f"file://{tmp_path}")
    catalog = Catalog(place.storage, place.root)
    uri = new_directory(catalog, 5)
    upload(place, uri)
    with pytest.raises(DamagedCheckpoint):
        catalog.commit(uri, manifest_of(5, **changes))
    assert catalog.newest() is None


def test_a_name_whose_numbers_nothing_holds_is_no_checkpoints(place: Place, catalog: Catalog) -> None:
    """The next save counts on from it, and messages carry it."""
    good = commit(place, catalog, 5)
    for save, step in ((10**60, None), ((1 << 63) - 1, None), (7, 10**60)):
        uri = f"{catalog.uri}/{checkpoint_model.directory_name(save, step)}"
        upload(place, uri)
        said = dump_json(manifest_of(9, save=save, step=step))
        place.storage.write(uris.join(uri, checkpoint_model.MANIFEST_FILE), said)
    assert catalog.newest() == good
    assert len(names(place, "broken")) == 3


# ---- damage ------------------------------------------------------------------------------------------------------


def lose(place: Place, uri: str) -> None:
    place.storage.remove(uris.join(uri, "rank-0/ckpt.index"))


def cut(place: Place, uri: str) -> None:
    place.storage.write(uris.join(uri, "rank-0/data/a"), b"a" * 999, overwrite=True)


def lose_rank(place: Place, uri: str) -> None:
    place.storage.remove(uris.join(uri, "rank-1"), recursive=True)


def cut_manifest(place: Place, uri: str) -> None:
    place.storage.write(uris.join(uri, checkpoint_model.MANIFEST_FILE), dump_json(manifest_of(9))[:-1], overwrite=True)


def other_manifest(place: Place, uri: str) -> None:
    place.storage.write(uris.join(uri, checkpoint_model.MANIFEST_FILE), dump_json(manifest_of(8)), overwrite=True)


def no_text_manifest(place: Place, uri: str) -> None:
    place.storage.write(uris.join(uri, checkpoint_model.MANIFEST_FILE), b"\xff", overwrite=True)


def endless_time(place: Place, uri: str) -> None:
    """What may be written in a chain by other jobs of the same user: a master that said this time was at its end."""
    said = dump_json(manifest_of(9, saved_ms=10**30))
    place.storage.write(uris.join(uri, checkpoint_model.MANIFEST_FILE), said, overwrite=True)


def early_commit(place: Place, uri: str) -> None:
    said = dump_json(manifest_of(9, committed_ms=-(10**300)))
    place.storage.write(uris.join(uri, checkpoint_model.MANIFEST_FILE), said, overwrite=True)


DAMAGES = [lose, cut, lose_rank, cut_manifest, other_manifest, no_text_manifest, endless_time, early_commit]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_broken_one_is_set_aside_and_the_next_taken(
    place: Place, catalog: Catalog, damage: Callable[[Place, str], None]
) -> None:
    commit(place, catalog, 3)
    good = commit(place, catalog, 5)
    bad = commit(place, catalog, 9)
    damage(place, bad.uri)
    fresh = Catalog(place.storage, place.root)
    assert fresh.newest() == good
    assert names(place, "broken") == [uris.name(bad.uri)]
    kept = names(place, f"broken/{uris.name(bad.uri)}")
    assert REASON_FILE in kept
    assert "rank-0" in kept  # nothing is deleted
    reason = place.storage.open_read(place.uri(f"broken/{uris.name(bad.uri)}/{REASON_FILE}")).read()
    assert json.loads(reason)["reason"]
    assert [one.step for one in fresh.list()] == [3, 5]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_chain_that_is_only_read_stays_as_it_is(
    place: Place, catalog: Catalog, damage: Callable[[Place, str], None]
) -> None:
    good, bad = commit(place, catalog, 5), commit(place, catalog, 9)
    damage(place, bad.uri)
    assert Catalog(place.storage, place.root, read_only=True).newest() == good
    assert names(place, "broken") == []
    assert uris.name(bad.uri) in names(place, "checkpoints")


def test_a_newer_runtime_may_say_more_in_a_manifest(place: Place, catalog: Catalog) -> None:
    uri = new_directory(catalog, 5)
    upload(place, uri)
    plain = {**json.loads(dump_json(manifest_of(5))), "more": [1]}
    place.storage.write(uris.join(uri, checkpoint_model.MANIFEST_FILE), json.dumps(plain).encode())
    newest = catalog.newest()
    assert newest is not None
    assert (newest.uri, newest.manifest) == (uri, manifest_of(5))


def test_setting_aside_again_and_again(place: Place, catalog: Catalog) -> None:
    uri = uris.join(catalog.uri, checkpoint_model.directory_name(5, 5))
    for number in range(3):
        upload(place, uri)
        target = catalog.set_aside(uri, f"reason {number}")
        assert target is not None
    assert len(names(place, "broken")) == 3
    assert catalog.set_aside(uri, "gone") is None


def test_one_that_was_set_aside_is_forgotten(place: Place, catalog: Catalog) -> None:
    stored = commit(place, catalog, 5)
    assert catalog.set_aside(stored, "tests") is not None
    assert catalog.newest() is None
    assert catalog.list() == []


def test_what_the_store_says_is_raised(place: Place, catalog: Catalog) -> None:
    stored = commit(place, catalog, 5)
    file = uris.join(stored.uri, checkpoint_model.MANIFEST_FILE)
    place.storage.remove(file)
    place.storage.make_directories(file)
    with pytest.raises(StorageError):
        Catalog(place.storage, place.root).newest()
    assert names(place, "broken") == []  # nothing was found out about it


# ---- retention ---------------------------------------------------------------------------------------------------


def test_only_some_are_kept(place: Place, catalog: Catalog) -> None:
    stored = {step: commit(place, catalog, step) for step in (10, 20, 25, 30, 35, 40)}
    removed = catalog.prune(2, 20, keep=[stored[25].uri])
    assert removed == [stored[10].uri, stored[30].uri]
    assert [one.step for one in catalog.list()] == [20, 25, 35, 40]
    assert len(names(place, "checkpoints")) == 4
    assert catalog.prune(10) == []


@settings(deadline=None, max_examples=30)
@given(
    steps=st.sets(st.integers(0, 60), max_size=8),
    keep_last=st.integers(0, 9),
    keep_every=st.none() | st.integers(1, 20),
)
def test_which_are_kept(
    tmp_path_factory: pytest.TempPathFactory, steps: set[int], keep_last: int, keep_every: int | None
) -> None:
    root = f"file://{tmp_path_factory.mktemp('chain')}"
    place = Place("local", LocalStorage(), root)
    catalog = Catalog(place.storage, root)
    for step in steps:
        commit(place, catalog, step)
    catalog.prune(keep_last, keep_every)
    newest = sorted(steps, reverse=True)[:keep_last]
    expected = {step for step in steps if step in newest or (keep_every and step % keep_every == 0)}
    assert [one.step for one in catalog.list()] == sorted(expected)


@pytest.mark.parametrize(
    ("after", "left"),
    [(AfterSuccess.KEEP_LAST, [30]), (AfterSuccess.KEEP_ALL, [10, 20, 30]), (AfterSuccess.REMOVE, [])],
)
def test_what_stays_after_success(place: Place, catalog: Catalog, after: AfterSuccess, left: list[int]) -> None:
    for step in (10, 20, 30):
        commit(place, catalog, step)
    upload(place, new_directory(catalog, 40))
    catalog.finish(after)
    assert [one.step for one in catalog.list()] == left
    assert len(names(place, "checkpoints")) == len(left)


def test_leftovers_are_removed(place: Place, catalog: Catalog) -> None:
    stored = commit(place, catalog, 5)
    left = new_directory(catalog, 6)
    upload(place, left)
    place.write("checkpoints/a file", b"")
    assert catalog.remove_unfinished() == [left]
    assert catalog.newest() == stored
    assert names(place, "checkpoints") == ["a file", uris.name(stored.uri)]
