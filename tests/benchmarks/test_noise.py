"""What of a difference between two runs is noise."""

from __future__ import annotations

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.noise import LEAST, allowance
from tests.benchmarks.reports import positive, rounds


def test_one_round_in_each_tells_nothing() -> None:
    assert allowance([1.0], [2.0]) is None


def test_the_noise_of_one_run_is_taken_for_that_of_a_run_with_one_round() -> None:
    assert allowance([1.0], [1.0, 2.0]) is not None


@given(rounds(least=2), rounds(), st.sampled_from([0.125, 0.5, 2.0, 16.0]))
def test_it_is_the_same_in_every_unit(former: list[float], newer: list[float], unit: float) -> None:
    scaled = allowance([value * unit for value in former], [value * unit for value in newer])
    assert scaled == pytest.approx(unit * (allowance(former, newer) or 0.0))


@given(rounds(least=2), rounds(least=2), positive)
def test_a_round_that_went_astray_never_makes_it_stricter(former: list[float], newer: list[float], by: float) -> None:
    *others, slowest = sorted(newer)
    astray = [*others, slowest + by]
    assert (allowance(former, astray) or 0.0) >= (allowance(former, newer) or 0.0) * (1 - 1e-9)


@given(rounds(least=2), rounds(least=2))
def test_a_twentieth_is_always_allowed(former: list[float], newer: list[float]) -> None:
    assert (allowance(former, newer) or 0.0) >= LEAST * statistics.median(former)


def called_worse(number: int, deviation: float, slower: float) -> float:
    """How often a run of so many rounds is, if it is so much slower."""
    chance = random.Random(number)
    draws = 1500
    worse = 0
    for _ in range(draws):
        former = [chance.lognormvariate(0, deviation) for _ in range(number)]
        newer = [slower * chance.lognormvariate(0, deviation) for _ in range(number)]
        worse += statistics.median(newer) - statistics.median(former) > (allowance(former, newer) or 0.0)
    return worse / draws


@pytest.mark.parametrize(("number", "most"), [(2, 0.04), (3, 0.02), (5, 0.01)])
@pytest.mark.parametrize("deviation", [0.03, 0.1, 0.3])
def test_what_has_not_changed_is_seldom_called_worse(number: int, most: float, deviation: float) -> None:
    assert called_worse(number, deviation, slower=1.0) <= most


@pytest.mark.parametrize(("number", "deviation", "slower"), [(3, 0.03, 1.25), (3, 0.1, 2.0), (5, 0.1, 1.6)])
def test_what_is_clearly_slower_is_called_so(number: int, deviation: float, slower: float) -> None:
    assert called_worse(number, deviation, slower) >= 0.9
