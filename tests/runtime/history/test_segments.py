"""Segments of series: what is written is read back, and what somebody has damaged is read as far as it goes."""

from __future__ import annotations

import gzip
import json
import math
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sample_segments import encode_segment
from tony_provider.runtime.application_history import (
    SampleCompressor,
    SampleSegmentHeader,
    TaskSample,
    encode_header,
    encode_sample,
    read_segment,
    segment_name,
    segment_order,
)
from tony_provider.runtime.protocol.metrics import SHOWN, Unit

MOST = 1 << 20
HEADER = SampleSegmentHeader(application_id="application_1_1")
SAMPLES = [TaskSample(time_ms=1000 * number, seconds=10.0, task="worker:0", step=number) for number in range(100)]

whole = st.integers(0, 2**63)
samples = st.builds(
    TaskSample,
    time_ms=st.integers(0, 2**45),
    seconds=st.integers(0, 10**7).map(lambda tenths: tenths / 10),
    task=st.text(max_size=20),
    attempt=st.integers(1, 100),
    generation=st.integers(0, 100),
    values=st.fixed_dictionaries(
        {},
        optional={
            metric.name: whole if metric.unit is Unit.BYTES else st.integers(0, 10**6).map(lambda tenths: tenths / 10)
            for metric in SHOWN
        },
    ),
    step=st.none() | whole,
    metrics=st.dictionaries(st.text(max_size=20), st.integers(-(2**40), 2**40).map(float) | st.just(math.inf)),
)


@given(st.lists(samples, min_size=1, max_size=20))
def test_what_is_written_is_read_back(written: list[TaskSample]) -> None:
    read = read_segment(encode_segment(HEADER, written), most_bytes=MOST, most_samples=10_000)
    assert read.header == HEADER
    assert read.samples == written
    assert read.problems == []


def test_numbers_that_are_none_survive() -> None:
    metrics = {"loss": math.nan, "up": math.inf, "down": -math.inf}
    sample = TaskSample(time_ms=1, seconds=1.0, task="worker:0", steps_per_second=math.nan, metrics=metrics)
    (read,) = read_segment(encode_segment(HEADER, [sample]), most_bytes=MOST, most_samples=10_000).samples
    assert math.isnan(read.metrics["loss"])
    assert (read.metrics["up"], read.metrics["down"]) == (math.inf, -math.inf)
    assert math.isnan(read.steps_per_second or 0.0)


def test_metrics_have_seven_digits_and_whole_ones_all_of_theirs() -> None:
    sample = TaskSample(time_ms=1, seconds=1.0, task="worker:0", metrics={"loss": 1 / 3, "seen": 123456789012.0})
    (read,) = read_segment(encode_segment(HEADER, [sample]), most_bytes=MOST, most_samples=10_000).samples
    assert read.metrics == {"loss": 0.3333333, "seen": 123456789012.0}


@given(st.integers(0, 1000))
def test_a_segment_that_was_cut_short_is_read_as_far_as_it_goes(length: int) -> None:
    whole = encode_segment(HEADER, SAMPLES)
    read = read_segment(whole[: min(length, len(whole) - 1)], most_bytes=MOST, most_samples=10_000)
    assert read.samples == SAMPLES[: len(read.samples)]
    assert read.problems


def test_a_segment_that_is_enormous_is_read_up_to_the_bound() -> None:
    read = read_segment(encode_segment(HEADER, SAMPLES), most_bytes=2000, most_samples=10_000)
    assert 0 < len(read.samples) < len(SAMPLES)
    assert read.problems == ["it is too large: the rest is not read"]


def test_more_samples_than_anybody_can_hold_are_not_read() -> None:
    read = read_segment(encode_segment(HEADER, SAMPLES), most_bytes=MOST, most_samples=3)
    assert read.samples == SAMPLES[:3]
    assert read.problems == ["it has too many lines: the rest is not read"]


def test_text_that_is_a_thousand_times_its_file_is_read_up_to_the_bound() -> None:
    bomb = encode_header(HEADER) + gzip.compress(b"\n" * (64 << 20))
    assert len(bomb) < 100_000
    read = read_segment(bomb, most_bytes=MOST, most_samples=3)
    assert (read.samples, read.size) == ([], MOST)
    assert read.problems == ["it is too large: the rest is not read"]


def test_a_segment_of_a_later_release_is_read_for_what_is_known() -> None:
    lines: list[dict[str, Any]] = [
        {"version": 2, "mood": "cheerful"},
        {"time_ms": 1, "seconds": 1, "task": "worker:0", "watts": 300},
    ]
    read = read_segment(
        gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode()), most_bytes=MOST, most_samples=10_000
    )
    assert read.samples == [TaskSample(time_ms=1, seconds=1.0, task="worker:0")]
    assert read.problems == ["its format version 2 is newer than 1: unknown keys are ignored"]


BAD = [
    b'{"time_ms":"x","seconds":1,"task":"worker:0"}',
    b'{"time_ms":%d,"seconds":1,"task":"worker:0"}' % 10**400,
    b'{"time_ms":-1,"seconds":1,"task":"worker:0"}',
    b'{"time_ms":1,"seconds":-1,"task":"worker:0"}',
    b'{"time_ms":1,"seconds":NaN,"task":"worker:0"}',
    b'{"time_ms":1,"seconds":1,"task":"worker:0","metrics":{"loss":%d}}' % 10**400,
    b'{"time_ms":1,"seconds":1,"task":"worker:0","step":%d}' % 2**64,
]


@pytest.mark.parametrize("line", [b"no json", b"[]", b"{}", b"7", *BAD])
def test_a_line_that_is_no_sample_is_counted(line: bytes) -> None:
    data = encode_header(HEADER) + gzip.compress(line + b"\n" + encode_sample(SAMPLES[3]))
    read = read_segment(data, most_bytes=MOST, most_samples=10_000)
    assert read.samples == [SAMPLES[3]]
    assert read.problems == ["1 line cannot be read"]


@pytest.mark.parametrize(
    "data", [b"", b"no gzip at all", gzip.compress(b"\xff\n", mtime=0), gzip.compress(b"[1]\n{}\n", mtime=0)]
)
def test_a_file_that_is_no_segment(data: bytes) -> None:
    read = read_segment(data, most_bytes=MOST, most_samples=10_000)
    assert read.samples == []
    assert any("its first line is not a header" in problem for problem in read.problems)


def test_a_compressor_never_says_less_than_it_takes() -> None:
    compressor = SampleCompressor()
    for number in range(5000):
        compressor.add(encode_sample(attrs.evolve(SAMPLES[0], time_ms=number * 7919, task=f"worker:{number % 13}")))
    assert len(compressor.finish()) <= compressor.most_bytes


def test_names_say_the_order() -> None:
    names = [segment_name(2, 1), segment_name(1, 2), segment_name(1, 10_000), segment_name(1, 1)]
    assert sorted(names, key=lambda name: segment_order(name) or ()) == [names[3], names[1], names[2], names[0]]
    assert segment_order("series-1-0001.jsonl.gz") == (1, 1)
    assert segment_order(".tony-tmp-1") is None
