from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_provider.cluster.records.summary import CURVE_POINTS, CURVES, LONGEST_NAME, curves, thinned_curve
from tony_provider.runtime.application_history import TaskSample


def samples(values: list[float], name: str = "loss") -> list[TaskSample]:
    return [
        TaskSample(time_ms=1000 + 500 * at, seconds=0.5, task="worker:0", step=10 * at, metrics={name: value})
        for at, value in enumerate(values)
    ]


def test_a_short_curve_is_kept_whole() -> None:
    (found,) = curves(samples([0.5, math.nan, -math.inf]), submitted_ms=1000)
    assert (found.metric, found.steps, found.seconds) == ("loss", [0, 10, 20], [0.0, 0.5, 1.0])
    assert found.values == [0.5, "NaN", "-Infinity"]


@pytest.mark.parametrize("at", [0, 1, 4321, 9998, 9999])
@pytest.mark.parametrize("value", [1e9, -1e9, math.inf, math.nan])
def test_what_sticks_out_of_a_long_curve_stays(at: int, value: float) -> None:
    values = [math.sin(each / 100) for each in range(10_000)]
    values[at] = value
    (found,) = curves(samples(values), submitted_ms=0)
    assert len(found.steps) == len(found.seconds) == len(found.values) <= CURVE_POINTS
    assert (found.steps[0], found.steps[-1]) == (0, 99_990)
    assert 10 * at in found.steps
    again = thinned_curve(found, 25)
    assert len(again.values) <= 25
    assert 10 * at in again.steps


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=600), st.integers(5, 200))
def test_any_curve_is_thinned_in_order(values: list[float], most: int) -> None:
    for curve in curves(samples(values), submitted_ms=0):
        found = thinned_curve(curve, most)
        assert len(found.values) <= max(most, 1)
        assert found.steps == sorted(found.steps)
        assert (found.steps[0], found.steps[-1]) == (curve.steps[0], curve.steps[-1])


def test_of_too_many_metrics_those_reported_most_often_are_kept() -> None:
    rare = TaskSample(time_ms=0, seconds=1, task="worker:0", metrics={f"rare-{n}": 1.0 for n in range(10_000)})
    found = curves([rare, *samples([1.0, 2.0])], submitted_ms=0)
    assert len(found) == CURVES
    assert found[0].metric == "loss"


def test_a_name_longer_than_any_chart_takes_is_left_out() -> None:
    assert curves(samples([1.0], "x" * (LONGEST_NAME + 1)), submitted_ms=0) == []


def test_samples_without_a_step_and_clocks_that_jump_are_drawn_as_they_are() -> None:
    taken = [
        TaskSample(time_ms=5000, seconds=1, task="worker:0", step=7, metrics={"loss": 3.0}),
        TaskSample(time_ms=1000, seconds=1, task="worker:0", metrics={"loss": 2.0}),
    ]
    (found,) = curves(taken, submitted_ms=2000)
    assert (found.steps, found.seconds) == ([7, 7], [3.0, -1.0])


def test_values_that_repeat_leave_the_points_to_others() -> None:
    """A ``val_loss`` is told all through an epoch: of 40 epochs with 100 samples each there are 80 points."""
    values = [epoch % 7 / 10 for epoch in range(40) for _ in range(100)]
    (found,) = curves(samples(values), submitted_ms=0)
    assert found.steps == [10 * (100 * epoch + at) for epoch in range(40) for at in (0, 99)]
    assert found.values == [epoch % 7 / 10 for epoch in range(40) for _ in range(2)]


def test_a_curve_of_no_numbers_is_a_stretch_too() -> None:
    (found,) = curves(samples([1.0, *[math.nan] * 1000]), submitted_ms=0)
    assert (found.steps, found.values) == ([0, 10, 10_000], [1.0, "NaN", "NaN"])
