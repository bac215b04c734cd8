from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_provider.runtime.common.quantities import (
    GPU,
    MEMORY,
    VCORES,
    amount,
    count,
    left,
    number,
    percent,
    size,
    span,
    speed,
    steps,
)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (-5, "0 s"),
        (0.4, "0 s"),
        (12, "12 s"),
        (59.6, "1 min"),
        (61, "1 min 1 s"),
        (125, "2 min 5 s"),
        (3600, "1 h"),
        (3605, "1 h"),  # what is two units below the largest says nothing
        (7500, "2 h 5 min"),
        (90061, "1 d 1 h"),
        (3 * 86400 + 4 * 3600 + 9, "3 d 4 h"),
    ],
)
def test_durations(seconds: float, expected: str) -> None:
    assert span(seconds) == expected


@pytest.mark.parametrize(
    ("bytes_", "expected"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (2048, "2 KiB"),
        ((1 << 20) - 1, "1 MiB"),
        (5 << 20, "5 MiB"),
        (300 << 20, "300 MiB"),
        (3 << 29, "1.5 GiB"),
        (5 << 30, "5 GiB"),
        (1 << 52, "4 PiB"),
        (2**63, "8192 PiB"),
    ],
)
def test_sizes(bytes_: int, expected: str) -> None:
    assert size(bytes_) == expected


@given(st.integers(min_value=0, max_value=1 << 59))
def test_sizes_have_at_most_four_digits(bytes_: int) -> None:
    figure, _, _ = size(bytes_).partition(" ")
    assert float(figure) < 1024
    assert len(figure.replace(".", "")) <= 4


def test_amounts() -> None:
    assert [amount(MEMORY, 8192), amount(VCORES, 1), amount(VCORES, 4)] == ["8192 MiB", "1 vcore", "4 vcores"]
    assert [amount(GPU, 1), amount(GPU, 2), amount("example.com/fpga", 2)] == ["1 GPU", "2 GPUs", "2 example.com/fpga"]
    assert [count(0, "task"), count(1, "task"), count(2, "task")] == ["0 tasks", "1 task", "2 tasks"]


def test_numbers_and_speeds() -> None:
    assert [number(0.123456), number(1.25e8), number(math.nan), number(8.0)] == ["0.1235", "1.25e+08", "nan", "8"]
    assert [speed(8.4), speed(0.00312)] == ["8.4 steps/s", "0.00312 steps/s"]


def test_steps() -> None:
    assert [steps(120, 900), steps(1200, 9000), steps(7), steps(7, 0)] == ["120 of 900", "1,200 of 9,000", "7", "7"]


@given(st.integers(min_value=1, max_value=10**9), st.data())
def test_all_is_done_at_100_percent_and_not_before(total: int, data: st.DataObject) -> None:
    done = data.draw(st.integers(min_value=0, max_value=total))
    assert percent(done / total) == f"{100 * done // total} %"


@pytest.mark.parametrize(
    ("done", "total", "rate", "told"),
    [
        (100, 900, 8.0, "about 1 min 40 s left"),
        (0, 900, 1.0, "about 15 min left"),
        (899, 900, 0.001, "about 17 min left"),
        (None, 900, 1.0, ""),
        (100, None, 1.0, ""),
        (100, 900, None, ""),
        (100, 900, 0.0, ""),
        (100, 900, math.nan, ""),
        (100, 900, math.inf, ""),
        (900, 900, 1.0, ""),
        (1000, 900, 1.0, ""),
        (0, 10**12, 1.0, ""),
    ],
)
def test_a_forecast_where_one_can_be_made(done: int | None, total: int | None, rate: float | None, told: str) -> None:
    assert left(done, total, rate) == told
