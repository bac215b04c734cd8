"""What applications have left of themselves on a real store of this machine, read as far as it goes."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest

from tests.operators.statuses import status
from tests.runtime.history.events import files_in, leave_events, segment_of
from tests.sample_segments import encode_segment
from tony_provider.cluster.records import history as reading
from tony_provider.cluster.records.history import JobHistory, SpecificationRecord, read_history
from tony_provider.runtime.application_history import SampleSegmentHeader, TaskSample, segment_name
from tony_provider.runtime.common.codec import dump_json
from tony_provider.runtime.storage.local import LocalStorage

SPECIFICATION = SpecificationRecord(job={"framework": "standalone"})
EVENTS = [{"time_ms": 1, "event": "application", "labels": {"dag_id": "daily"}}, {"time_ms": 2, "event": "started"}]


def sample(number: int, task: str = "worker:0") -> TaskSample:
    return TaskSample(time_ms=number, seconds=10.0, task=task, step=number)


def segment(tmp_path: Path, am_attempt: int, number: int, *samples: TaskSample, **header: object) -> Path:
    path = tmp_path / "history" / segment_name(am_attempt, number)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(encode_segment(SampleSegmentHeader(**header), samples))  # type: ignore[arg-type]
    return path


def read(tmp_path: Path) -> JobHistory:
    return read_history(LocalStorage(), f"file://{tmp_path}")


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """The directory of an application that has left everything."""
    segment(tmp_path, 1, 1, sample(1), sample(3))
    segment(tmp_path, 1, 2, sample(4), sample(5, "ps:0"))
    segment(tmp_path, 2, 1, sample(6))
    (tmp_path / "history" / "specification.json").write_bytes(dump_json(SPECIFICATION))
    leave_events(tmp_path, *EVENTS)
    (tmp_path / "result.json").write_bytes(dump_json(status("SUCCEEDED")))
    return tmp_path


def test_all_that_an_application_has_left(whole: Path) -> None:
    assert read(whole) == JobHistory(
        application_id=whole.name,
        specification=SPECIFICATION,
        status=status("SUCCEEDED"),
        events=EVENTS,
        samples=[sample(1), sample(3), sample(4), sample(5, "ps:0"), sample(6)],
        labels={"dag_id": "daily"},
    )


def test_a_job_that_never_started_has_left_nothing(tmp_path: Path) -> None:
    found = read(tmp_path / "application_1_1")
    assert (found.specification, found.status, found.events, found.samples) == (None, None, [], [])
    assert [line.partition(":")[0] for line in found.missing] == ["specification", "status", "events", "series"]


def test_a_file_that_was_cut_short_is_named(whole: Path) -> None:
    last = whole / "history" / segment_name(2, 1)
    last.write_bytes(last.read_bytes()[:-10])
    found = read(whole)
    assert [each.step for each in found.samples][:4] == [1, 3, 4, 5]
    assert found.missing == [f"series: {last.name}: it is truncated"]


def test_a_segment_that_is_not_there_is_named(whole: Path) -> None:
    (whole / "history" / segment_name(1, 1)).unlink()
    found = read(whole)
    assert [each.step for each in found.samples] == [4, 5, 6]
    assert found.missing == ["series: 1 segment of attempt 1 of the application master are missing"]


def test_what_was_left_out_when_it_was_written_is_named(whole: Path) -> None:
    segment(whole, 2, 2, sample(7), metrics_left_out=12, such_as=["<b>loss</b>"], samples_left_out=3)
    assert read(whole).missing == [
        "series: 3 samples were left out when they were written",
        "series: 12 metrics above the limit were left out, such as <b>loss</b>",
    ]


def test_files_of_a_later_release_are_read_for_what_is_known(whole: Path) -> None:
    specification = json.loads(dump_json(SPECIFICATION))
    (whole / "history" / "specification.json").write_text(json.dumps({**specification, "version": 2, "mood": "good"}))
    result = json.loads(dump_json(status("SUCCEEDED")))
    (whole / "result.json").write_text(json.dumps({**result, "version": 3, "mood": "good"}))
    found = read(whole)
    assert found.specification is not None
    assert found.specification.job == SPECIFICATION.job
    assert found.status is not None
    assert found.missing == [
        "specification: its format version 2 is newer than 1: unknown keys are ignored",
        "status: its format version 3 is newer than 1: unknown keys are ignored",
    ]


def test_a_specification_that_cannot_be_read_is_named_once(whole: Path) -> None:
    file = whole / "history" / "specification.json"
    file.unlink()
    file.mkdir()
    (line,) = read(whole).missing
    assert line.startswith("specification.json: ")


def test_files_that_nobody_can_read_are_named_and_the_others_read(whole: Path) -> None:
    (whole / "history" / "specification.json").write_text("{")
    (file,) = files_in(whole)
    file.write_bytes(segment_of(EVENTS[0], b"half a li", {"time_ms": 9, "event": "dropped", "dropped": 7}))
    (whole / "result.json").write_text("[]")
    (whole / "status.json").write_bytes(dump_json(status("RUNNING")))
    found = read(whole)
    assert found.specification is None
    assert found.status == status("RUNNING")
    assert len(found.events) == 2
    assert len(found.samples) == 5
    assert [line.partition(":")[0] for line in found.missing] == ["specification", "status", "events", "events"]


def test_the_next_masters_clock_may_be_behind(whole: Path) -> None:
    """The order is that in which they were taken: a curve's steps go on."""
    segment(whole, 3, 1, *(attrs.evolve(sample(number), time_ms=number - 5) for number in (8, 7)))
    found = read(whole)
    assert [each.step for each in found.samples] == [1, 3, 4, 5, 6, 7, 8]
    assert [each.time_ms for each in found.samples][-3:] == [6, 2, 3]
    assert found.missing == []


def test_an_enormous_status_is_named_once(whole: Path) -> None:
    (whole / "result.json").unlink()
    with (whole / "status.json").open("wb") as file:
        file.truncate(2 << 30)
    found = read(whole)
    assert found.status is None
    (said,) = found.missing
    assert "status.json: it exceeds the size limit of 32 MiB" in said


def test_a_status_of_millions_of_values_is_not_made(whole: Path) -> None:
    (whole / "result.json").unlink()
    (whole / "status.json").write_bytes(b'{"tasks": [' + b"[]," * 5_000_000 + b"[]]}")
    found = read(whole)
    assert found.status is None
    (said,) = found.missing
    assert "more than the limit of 1000000" in said


def test_enormous_series_are_read_up_to_a_bound(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = (whole / "history" / segment_name(1, 1)).stat().st_size
    monkeypatch.setattr(reading, "_MOST_BYTES", size + 10)
    found = read(whole)
    assert [each.step for each in found.samples] == [1, 3]
    assert len(found.missing) == 1
    assert f"2 segments from {segment_name(1, 2)} on" in found.missing[0]


def test_more_samples_than_anybody_can_hold_are_read_up_to_a_bound(
    whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_MOST_SAMPLES", 3)
    found = read(whole)
    assert [each.step for each in found.samples] == [1, 3, 4]
    assert found.missing == [
        f"series: {segment_name(1, 2)}: it has too many lines: the rest is not read",
        f"series: the segments from {segment_name(2, 1)} on exceed the limits, and are not read",
    ]
