"""Warnings before the quotas of HDFS stop checkpoints, with a store that simulates quotas."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tony_provider.runtime.am import checkpoint_chain
from tony_provider.runtime.am.checkpoint_chain import QuotaWatch
from tony_provider.runtime.artifacts.manifest import Entry, Kind, StoredTree
from tony_provider.runtime.checkpoint.stored_checkpoint import Manifest, RankTree
from tony_provider.runtime.storage import LocalStorage, StorageUnreachable
from tony_provider.runtime.storage.base import QuotaRoom

GIB = 1 << 30
CHAIN = "hdfs:///user/alice/staging/jobs/digits/chain-0001"
HOME, STAGING = "hdfs:///user/alice", "hdfs:///user/alice/staging"


class Quotas(LocalStorage):
    """Has these quotas, and remembers which were read."""

    def __init__(self, rooms: dict[str, QuotaRoom | StorageUnreachable]) -> None:
        super().__init__()
        self.rooms = rooms
        self.read: list[str] = []

    def quota_room(self, uri: str) -> QuotaRoom | None:
        self.read.append(uri)
        found = self.rooms.get(uri)
        if isinstance(found, StorageUnreachable):
            raise found
        return found


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=1000.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr(checkpoint_chain, "time", clock)
    return clock


def manifest(new: int, old: int = 0) -> Manifest:
    """A checkpoint of one new and one old object."""
    sizes = {"000007-0-aaaaaaaa-0": new, "000006-0-bbbbbbbb-0": old}
    entries = [
        Entry(f"file-{number}", Kind.FILE, 0o600, 0, size, "crc32:00000000", name)
        for number, (name, size) in enumerate(sizes.items())
    ]
    return Manifest(7, 70, [RankTree(0, StoredTree(entries, sizes))])


def test_the_room_of_a_quota_is_compared_with_what_the_newest_checkpoint_took(clock: SimpleNamespace) -> None:
    storage = Quotas({HOME: QuotaRoom(6 * GIB, None)})
    assert QuotaWatch(storage, CHAIN, 2).check(manifest(2 * GIB, 90 * GIB)) == ""
    warning = QuotaWatch(storage, CHAIN, 3).check(manifest(2 * GIB, 90 * GIB))
    assert warning == (
        "the quota of hdfs:///user/alice leaves 6 GiB; the newest checkpoint took 2 GiB, and 4 more "
        "(checkpoint.keep + 1) may not fit. Raise the quota, or remove old trainings (airflow tony gc)"
    )


def test_names_are_compared_too(clock: SimpleNamespace) -> None:
    storage = Quotas({STAGING: QuotaRoom(None, 11)})
    assert "leaves 11 names; the newest checkpoint took 4 names" in QuotaWatch(storage, CHAIN, 2).check(manifest(1))
    storage.rooms[STAGING] = QuotaRoom(None, 12)
    assert QuotaWatch(storage, CHAIN, 2).check(manifest(1)) == ""


def test_quotas_are_read_every_few_minutes_and_only_where_there_are_any(clock: SimpleNamespace) -> None:
    storage = Quotas({HOME: QuotaRoom(GIB, None)})
    watch = QuotaWatch(storage, CHAIN, 2)
    first = watch.check(manifest(GIB))
    assert first
    storage.rooms[HOME] = QuotaRoom(GIB // 2, None)
    assert watch.check(manifest(GIB)) == first
    assert storage.read == [HOME, STAGING], "not /user, which is everybody's"
    clock.now += 300
    assert watch.check(manifest(GIB)) == first, "in the same words"
    assert storage.read == [HOME, STAGING, HOME]
    storage.rooms[HOME] = QuotaRoom(9 * GIB, None)
    clock.now += 300
    assert watch.check(manifest(GIB)) == ""


def test_a_quota_that_cannot_be_read_is_no_error(clock: SimpleNamespace) -> None:
    storage = Quotas({HOME: StorageUnreachable(HOME, "get the quota of", "nobody answers")})
    assert QuotaWatch(storage, CHAIN, 2).check(manifest(GIB)) == ""


def test_a_quota_that_could_not_be_read_once_is_read_again(clock: SimpleNamespace) -> None:
    storage = Quotas({HOME: StorageUnreachable(HOME, "get the quota of", "nobody answers")})
    watch = QuotaWatch(storage, CHAIN, 2)
    assert watch.check(manifest(GIB)) == ""
    storage.rooms[HOME] = QuotaRoom(GIB, None)
    clock.now += 300
    assert "leaves 1 GiB" in watch.check(manifest(GIB))


@pytest.mark.parametrize(
    ("chain", "read"),
    [
        ("hdfs:///staging/jobs/digits/chain-0001", []),
        ("hdfs:///data/team/jobs/digits/chain-0001", ["hdfs:///data/team"]),
    ],
)
def test_no_directory_at_the_top_is_counted(chain: str, read: list[str]) -> None:
    storage = Quotas({})
    QuotaWatch(storage, chain, 2).check(manifest(GIB))
    assert storage.read == read
