from __future__ import annotations

import pytest

from tony_provider.cluster.lifetime import problems, seconds_left
from tony_provider.runtime.spec.model import Duration, Moment, Timeouts

NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("lifetime", "deadline", "left"),
    [
        (None, None, None),
        (60.0, None, 60.0),
        (None, NOW + 90, 90.0),
        (60.0, NOW + 90, 60.0),
        (600.0, NOW + 90, 90.0),
    ],
)
def test_the_shorter_one_counts(lifetime: float | None, deadline: float | None, left: float | None) -> None:
    timeouts = Timeouts(
        lifetime=None if lifetime is None else Duration(lifetime),
        deadline=None if deadline is None else Moment(deadline),
    )
    assert seconds_left(timeouts, NOW) == left
    assert problems(timeouts, NOW) == []


def test_a_deadline_that_is_over_is_named() -> None:
    (problem,) = problems(Timeouts(deadline=Moment(NOW - 1)), NOW)
    assert "timeouts.deadline: 2027-01-15T07:59:59+00:00 is over" in problem
