"""The event log as it is read: whole, damaged, enormous, or while it is written."""

from __future__ import annotations

import gzip
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runtime.history.events import events_in, leave_events
from tests.runtime.storage.conftest import Place
from tony_provider.runtime import application_history
from tony_provider.runtime.application_history import (
    EventRange,
    encode_event,
    encode_events,
    first_event,
    read_event_segment,
    read_events,
)
from tony_provider.runtime.storage import FileStatus, LocalStorage

HEADER = b'{"version":1}\n'
FIRST = {"time_ms": 1, "event": "application", "labels": {"dag_id": "daily"}}


def event(number: int) -> dict[str, Any]:
    return FIRST if number == 1 else {"time_ms": number, "event": "note"}


def segment(directory: Path, am_attempt: int, first: int, last: int) -> Path:
    file = directory / "history" / EventRange(am_attempt, first, last).file
    file.parent.mkdir(exist_ok=True)
    lines = [encode_event(event(number)) for number in range(first, last + 1)]
    file.write_bytes(encode_events("application_1_1", lines))
    return file


def test_events_in_a_record_are_read(hdfs: Place) -> None:
    """A master writes its last segment as a record, which HDFS lists as an empty file."""
    lines = [encode_event(event(number)) for number in (1, 2)]
    file = hdfs.uri(f"history/{EventRange(1, 1, 2).file}")
    assert hdfs.storage.write_record(file, encode_events("application_1_1", lines))
    missing: list[str] = []
    assert list(read_events(hdfs.storage, hdfs.root, missing)) == [event(1), event(2)]
    assert missing == []


def test_a_record_may_contain_a_much_larger_segment(hdfs: Place) -> None:
    """HDFS limits the bytes of a record after a second compression."""
    note = {**event(2), "message": "x" * 2000}
    segment = encode_events("application_1_1", [encode_event(event(1)), *[encode_event(note)] * 12_000])
    assert len(segment) > 16 << 10
    assert hdfs.storage.write_record(hdfs.uri(f"history/{EventRange(1, 1, 12_001).file}"), segment)
    missing: list[str] = []
    assert len(list(read_events(hdfs.storage, hdfs.root, missing))) == 12_001
    assert missing == []


def times(directory: Path, missing: list[str] | None = None) -> list[int]:
    return [each["time_ms"] for each in events_in(directory, missing)]


@pytest.mark.parametrize(
    ("ranges", "read", "missing"),
    [
        ([(1, 1, 2), (1, 3, 5)], [1, 2, 3, 4, 5], []),
        ([(1, 1, 2), (2, 1, 2), (2, 3, 3)], [1, 2, 1, 2, 3], []),
        ([(1, 1, 1), (1, 1, 4), (1, 2, 3), (1, 4, 4), (1, 5, 5)], [1, 2, 3, 4, 5], []),
        ([(1, 1, 3), (1, 2, 5)], [1, 2, 3, 4, 5], []),
        (
            [(1, 1, 2), (1, 5, 6)],
            [1, 2, 5, 6],
            ["events: 2 events of attempt 1 of the application master not found"],
        ),
        ([(2, 2, 3)], [2, 3], ["events: 1 event of attempt 2 of the application master not found"]),
        ([], [], ["events: the application master has not written any (yet)"]),
    ],
)
def test_each_event_once_and_what_is_not_there(
    tmp_path: Path, ranges: list[tuple[int, int, int]], read: list[int], missing: list[str]
) -> None:
    for each in ranges:
        segment(tmp_path, *each)
    found: list[str] = []
    assert times(tmp_path, found) == read
    assert found == missing


def test_the_last_file_may_be_cut_short(tmp_path: Path) -> None:
    segment(tmp_path, 1, 1, 3)
    last = segment(tmp_path, 1, 4, 40)
    last.write_bytes(last.read_bytes()[:-12])
    missing: list[str] = []
    read = times(tmp_path, missing)
    assert read == list(range(1, len(read) + 1))
    assert len(read) >= 3
    assert missing == [f"events: {last.name}: it is truncated"]


def test_files_of_a_later_release_are_read_for_what_is_known(tmp_path: Path) -> None:
    file = segment(tmp_path, 1, 1, 1)
    file.write_bytes(gzip.compress(b'{"version":2,"mood":"good"}\n{"time_ms":1,"event":"x","mood":"good"}\n'))
    missing: list[str] = []
    assert events_in(tmp_path, missing) == [{"time_ms": 1, "event": "x", "mood": "good"}]
    assert missing == [f"events: {file.name}: its format version 2 is newer than 1: unknown keys are ignored"]


@pytest.mark.parametrize(
    "line", [b"half a li", b"[1]", b"7", b'{"time_ms":"x"}', b'{"time_ms":%d}' % 10**400, b"[" * 100_000, b"\xff"]
)
def test_a_line_that_is_no_event_is_counted(line: bytes) -> None:
    data = gzip.compress(HEADER + line + b"\n" + encode_event(FIRST))
    read = read_event_segment(data, most_bytes=1 << 20, most_events=10)
    assert (read.events, read.problems) == ([FIRST], ["1 line cannot be read"])


@given(st.binary(max_size=200))
def test_no_file_raises(data: bytes) -> None:
    for each in (data, gzip.compress(data), gzip.compress(HEADER + data)):
        read = read_event_segment(each, most_bytes=1 << 20, most_events=10)
        assert read.events or read.problems or not data.strip()


def test_the_reader_holds_what_is_enormous_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = segment(tmp_path, 1, 1, 1)
    bomb.write_bytes(gzip.compress(HEADER + encode_event(FIRST)) + gzip.compress(b"\n" * (80 << 20)))
    after = segment(tmp_path, 1, 2, 2)
    missing: list[str] = []
    assert times(tmp_path, missing) == [1]
    assert missing[0] == f"events: {bomb.name}: it is too large: the rest is not read"
    assert missing[1].startswith(f"events: {after.name}: it is too large")
    monkeypatch.setattr(application_history, "_MOST_BYTES", 10)
    missing = []
    assert times(tmp_path, missing) == []
    assert missing == [f"events: 2 segments from {bomb.name} on: not read, because the limit is 10 B"]


def test_a_file_of_a_million_parts_is_given_up(tmp_path: Path) -> None:
    file = segment(tmp_path, 1, 1, 1)
    file.write_bytes(gzip.compress(HEADER + encode_event(FIRST)) + gzip.compress(b"") * 200_000)
    missing: list[str] = []
    assert times(tmp_path, missing) == [1]
    assert missing == [f"events: {file.name}: it is damaged: it has more than 100 parts"]


def test_a_million_lines_of_something_else(tmp_path: Path) -> None:
    file = segment(tmp_path, 1, 1, 1)
    file.write_bytes(gzip.compress(HEADER + encode_event(FIRST) + b"7\n" * (8 << 20)))
    missing: list[str] = []
    assert times(tmp_path, missing) == [1]
    assert missing == [f"events: {file.name}: 10000 lines cannot be read: the rest is skipped"]


def test_more_events_than_anybody_can_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application_history, "_MOST_EVENTS", 3)
    first = segment(tmp_path, 1, 1, 5)
    missing: list[str] = []
    assert times(tmp_path, missing) == [1, 2, 3]
    assert missing == [f"events: {first.name}: it has too many lines: the rest is not read"]


def test_events_that_were_dropped_are_named(tmp_path: Path) -> None:
    dropped = {"time_ms": 9, "event": "dropped", "dropped": 7}
    leave_events(tmp_path, FIRST, dropped)
    missing: list[str] = []
    assert events_in(tmp_path, missing) == [FIRST, dropped]
    assert missing == ["events: 7 events were dropped because of the size limit"]


def test_the_first_event(tmp_path: Path) -> None:
    assert first_event(LocalStorage(), tmp_path.as_uri()) == {}
    segment(tmp_path, 1, 1, 1)
    segment(tmp_path, 1, 1, 4)
    segment(tmp_path, 2, 1, 4)
    assert first_event(LocalStorage(), tmp_path.as_uri()) == FIRST


class Merging(LocalStorage):
    """A master goes on while its files are read: whatever was listed is one file by the time that it is asked for."""

    def __init__(self, directory: Path, times: int) -> None:
        super().__init__()
        self.directory = directory
        self.times = times

    def list(self, uri: str) -> list[FileStatus]:
        listed = super().list(uri)
        if self.times:
            self.times -= 1
            last = max(found.last for each in listed if (found := EventRange.of_file(each.name)))
            segment(self.directory, 1, 1, last + 1)
            for each in listed:
                self.remove(each.path)
        return listed

    def open_read(self, uri: str, *, offset: int = 0, length: int | None = None) -> BinaryIO:
        return BytesIO(super().open_read(uri, offset=offset, length=length).read())


@pytest.mark.parametrize("merges", [1, 3])
def test_what_is_merged_while_it_is_read_is_there_once(tmp_path: Path, merges: int) -> None:
    segment(tmp_path, 1, 1, 3)
    segment(tmp_path, 1, 4, 4)
    missing: list[str] = []
    found = read_events(Merging(tmp_path, merges), tmp_path.as_uri(), missing)
    assert [each["time_ms"] for each in found] == list(range(1, 5 + merges))
    assert missing == []
    assert first_event(Merging(tmp_path, merges), tmp_path.as_uri()) == FIRST


def test_a_reader_that_is_outrun_says_so(tmp_path: Path) -> None:
    segment(tmp_path, 1, 1, 3)
    missing: list[str] = []
    assert list(read_events(Merging(tmp_path, 1000), tmp_path.as_uri(), missing)) == []
    assert "it was removed while the events were read" in missing[0]
