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

from tests.checkpoints import new_directory, upload
from tests.runtime.storage.conftest import Place
from tony_provider.runtime.artifacts.manifest import StoredTree
from tony_provider.runtime.checkpoint import stored_checkpoint
from tony_provider.runtime.checkpoint.catalog import REASON_FILE, Catalog, ChosenCheckpoint, read_stored
from tony_provider.runtime.checkpoint.stored_checkpoint import (
    CheckpointTooLarge,
    DamagedCheckpoint,
    FailedResume,
    Manifest,
    RankTree,
    StoredCheckpoint,
)
from tony_provider.runtime.common.codec import dump_json
from tony_provider.runtime.jobspec.model import AfterSuccess
from tony_provider.runtime.storage import (
    LocalStorage,
    StorageError,
    StorageExists,
    StorageNotFound,
    StorageTimeout,
    uris,
)
from tony_provider.runtime.storage.base import temporary_name

FILES = {0: {"ckpt.index": b"index", "data/a": b"a" * 1000}, 1: {"data/b": b"bb"}}


@pytest.fixture
def catalog(place: Place) -> Catalog:
    return Catalog(place.storage, place.root)


def local_place(directory: Path) -> Place:
    return Place("local", LocalStorage(), f"file://{directory}")


def trees_of(place: Place) -> list[RankTree]:
    """Upload the files of each rank into a separate object."""
    return [RankTree(rank, upload(place.storage, place.root, files)) for rank, files in FILES.items()]


def manifest_of(number: int, trees: list[RankTree], /, **changes: object) -> Manifest:
    values = {
        "save": number,
        "step": number,
        "trees": trees,
        "format": "tensorflow",
        "entry": "ckpt",
        "committed_ms": 1000,
        **changes,
    }
    return Manifest(**values)  # type: ignore[arg-type]


def commit(place: Place, catalog: Catalog, number: int, **changes: object) -> StoredCheckpoint:
    """Commit a checkpoint. The number is its save number and, by default, its step."""
    return catalog.commit(new_directory(catalog, number), manifest_of(number, trees_of(place), **changes))


def names(place: Place, directory: str) -> list[str]:
    try:
        return place.names(directory)
    except StorageNotFound:
        return []


def objects_of(*checkpoints: StoredCheckpoint) -> list[str]:
    return sorted({name for each in checkpoints for name in each.manifest.objects})


def test_a_new_chain_has_none(catalog: Catalog) -> None:
    assert catalog.newest() is None
    assert catalog.list() == []
    assert catalog.prune(1) == []
    assert catalog.remove_unfinished() == []
    catalog.finish(AfterSuccess.REMOVE)


def test_the_newest_is_the_last_save_whatever_its_step(place: Place, catalog: Catalog) -> None:
    for save, step in ((1, 30), (2, None), (3, 10)):
        commit(place, catalog, save, step=step)
        newest = Catalog(place.storage, place.root).newest()
        assert newest is not None
        assert (newest.save, newest.step) == (save, step)


def test_the_newest_has_the_highest_save_number(place: Place, catalog: Catalog) -> None:
    stored = [commit(place, catalog, step) for step in (20, 9, 100)]
    assert catalog.newest() == stored[2]
    assert [each.step for each in catalog.list()] == [9, 20, 100]
    other = Catalog(place.storage, place.root)
    assert other.newest() == stored[2]
    assert other.list() == catalog.list()
    assert stored[2].manifest.size == 1007
    assert sorted(stored[2].manifest.objects.values()) == [2, 1005]


def test_two_checkpoints_of_one_save_are_ordered_by_the_time_of_the_commit(place: Place, catalog: Catalog) -> None:
    commit(place, catalog, 5, committed_ms=1000)
    later = commit(place, catalog, 5, committed_ms=3000)
    commit(place, catalog, 5, committed_ms=2000)
    assert catalog.newest() == later


def test_an_uncommitted_checkpoint_does_not_count(place: Place, catalog: Catalog) -> None:
    stored = commit(place, catalog, 5)
    trees_of(place)  # of an upload that never ended
    empty = new_directory(catalog, 7)
    place.storage.make_directories(empty)
    place.storage.make_directories(uris.join(catalog.uri, "something"))
    place.write(f"checkpoints/{stored_checkpoint.directory_name(8)}", b"a file with the name of a checkpoint")
    assert catalog.newest() == stored
    assert catalog.list() == [stored]
    with pytest.raises(StorageNotFound):
        catalog.load(empty)


def test_a_commit_may_be_repeated_only_with_the_same_manifest(place: Place, catalog: Catalog) -> None:
    stored = commit(place, catalog, 5)
    assert catalog.commit(stored.uri, stored.manifest) == stored
    with pytest.raises(StorageExists):
        catalog.commit(stored.uri, attrs.evolve(stored.manifest, generation=2))
    assert Catalog(place.storage, place.root).newest() == stored
    assert read_stored(place.storage, stored.uri) == stored


def test_only_one_of_several_concurrent_commits_wins(place: Place, catalog: Catalog) -> None:
    uri, trees = new_directory(catalog, 5), trees_of(place)

    def attempt(generation: int) -> StoredCheckpoint | StorageExists:
        try:
            return Catalog(place.storage, place.root).commit(uri, manifest_of(5, trees, generation=generation))
        except StorageExists as error:
            return error

    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(attempt, range(4)))
    assert [each for each in done if isinstance(each, StoredCheckpoint)] == [catalog.newest()]


def test_a_manifest_that_is_too_large_to_be_read_again_is_not_committed(
    place: Place, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tony_provider.runtime.checkpoint.catalog.MANIFEST_LIMIT", 300)
    with pytest.raises(CheckpointTooLarge, match=r"files.*fewer and larger"):
        commit(place, catalog, 1)
    assert names(place, "checkpoints") == []


def test_each_object_must_exist_in_its_size_at_the_commit(place: Place, catalog: Catalog) -> None:
    for damage in (lose, cut, grow):
        uri, manifest = new_directory(catalog, 5), manifest_of(5, trees_of(place))
        damage(place, StoredCheckpoint(uri, manifest, ""))
        with pytest.raises(DamagedCheckpoint, match=r"its object \S+ (is missing|has \d+ bytes instead of 1005)"):
            catalog.commit(uri, manifest)
    assert names(place, "checkpoints") == []


# ---- manifests that no runtime writes ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"trees": []}, "names no files"),
        ({"save": 6}, "has save number 6"),
        ({"save": -5}, "save -5, which is not between"),
        ({"step": -1}, "step -1, which"),
        ({"entry": "../x"}, "is not a path below the directory"),
        ({"entry": "/x"}, "is not a path below the directory"),
        ({"entry": "a/../x"}, "is not a path below the directory"),
        ({"saved_ms": -1}, "saved_ms -1, which"),
        ({"committed_ms": 1 << 60}, "has committed_ms 1"),
        ({"generation": 1 << 60}, "has generation 1"),
    ],
)
def test_an_impossible_manifest_is_not_committed(tmp_path: Path, changes: dict[str, object], reason: str) -> None:
    place = local_place(tmp_path)
    catalog = Catalog(place.storage, place.root)
    with pytest.raises(DamagedCheckpoint, match=reason):
        catalog.commit(new_directory(catalog, 5), manifest_of(5, trees_of(place), **changes))
    assert catalog.newest() is None


def outside(tree: StoredTree) -> StoredTree:
    return attrs.evolve(tree, entries=[attrs.evolve(tree.entries[0], path="../../x"), *tree.entries[1:]])


def unknown_checksum(tree: StoredTree) -> StoredTree:
    return attrs.evolve(tree, entries=[attrs.evolve(tree.entries[0], checksum="crc64:00"), *tree.entries[1:]])


def object_outside(tree: StoredTree) -> StoredTree:
    return attrs.evolve(tree, objects={**tree.objects, "../../x": 1})


def without_a_directory(tree: StoredTree) -> StoredTree:
    return attrs.evolve(tree, entries=[entry for entry in tree.entries if entry.path != "data"])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda trees: [trees[0], trees[0]], "lists a rank twice"),
        (lambda trees: [attrs.evolve(trees[0], rank=-1)], "has rank -1, which"),
        (lambda trees: [attrs.evolve(trees[0], rank=1 << 60)], "is not between"),
        *(
            (lambda trees, change=change: [attrs.evolve(trees[0], tree=change(trees[0].tree)), trees[1]], reason)
            for change, reason in (
                (outside, "is not a path below the directory"),
                (unknown_checksum, "not a checksum of a known algorithm"),
                (object_outside, "not the name of a stored object"),
                (without_a_directory, "is not one of its directories"),
            )
        ),
    ],
)
def test_impossible_trees_are_not_committed(
    tmp_path: Path, change: Callable[[list[RankTree]], list[RankTree]], reason: str
) -> None:
    place = local_place(tmp_path)
    catalog = Catalog(place.storage, place.root)
    with pytest.raises(DamagedCheckpoint, match=reason):
        catalog.commit(new_directory(catalog, 5), manifest_of(5, change(trees_of(place))))
    assert catalog.newest() is None


def test_a_manifest_with_numbers_that_no_message_holds_is_set_aside(place: Place, catalog: Catalog) -> None:
    """The next save counts on from the number, and messages carry it."""
    good = commit(place, catalog, 5)
    for save, step in ((10**60, None), ((1 << 63) - 1, None), (7, 10**60)):
        uri = new_directory(catalog, save)
        write_manifest(place, uri, dump_json(manifest_of(9, trees_of(place), save=save, step=step)))
    assert catalog.newest() == good
    assert len(names(place, "broken")) == 3


# ---- damage --------------------------------------------------------------------------------------------------------


def write_manifest(place: Place, uri: str, data: bytes) -> None:
    place.storage.write(uris.join(uri, stored_checkpoint.MANIFEST_FILE), data, overwrite=True)


def object_uri(place: Place, stored: StoredCheckpoint, rank: int = 0) -> str:
    (name,) = stored.manifest.trees[rank].tree.objects
    return place.uri(f"objects/{name}")


def lose(place: Place, stored: StoredCheckpoint) -> None:
    place.storage.remove(object_uri(place, stored))


def lose_other_rank(place: Place, stored: StoredCheckpoint) -> None:
    place.storage.remove(object_uri(place, stored, rank=1))


def cut(place: Place, stored: StoredCheckpoint) -> None:
    place.storage.write(object_uri(place, stored), b"x" * 1004, overwrite=True)


def grow(place: Place, stored: StoredCheckpoint) -> None:
    place.storage.write(object_uri(place, stored), b"x" * 1006, overwrite=True)


def cut_manifest(place: Place, stored: StoredCheckpoint) -> None:
    write_manifest(place, stored.uri, dump_json(stored.manifest)[:-1])


def other_manifest(place: Place, stored: StoredCheckpoint) -> None:
    write_manifest(place, stored.uri, dump_json(attrs.evolve(stored.manifest, save=8)))


def manifest_of_another_version(place: Place, stored: StoredCheckpoint) -> None:
    plain = {"save": 9, "step": 9, "format": "x", "entry": "a", "files": [{"path": "a", "size": 1, "checksum": "x"}]}
    write_manifest(place, stored.uri, json.dumps(plain).encode())


def manifest_that_is_no_text(place: Place, stored: StoredCheckpoint) -> None:
    write_manifest(place, stored.uri, b"\xff")


def endless_time(place: Place, stored: StoredCheckpoint) -> None:
    """Other jobs of the same user can write any number. A master that formatted this time ended with an error."""
    write_manifest(place, stored.uri, dump_json(attrs.evolve(stored.manifest, saved_ms=10**30)))


def early_commit(place: Place, stored: StoredCheckpoint) -> None:
    write_manifest(place, stored.uri, dump_json(attrs.evolve(stored.manifest, committed_ms=-(10**300))))


Damage = Callable[[Place, StoredCheckpoint], None]
DAMAGES = [
    lose,
    lose_other_rank,
    cut,
    grow,
    cut_manifest,
    other_manifest,
    manifest_of_another_version,
    manifest_that_is_no_text,
    endless_time,
    early_commit,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_broken_checkpoint_is_set_aside_and_the_next_taken(place: Place, catalog: Catalog, damage: Damage) -> None:
    commit(place, catalog, 3)
    good = commit(place, catalog, 5)
    bad = commit(place, catalog, 9)
    damage(place, bad)
    objects = names(place, "objects")
    fresh = Catalog(place.storage, place.root)
    assert fresh.newest() == good
    assert names(place, "broken") == [uris.name(bad.uri)]
    assert sorted(names(place, f"broken/{uris.name(bad.uri)}")) == [stored_checkpoint.MANIFEST_FILE, REASON_FILE]
    assert names(place, "objects") == objects
    with place.storage.open_read(place.uri(f"broken/{uris.name(bad.uri)}/{REASON_FILE}")) as file:
        assert json.loads(file.read())["reason"]
    assert [each.step for each in fresh.list()] == [3, 5]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_chain_that_is_only_read_stays_as_it_is(place: Place, catalog: Catalog, damage: Damage) -> None:
    good, bad = commit(place, catalog, 5), commit(place, catalog, 9)
    damage(place, bad)
    assert Catalog(place.storage, place.root, read_only=True).newest() == good
    assert names(place, "broken") == []
    assert uris.name(bad.uri) in names(place, "checkpoints")


def test_a_manifest_above_the_size_limit_is_set_aside(
    place: Place, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = commit(place, catalog, 5), commit(place, catalog, 9)
    write_manifest(place, bad.uri, dump_json(bad.manifest) + b" " * 100_000)
    monkeypatch.setattr("tony_provider.runtime.checkpoint.catalog.MANIFEST_LIMIT", 50_000)
    assert Catalog(place.storage, place.root).newest() == good
    assert names(place, "broken") == [uris.name(bad.uri)]


def test_a_manifest_may_have_the_keys_of_a_newer_runtime(place: Place, catalog: Catalog) -> None:
    uri, manifest = new_directory(catalog, 5), manifest_of(5, trees_of(place))
    plain = {**json.loads(dump_json(manifest)), "more": [1]}
    plain["trees"][0]["tree"]["entries"][0]["more"] = {}
    write_manifest(place, uri, json.dumps(plain).encode())
    newest = catalog.newest()
    assert newest is not None
    assert (newest.uri, newest.manifest) == (uri, manifest)


def test_a_checkpoint_of_the_same_name_can_be_set_aside_several_times(place: Place, catalog: Catalog) -> None:
    uri, manifest = new_directory(catalog, 5), manifest_of(5, trees_of(place))
    name = uris.name(uri)
    for expected in (name, f"{name}.2", f"{name}.3"):
        write_manifest(place, uri, dump_json(manifest))
        assert catalog.set_aside(uri, "tests") == place.uri(f"broken/{expected}")
    assert names(place, "broken") == [name, f"{name}.2", f"{name}.3"]
    assert catalog.set_aside(uri, "gone") is None


def test_a_checkpoint_that_was_set_aside_is_forgotten(place: Place, catalog: Catalog) -> None:
    stored = commit(place, catalog, 5)
    assert catalog.newest() == stored
    assert catalog.set_aside(stored, "tests") is not None
    assert catalog.newest() is None
    assert catalog.list() == []
    with pytest.raises(StorageNotFound):
        catalog.load(stored.uri)


def test_an_error_of_the_store_is_raised_and_is_no_damage(place: Place, catalog: Catalog) -> None:
    stored = commit(place, catalog, 5)
    file = uris.join(stored.uri, stored_checkpoint.MANIFEST_FILE)
    place.storage.remove(file)
    place.storage.write(uris.join(file, "a directory in its place"), b"")
    with pytest.raises(StorageError):
        Catalog(place.storage, place.root).newest()
    assert names(place, "broken") == []


# ---- retention -----------------------------------------------------------------------------------------------------


def test_the_last_the_periodic_and_the_used_checkpoints_are_kept(place: Place, catalog: Catalog) -> None:
    stored = {step: commit(place, catalog, step) for step in (10, 20, 25, 30, 35, 40)}
    removed = catalog.prune(2, 20, keep=[stored[25].uri])
    assert removed == [stored[10].uri, stored[30].uri]
    assert [each.step for each in catalog.list()] == [20, 25, 35, 40]
    assert len(names(place, "checkpoints")) == 4
    assert names(place, "objects") == objects_of(*(stored[step] for step in (20, 25, 35, 40)))
    assert catalog.prune(10) == []
    assert catalog.newest() == stored[40]
    with pytest.raises(StorageNotFound):
        catalog.load(stored[10].uri)


def test_a_checkpoint_stays_as_long_as_a_reader_has_pinned_it(place: Place, catalog: Catalog) -> None:
    first, last = commit(place, catalog, 1), commit(place, catalog, 2)
    reader = Catalog(place.storage, place.root, read_only=True)
    assert reader.pin(first.uri, "reader")
    assert reader.pin(first.uri, "reader"), "the time of the pin begins again"
    assert catalog.prune(1) == []
    reader.unpin(first.uri, "reader")
    assert catalog.prune(1) == [first.uri]
    assert not reader.pin(first.uri, "reader")
    assert catalog.list() == [last]


def test_a_checkpoint_without_a_step_is_not_a_periodic_one(place: Place, catalog: Catalog) -> None:
    for save in (1, 2):
        commit(place, catalog, save, step=None)
    catalog.prune(1, 1)
    assert [each.save for each in catalog.list()] == [2]


def test_an_object_of_two_checkpoints_is_removed_with_the_last_of_them(place: Place, catalog: Catalog) -> None:
    first = commit(place, catalog, 1)
    shared = first.manifest.trees[0]
    second_tree = upload(place.storage, place.root, {"data/b": b"new"})
    second = catalog.commit(new_directory(catalog, 2), manifest_of(2, [shared, RankTree(1, second_tree)]))
    third = commit(place, catalog, 3)
    assert catalog.prune(2) == [first.uri]
    assert names(place, "objects") == objects_of(second, third)
    assert set(shared.tree.objects) <= set(names(place, "objects"))
    assert Catalog(place.storage, place.root).prune(1) == [second.uri]
    assert names(place, "objects") == objects_of(third)


def test_the_objects_of_a_checkpoint_that_was_set_aside_stay(place: Place, catalog: Catalog) -> None:
    first = commit(place, catalog, 1)
    aside = [catalog.commit(new_directory(catalog, save), manifest_of(save, first.manifest.trees)) for save in (2, 3)]
    own = commit(place, catalog, 4)
    last = commit(place, catalog, 5)
    catalog.set_aside(aside[0], "tests")
    place.storage.rename(aside[1].uri, place.uri(f"broken/{uris.name(aside[1].uri)}.2"))  # its name was taken
    catalog.set_aside(own, "tests")
    assert catalog.prune(1) == [first.uri]
    assert names(place, "objects") == objects_of(first, own, last)
    place.storage.remove(place.uri(f"broken/{uris.name(aside[0].uri)}"), recursive=True)
    assert catalog.remove_unfinished() == []
    catalog.finish(AfterSuccess.REMOVE)
    assert names(place, "objects") == objects_of(first, own)


def test_an_unreadable_manifest_in_the_broken_checkpoints_does_not_stop_pruning(place: Place, catalog: Catalog) -> None:
    first, last = commit(place, catalog, 1), commit(place, catalog, 2)
    for number, data in enumerate((b"\xff", b"", b"{}", dump_json(attrs.evolve(first.manifest, step=-1)))):
        place.write(f"broken/{stored_checkpoint.directory_name(number)}/{stored_checkpoint.MANIFEST_FILE}", data)
    place.write(f"broken/{stored_checkpoint.directory_name(9)}/another file", b"")
    place.write("broken/a file", b"")
    assert catalog.prune(1) == [first.uri]
    assert names(place, "objects") == objects_of(last)
    assert len(names(place, "broken")) == 6


class Stubborn(LocalStorage):
    """A store that fails to remove directories."""

    def remove(self, uri: str, *, recursive: bool = False) -> bool:
        if recursive:
            raise StorageTimeout(uri, "remove", "it fell silent")
        return super().remove(uri, recursive=recursive)


def test_a_checkpoint_without_its_manifest_is_forgotten_if_its_directory_cannot_be_removed(tmp_path: Path) -> None:
    place = attrs.evolve(local_place(tmp_path), storage=Stubborn())
    catalog = Catalog(place.storage, place.root)
    first, last = commit(place, catalog, 1), commit(place, catalog, 2)
    with pytest.raises(StorageTimeout):
        catalog.prune(1)
    assert names(place, f"checkpoints/{uris.name(first.uri)}") == ["removed"]
    assert Catalog(place.storage, place.root).list() == [last]
    assert catalog.list() == [last]


@settings(deadline=None, max_examples=40)
@given(
    steps=st.dictionaries(
        st.integers(0, 60), st.sets(st.integers(0, 5), min_size=1, max_size=3), max_size=8
    ),  # and the numbers of the objects that each has
    keep_last=st.integers(0, 9),
    keep_every=st.none() | st.integers(1, 20),
)
def test_exactly_the_kept_checkpoints_and_their_objects_stay(
    tmp_path_factory: pytest.TempPathFactory, steps: dict[int, set[int]], keep_last: int, keep_every: int | None
) -> None:
    place = local_place(tmp_path_factory.mktemp("chain"))
    catalog = Catalog(place.storage, place.root)
    pool = [upload(place.storage, place.root, {"a": bytes([number])}) for number in range(6)]
    for step, numbers in steps.items():
        trees = [RankTree(number, pool[number]) for number in sorted(numbers)]
        catalog.commit(new_directory(catalog, step), manifest_of(step, trees))
    catalog.prune(keep_last, keep_every)
    newest = sorted(steps, reverse=True)[:keep_last]
    expected = {step for step in steps if step in newest or (keep_every and step % keep_every == 0)}
    assert [each.step for each in catalog.list()] == sorted(expected)
    used = {name for step in expected for number in steps[step] for name in pool[number].objects}
    never_used = {
        name
        for number in range(6)
        if all(number not in each for each in steps.values())
        for name in pool[number].objects
    }
    assert set(names(place, "objects")) == used | never_used
    catalog.remove_unfinished()
    assert set(names(place, "objects")) == used


@pytest.mark.parametrize(
    ("after", "left"),
    [(AfterSuccess.KEEP_LAST, [30]), (AfterSuccess.KEEP_ALL, [10, 20, 30]), (AfterSuccess.REMOVE, [])],
)
def test_the_job_chooses_what_stays_after_success(
    place: Place, catalog: Catalog, after: AfterSuccess, left: list[int]
) -> None:
    stored = {step: commit(place, catalog, step) for step in (10, 20, 30)}
    trees_of(place)  # of an upload that never ended
    place.storage.make_directories(new_directory(catalog, 40))
    catalog.finish(after)
    assert [each.step for each in catalog.list()] == left
    assert len(names(place, "checkpoints")) == len(left)
    assert names(place, "objects") == objects_of(*(stored[step] for step in left))


def test_leftovers_of_interrupted_uploads_are_removed(place: Place, catalog: Catalog) -> None:
    stored = commit(place, catalog, 5)
    unused = [name for each in trees_of(place) for name in each.tree.objects]
    half = temporary_name()
    place.write(f"objects/{half}", b"half of an object")
    left = new_directory(catalog, 6)
    place.storage.write(uris.join(left, temporary_name()), b"half of a manifest")
    place.write("checkpoints/a file", b"")
    assert catalog.remove_unfinished() == [left, *sorted([*unused, half])]
    assert catalog.newest() == stored
    assert names(place, "checkpoints") == ["a file", uris.name(stored.uri)]
    assert names(place, "objects") == objects_of(stored)
    assert catalog.remove_unfinished() == []


# ---- suspect checkpoints -------------------------------------------------------------------------------------------


def failed(what: str = "worker exit 1 abc", application_id: str = "application_1_1") -> FailedResume:
    return FailedResume(what, "worker:0 ended with exit code 1", application_id, 1000)


def chosen_save(catalog: Catalog, trusted: str = "") -> int | None:
    chosen = catalog.choose(trusted)
    return chosen.checkpoint.save if chosen else None


def test_a_checkpoint_is_suspect_after_two_equal_failures_also_of_several_applications(
    place: Place, catalog: Catalog
) -> None:
    commit(place, catalog, 1)
    newest = commit(place, catalog, 2)
    assert catalog.choose() == ChosenCheckpoint(newest)
    catalog.note_failed_resume(newest.uri, failed())
    assert chosen_save(catalog) == 2
    later = Catalog(place.storage, place.root)
    later.note_failed_resume(newest.uri, failed("worker exit 1 def"))
    assert chosen_save(later) == 2
    later.note_failed_resume(newest.uri, failed(application_id="application_1_2"))
    chosen = Catalog(place.storage, place.root, read_only=True).choose()
    assert chosen
    assert (chosen.checkpoint.save, chosen.suspect) == (1, newest)
    assert chosen.not_from == (
        f"not from {newest.point.label}, which is marked as suspect: processes that resumed from it failed 2 times in "
        "the same way, before they reported a step or saved: worker:0 ended with exit code 1"
    )
    assert chosen_save(later, trusted=newest.uri) == 2
    assert later.newest() == newest, "it is kept"


def test_if_all_checkpoints_are_suspect_the_newest_is_chosen(place: Place, catalog: Catalog) -> None:
    for number in (1, 2):
        checkpoint = commit(place, catalog, number)
        catalog.note_failed_resume(checkpoint.uri, failed())
        catalog.note_failed_resume(checkpoint.uri, failed())
    assert chosen_save(catalog) == 2
    assert catalog.choose() == ChosenCheckpoint(checkpoint)


def test_suspect_checkpoints_do_not_count_when_old_ones_are_removed(place: Place, catalog: Catalog) -> None:
    commit(place, catalog, 1)
    commit(place, catalog, 2)
    suspect = commit(place, catalog, 3)
    for _ in range(2):
        catalog.note_failed_resume(suspect.uri, failed())
    commit(place, catalog, 4)
    catalog.prune(2)
    assert [each.save for each in catalog.list()] == [2, 3, 4]
    commit(place, catalog, 5)
    catalog.prune(2)
    assert [each.save for each in catalog.list()] == [4, 5]
    assert catalog.next_save() == 6


def test_failures_of_removed_checkpoints_are_forgotten(place: Place, catalog: Catalog) -> None:
    old = commit(place, catalog, 1)
    catalog.note_failed_resume(old.uri, failed())
    commit(place, catalog, 2)
    new = commit(place, catalog, 3)
    catalog.prune(2)
    catalog.note_failed_resume(new.uri, failed())
    assert list(catalog.failed_resumes().by_checkpoint) == [uris.name(new.uri)]


@pytest.mark.parametrize(("after_success", "kept"), [(AfterSuccess.KEEP_LAST, [2]), (AfterSuccess.REMOVE, [])])
def test_the_newest_stays_after_a_success_also_if_all_are_suspect(
    place: Place, catalog: Catalog, after_success: AfterSuccess, kept: list[int]
) -> None:
    """The failures had another cause, because a process that resumed from the newest has succeeded."""
    for number in (1, 2):
        stored = commit(place, catalog, number)
        for _ in range(2):
            catalog.note_failed_resume(stored.uri, failed())
    catalog.finish(after_success)
    assert [each.save for each in catalog.list()] == kept


def test_failures_before_a_step_are_forgotten(place: Place, catalog: Catalog) -> None:
    old, new = commit(place, catalog, 1), commit(place, catalog, 2)
    for checkpoint in (old, new, new):
        catalog.note_failed_resume(checkpoint.uri, failed())
    catalog.note_sound_resume(new.uri)
    catalog.note_sound_resume(new.uri)
    for each in (catalog, Catalog(place.storage, place.root)):
        assert chosen_save(each) == 2
        assert list(each.failed_resumes().by_checkpoint) == [uris.name(old.uri)]


def test_an_unreadable_record_of_failures_makes_nothing_suspect(place: Place, catalog: Catalog) -> None:
    checkpoint = commit(place, catalog, 1)
    place.storage.write(uris.join(place.root, "failed-resumes.json"), b"{")
    assert catalog.choose() == ChosenCheckpoint(checkpoint)


def test_of_a_foreign_chain_failures_are_only_remembered(place: Place, catalog: Catalog) -> None:
    commit(place, catalog, 1)
    newest = commit(place, catalog, 2)
    foreign = Catalog(place.storage, place.root, read_only=True)
    for _ in range(2):
        foreign.note_failed_resume(newest.uri, failed())
    assert chosen_save(foreign) == 1
    assert chosen_save(Catalog(place.storage, place.root)) == 2


def test_of_a_foreign_chain_damaged_checkpoints_are_only_passed_over(place: Place, catalog: Catalog) -> None:
    commit(place, catalog, 1)
    newest = commit(place, catalog, 2)
    foreign = Catalog(place.storage, place.root, read_only=True)
    assert foreign.set_aside(newest, "its weights are bad") is None
    assert chosen_save(foreign) == 1
    assert chosen_save(catalog) == 2
