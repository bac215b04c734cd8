"""Lineage records of trainings that start from each other, compared with files on a local disk."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.waiting import SECONDS
from tony_provider.cluster.errors import SourceMissing
from tony_provider.cluster.records import staleness
from tony_provider.cluster.records.staleness import (
    ChangeKind,
    ModelReport,
    ModelState,
    StaleModels,
    StaleRun,
    _CachedListings,
    _Comparison,
    stale_runs,
)
from tony_provider.cluster.training.identity import Identity, Layout, identity_of, read_record
from tony_provider.runtime.common.codec import dump_json
from tony_provider.runtime.inputs.finding import find_shards
from tony_provider.runtime.inputs.lineage import FileSet, InputLineage, Lineage
from tony_provider.runtime.inputs.shards import InputShard, Listing
from tony_provider.runtime.jobspec.model import InputDeal, InputSpec
from tony_provider.runtime.protocol.status import JobState, JobStatus
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.local import LocalStorage
from tony_provider.runtime.storage.stores import JobStores


class CountedStorage(LocalStorage):
    """A local disk with checksums, which counts the listings of each directory."""

    def __init__(self) -> None:
        super().__init__()
        self.listed: list[str] = []
        self.summed: list[str] = []

    def list(self, uri: str) -> Any:
        self.listed.append(uri)
        return super().list(uri)

    def checksum(self, uri: str) -> str:
        self.summed.append(uri)
        return f"bytes:{Path(uri.removeprefix('file://')).read_bytes().hex()}"


@attrs.define
class Place:
    """A staging directory, data below it, and trainings that read the data of a day."""

    path: Path
    storage: CountedStorage = attrs.field(factory=CountedStorage)

    @property
    def layout(self) -> Layout:
        return Layout(f"file://{self.path}/staging")

    def data(self, day: int) -> Path:
        directory = self.path / "data" / f"{day:02}"
        directory.mkdir(parents=True, exist_ok=True)
        return directory

    def identity(self, day: int) -> Identity:
        return identity_of(namespace="", dag_id="daily", run_id=f"{day:02}", task_id="train")

    def train(
        self,
        day: int,
        *,
        after: int | None = None,
        number: int = 1,
        spec: InputSpec | None = None,
        submitted_ms: int | None = None,
    ) -> None:
        """Keep the record that a training of a day leaves."""
        identity, application = self.identity(day), f"application_{day}_{number:04}"
        directory = self.layout.application_dir(identity, application)
        spec = spec or InputSpec([str(self.data(day))])
        listing = Listing.of(find_shards("train", spec, JobStores(self.storage, self.layout.root)))
        listing.save(self.storage, uris.join(directory, "inputs", "train.jsonl"))
        shards = list(find_shards("train", spec, JobStores(self.storage, self.layout.root)))
        sums = {each.uri: self.storage.checksum(each.uri) for each in shards}
        self.storage.write(uris.join(directory, "inputs", "checksums.json"), dump_json(sums), overwrite=True)
        listing.close()
        model = self.model(after) if after is not None else None
        lineage = Lineage(
            application_id=application,
            training=identity.name,
            labels={"dag_id": "daily", "run_id": f"{day:02}", "task_id": "train"},
            finished_ms=1000 * day + number,
            submitted_ms=submitted_ms,
            chain_dir=self.layout.chain_dir(identity, number),
            model_dir=uris.join(directory, "model"),
            warm_start=model,
            inputs={"train": InputLineage(spec, FileSet.of(shards))},
        )
        self.storage.write(self.layout.lineage_file(identity), dump_json(lineage), overwrite=True)

    def model(self, day: int) -> str:
        return uris.join(self.layout.application_dir(self.identity(day), f"application_{day}_0001"), "model")

    def reports(self) -> dict[int, ModelReport]:
        self.storage.listed.clear()
        self.storage.summed.clear()
        stale = StaleModels(self.storage, self.layout, "")
        try:
            return {int(each.lineage.labels["run_id"]): each for each in stale.reports() if each.lineage}
        finally:
            stale.close()

    def states(self) -> dict[int, ModelState]:
        return {day: report.state for day, report in self.reports().items()}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    found = Place(tmp_path)
    for day in range(1, 5):
        for number in range(3):
            (found.data(day) / f"part-{number}").write_bytes(b"rows of %d" % number)
        found.train(day)
    yield found
    found.storage.close()


def later(path: Path, data: bytes) -> None:
    """Write a file with a modification time that differs."""
    before = path.stat().st_mtime_ns if path.exists() else 0
    path.write_bytes(data)
    os.utime(path, ns=(before + 10**9, before + 10**9))


def test_unchanged_data_is_current_and_listed_once(place: Place) -> None:
    assert set(place.states().values()) == {ModelState.CURRENT}
    assert len(place.storage.listed) == len(set(place.storage.listed))
    assert not place.storage.summed


def test_changed_added_and_removed_files(place: Place) -> None:
    later(place.data(1) / "part-0", b"ROWS OF 0")
    later(place.data(2) / "part-9", b"new")
    (place.data(3) / "part-1").unlink()
    later(place.data(4) / "part-2", b"rows of 2")
    place.data(4).rename(place.path / "aside")
    (place.path / "aside").rename(place.path / "data" / "04")
    reports = place.reports()
    assert {day: [change.kind for change in each.changes] for day, each in reports.items()} == {
        1: [ChangeKind.CHANGED],
        2: [ChangeKind.ADDED],
        3: [ChangeKind.REMOVED],
        4: [],
    }
    assert reports[4].state is ModelState.CURRENT
    assert len(place.storage.summed) == 2


def test_descendants_of_a_stale_model(place: Place) -> None:
    for day in range(2, 5):
        place.train(day, after=day - 1)
    later(place.data(2) / "part-0", b"other rows")
    reports = place.reports()
    assert [reports[day].state.value for day in range(1, 5)] == ["current", "stale", *["stale by descent"] * 2]
    assert place.identity(2).name in reports[4].reason
    place.train(2, after=1, number=2)
    reports = place.reports()
    assert [reports[day].state.value for day in range(1, 5)] == ["current", "current", *["stale by descent"] * 2]
    assert "was trained again" in reports[3].reason


def test_a_long_chain_of_models(place: Place) -> None:
    for day in range(5, 99):
        (place.data(day) / "part-0").write_bytes(b"rows")
        place.train(day, after=day - 1)
    later(place.data(4) / "part-0", b"other rows")
    assert place.states() == {
        day: ModelState.CURRENT if day < 4 else ModelState.STALE if day == 4 else ModelState.DESCENDED
        for day in range(1, 99)
    }


def test_all_data_of_a_date_is_gone(place: Place) -> None:
    for each in place.data(1).iterdir():
        each.unlink()
    report = place.reports()[1]
    assert report.state is ModelState.UNKNOWN
    assert "has no files any more" in report.reason


def test_files_that_a_program_reads_by_itself(place: Place) -> None:
    place.train(1, spec=InputSpec([f"{place.data(1).parent}/0[12]/part-*"], InputDeal.NONE))
    later(place.data(2) / "part-7", b"")
    assert place.states()[1] is ModelState.STALE


def test_the_runs_to_repeat_and_those_before_them(place: Place) -> None:
    for day in range(2, 5):
        place.train(day, after=day - 1)
    later(place.data(2) / "part-0", b"other rows")
    second, third, fourth = (StaleRun("daily", f"{day:02}") for day in (2, 3, 4))
    assert stale_runs(list(place.reports().values())) == {second: set(), third: {second}, fourth: {third}}


def test_runs_whose_ancestor_is_not_selected_are_not_repeated(place: Place) -> None:
    for day in range(2, 5):
        place.train(day, after=day - 1)
    later(place.data(2) / "part-0", b"other rows")
    reports = place.reports()
    assert stale_runs([reports[day] for day in (3, 4)]) == {}
    second = StaleRun("daily", "02")
    assert stale_runs([reports[day] for day in (2, 4)]) == {second: set()}  # the fourth would not wait for the third


def test_a_training_that_starts_from_the_old_model_again_is_not_repeated_for_ever(place: Place) -> None:
    for day in (2, 3):
        place.train(day, after=day - 1)
    place.train(1, number=2)
    assert set(stale_runs(list(place.reports().values()))) == {StaleRun("daily", "02"), StaleRun("daily", "03")}
    place.train(2, after=1, number=2, submitted_ms=1003)  # after the end of the new training of 1
    reports = place.reports()
    assert "check the `warm_start`" in reports[2].reason
    assert stale_runs(list(reports.values())) == {StaleRun("daily", "03"): set()}


def test_a_record_that_cannot_be_read(place: Place) -> None:
    file = place.layout.lineage_file(place.identity(1))
    place.storage.write(file, b"[]", overwrite=True)
    (report,) = StaleModels(place.storage, place.layout, "").reports(model=place.model(1))
    assert report.state is ModelState.UNKNOWN
    assert file in report.reason


def test_files_of_the_machine_are_not_listed_for_a_store_elsewhere(place: Place) -> None:
    """A job can write any record, and Airflow's machine has files that the job's user may not read."""
    lineage = read_record(place.storage, place.layout.lineage_file(place.identity(1)), Lineage, without="")
    assert lineage is not None
    elsewhere = StaleModels(place.storage, Layout("hdfs://namenode/user/alice/.tony"), "")
    comparison = _Comparison(elsewhere, JobStores(place.storage, "hdfs://namenode/"), lineage, "hdfs://namenode/inputs")
    with pytest.raises(SourceMissing, match="only the nodes can read"):
        comparison.compare("train", lineage.inputs["train"])


def test_a_model_without_a_record(place: Place) -> None:
    for day, state in ((8, JobState.SUCCEEDED), (9, JobState.FAILED)):
        directory = place.layout.application_dir(place.identity(day), f"application_{day}_0001")
        status = JobStatus(f"application_{day}_0001", "train", state)
        place.storage.write(uris.join(directory, "result.json"), dump_json(status))
    reports = StaleModels(place.storage, place.layout, "").reports(dag_ids=["daily"])
    (unknown,) = [each for each in reports if each.lineage is None]
    assert (unknown.training, unknown.state) == (place.identity(8).name, ModelState.UNKNOWN)
    assert "has no lineage record" in unknown.reason


def test_a_slow_listing_does_not_keep_the_others_in_memory(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staleness, "_MOST_CACHED", 0)
    begun, goes_on = threading.Event(), threading.Event()

    class SlowStorage(CountedStorage):
        def list(self, uri: str) -> Any:
            found = super().list(uri)
            if uri.endswith("00"):
                begun.set()
                goes_on.wait(SECONDS)
            return found

    storage = SlowStorage()
    listings = _CachedListings(storage)
    slow = threading.Thread(target=listings.list, args=[f"file://{place.data(0)}"])
    slow.start()
    try:
        assert begun.wait(SECONDS)
        other = f"file://{place.data(1)}"
        listings.list(other)
        listings.list(other)
        assert storage.listed.count(other) == 2  # it was dropped in between
    finally:
        goes_on.set()
        slow.join(SECONDS)


def rewrite(place: Place, day: int, **fields: Any) -> None:
    """Change fields of the record of a day."""
    file = place.layout.lineage_file(place.identity(day))
    lineage = read_record(place.storage, file, Lineage, without="")
    assert lineage is not None
    place.storage.write(file, dump_json(attrs.evolve(lineage, **fields)), overwrite=True)


@pytest.mark.parametrize("fields", [{"application_id": ".."}, {"finished_ms": 10**18}, {"finished_ms": -1}])
def test_a_damaged_record_affects_one_model(place: Place, fields: dict[str, Any]) -> None:
    place.train(2, after=1)
    rewrite(place, 1, **fields)
    reports = StaleModels(place.storage, place.layout, "").reports()
    assert sorted(each.state.value for each in reports) == ["current", "current", "unknown", "unknown"]
    assert any("whose state is unknown" in each.reason for each in reports)


@pytest.mark.parametrize(
    ("file", "data"), [("checksums.json", b"[]"), ("checksums.json", b'{"a":1}'), ("train.jsonl", b'{"uri":1}\n')]
)
def test_a_damaged_list_affects_one_model(place: Place, file: str, data: bytes) -> None:
    later(place.data(1) / "part-0", b"rows of 0")
    directory = place.layout.application_dir(place.identity(1), "application_1_0001")
    place.storage.write(uris.join(directory, "inputs", file), data, overwrite=True)
    states = place.states()
    assert (states.pop(1), set(states.values())) == (ModelState.UNKNOWN, {ModelState.CURRENT})


def test_files_that_differ_although_their_list_was_removed(place: Place) -> None:
    later(place.data(1) / "part-0", b"other rows")
    directory = place.layout.application_dir(place.identity(1), "application_1_0001")
    place.storage.remove(uris.join(directory, "inputs", "train.jsonl"))
    report = place.reports()[1]
    assert (report.state, report.changes) == (ModelState.STALE, [])
    assert "their list was removed" in report.reason


def test_a_record_that_names_the_run_of_another_training_repeats_nothing(place: Place) -> None:
    rewrite(place, 1, labels={"dag_id": "payments", "run_id": "02", "task_id": "train"})
    later(place.data(1) / "part-0", b"other rows")
    reports = StaleModels(place.storage, place.layout, "").reports()
    assert [each.state for each in reports].count(ModelState.STALE) == 1
    assert stale_runs(reports) == {}


def test_descendants_after_the_staging_directory_was_moved(place: Place) -> None:
    place.train(2, after=1)
    later(place.data(1) / "part-0", b"other rows")
    (place.path / "staging").rename(place.path / "moved")
    reports = StaleModels(place.storage, Layout(f"file://{place.path}/moved"), "").reports()
    assert [each.state.value for each in reports] == ["stale", "stale by descent", "current", "current"]


def test_a_file_that_a_pattern_finds_twice_is_not_new(place: Place) -> None:
    place.train(1, spec=InputSpec([f"{place.data(1).parent}/**/**/part-*"]))
    later(place.data(1) / "part-0", b"rows of 0")
    assert place.states()[1] is ModelState.CURRENT


def test_a_path_without_files_besides_others(place: Place) -> None:
    place.train(1, spec=InputSpec([str(place.data(1)), str(place.data(2))]))
    for each in place.data(2).iterdir():
        each.unlink()
    place.data(2).rmdir()
    report = place.reports()[1]
    assert {each.kind for each in report.changes} == {ChangeKind.REMOVED}
    assert len(report.changes) == 3


def test_the_digest_of_files() -> None:
    def digest(*uris_of: str, etag: str = "a") -> str:
        return FileSet.of(InputShard(each, 1, 1, checksum=etag) for each in uris_of).digest

    assert digest("s3://bucket/a", etag="b") != digest("s3://bucket/a")
    assert digest("hdfs://n/a", etag="b") == digest("hdfs://n/a")  # read from DataNodes, only if the time differs
    assert digest("hdfs://n/a\n1 1\nhdfs://n/b") != digest("hdfs://n/a", "hdfs://n/b")
