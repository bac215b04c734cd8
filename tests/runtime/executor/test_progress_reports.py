from __future__ import annotations

import itertools
import json
import math
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_provider.runtime.executor.progress import FileTail, ProgressReader, SpeedMeter


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def append(file: Path, *reports: object) -> None:
    with file.open("a") as stream:
        stream.writelines(json.dumps(report) + "\n" for report in reports)


def test_nothing_reported(file: Path) -> None:
    reader = ProgressReader(file)
    assert reader.poll(0) is None
    file.touch()
    assert reader.poll(1) is None


def test_the_newest_of_each_counts(file: Path) -> None:
    reader = ProgressReader(file)
    append(file, {"step": 1, "total_steps": 100, "loss": 0.9}, {"step": 2, "accuracy": 0.5}, {"loss": 0.7})
    progress = reader.poll(0)
    assert progress is not None
    assert (progress.step, progress.total_steps) == (2, 100)
    assert progress.metrics == pytest.approx({"loss": 0.7, "accuracy": 0.5})
    append(file, {"step": 3.0, "loss": 10**400})
    progress = reader.poll(1)
    assert progress is not None
    assert progress.step == 3
    assert math.isinf(progress.metrics["loss"])


def test_malformed_lines_are_counted_and_said_once(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    reader = ProgressReader(file)
    append(file, {"step": 5})
    with file.open("a") as stream:
        stream.write(
            'not json\n[1]\n{"step": -1}\n{"step": "7"}\n{"step": true}\n{"step": 1.5}\n\n' + "[" * 2_000_000 + "\n"
        )
    append(file, {"step": 6})
    progress = reader.poll(0)
    assert progress is not None
    assert progress.step == 6
    assert reader.malformed == 7
    assert len([record for record in caplog.records if "ignoring a line" in record.message]) == 1


def test_a_file_that_was_cut_short_or_replaced_is_read_from_its_beginning(file: Path) -> None:
    reader = ProgressReader(file)
    append(file, {"step": 100}, {"step": 200})
    assert reader.poll(0).step == 200  # type: ignore[union-attr]
    file.write_text('{"step": 1}\n')
    assert reader.poll(1).step == 1  # type: ignore[union-attr]
    file.rename(file.with_suffix(".old"))
    append(file, {"step": 7}, {"step": 8}, {"step": 9})
    assert reader.poll(2).step == 9  # type: ignore[union-attr]


def test_an_unreadable_file_is_not_fatal(file: Path) -> None:
    file.mkdir()
    assert ProgressReader(file).poll(0) is None


@given(st.binary(max_size=400))
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    file = tmp_path_factory.mktemp("progress") / "metrics"
    file.write_bytes(data + b"\n")
    append(file, {"step": 3})
    progress = ProgressReader(file).poll(0)
    assert progress is not None
    assert progress.step == 3


@given(st.lists(st.binary(max_size=30), max_size=20), st.integers(1, 50))
def test_lines_come_once_and_whole(tmp_path_factory: pytest.TempPathFactory, written: list[bytes], size: int) -> None:
    file = tmp_path_factory.mktemp("tail") / "file"
    tail = FileTail(file)
    data = b"".join(line.replace(b"\n", b"") + b"\n" for line in written)
    found: list[bytes] = []
    for start in range(0, len(data), size):
        with file.open("ab") as stream:
            stream.write(data[start : start + size])
        found += tail.read()[0]
    assert b"".join(line + b"\n" for line in found) == data


@pytest.mark.parametrize("looked_at", [[], [100_000], [700_000, 900_000]])
def test_long_lines_are_read_wherever_a_look_or_a_piece_ends(file: Path, looked_at: list[int]) -> None:
    """A report of 10,000 metrics was left out when only its beginning was there yet, or was in the piece read."""
    reader = ProgressReader(file)
    metrics = {f"layer/{n}": n / 7 for n in range(10_000)}
    data = b"".join(json.dumps({"step": step, **metrics}).encode() + b"\n" for step in range(1, 13))
    for begin, end in itertools.pairwise([0, *looked_at, len(data)]):
        with file.open("ab") as stream:
            stream.write(data[begin:end])
        progress = reader.poll(0)
    assert progress is not None
    assert (progress.step, reader.malformed) == (12, 0)


def test_a_line_is_too_long_wherever_a_look_ends(file: Path) -> None:
    for data in ([b"x" * 1_500_000 + b"\n"], [b"x" * 1_000_000, b"x" * 500_000 + b"\n"]):
        tail = FileTail(file)
        file.write_bytes(b"")
        found: list[bytes] = []
        refused = 0
        for part in [*data, b'{"step": 1}\n']:
            with file.open("ab") as stream:
                stream.write(part)
            lines, too_long = tail.read()
            found, refused = found + lines, refused + too_long
        assert (found, refused) == ([b'{"step": 1}'], 1)


def test_a_line_without_end_does_not_fill_the_memory(file: Path) -> None:
    tail = FileTail(file)
    file.write_bytes(b'{"step": 1}\n' + b"x" * 5_000_000)
    assert tail.read() == ([b'{"step": 1}'], 1)
    with file.open("ab") as stream:
        stream.write(b"x" * 5_000_000)
    assert tail.read() == ([], 0)
    with file.open("ab") as stream:
        stream.write(b'xx\n{"step": 2}\n')
    assert tail.read() == ([b'{"step": 2}'], 0)


def test_speed_over_the_window() -> None:
    meter = SpeedMeter()
    meter.add(0, 0)
    assert meter.speed(0) == 0
    for second in range(1, 200):
        meter.add(second, 10 * second)
    assert meter.speed(199) == pytest.approx(10, rel=0.1)
    for second in range(200, 300):
        meter.add(second, 1990 + 100 * (second - 199))
    assert meter.speed(299) == pytest.approx(100, rel=0.1)


def test_speed_of_slow_steps() -> None:
    meter = SpeedMeter()
    for second in range(1000):
        meter.add(second, second // 100)
    assert meter.speed(999) == pytest.approx(0.01, rel=0.5)


def test_speed_begins_again_with_the_steps() -> None:
    meter = SpeedMeter()
    meter.add(0, 1000)
    meter.add(10, 2000)
    meter.add(11, 0)
    assert meter.speed(11) == 0
    meter.add(21, 10)
    assert meter.speed(21) == pytest.approx(1)


@pytest.mark.parametrize("name", ["\ud800", "x" * 60_000])
def test_metrics_that_no_message_can_carry_are_left_out(file: Path, name: str) -> None:
    append(file, {name: 1, "loss": 0.5})
    progress = ProgressReader(file).poll(0)
    assert progress is not None
    assert dict(progress.metrics) == {"loss": 0.5}


def test_a_fifo_in_the_place_of_the_file_is_not_waited_for(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    os.mkfifo(file)
    assert ProgressReader(file).poll(0) is None
    assert "not a regular file" in caplog.text


def test_parameters(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    reader = ProgressReader(file, ["hunter2"])
    append(file, {"parameters": {"lr": 0.1, "epochs": 3, "augment": True, "url": "https://me:hunter2@hub"}})
    append(
        file,
        {"parameters": {"lr": 1e-05, "api_key": "k", "bad\nname": 1, "x" * 101: 1, "list": [1], "long": "x" * 251}},
    )
    assert reader.poll(0) is None  # no progress, so event files still count
    assert reader.parameters == {
        "lr": "1e-05",
        "epochs": "3",
        "augment": "True",
        "url": "https://me:***@hub",
        "api_key": "***",
    }
    assert len(caplog.records) == 1
    append(file, {"parameters": {f"p{number}": number for number in range(200)}}, {"parameters": 1000})
    progress = reader.poll(1)
    assert progress is not None
    assert progress.metrics == {"parameters": 1000.0}
    assert (len(reader.parameters), reader.parameters["p94"], "p95" in reader.parameters) == (100, "94", False)
