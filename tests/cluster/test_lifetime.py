from __future__ import annotations

import pytest

from tony_provider.cluster.lifetime import problems, seconds_left
from tony_provider.runtime.jobspec.model import Duration, JobSpec, Moment, OpenHours, TaskSpec, Timeouts, Windows

NOW = 1_800_000_000.0  # Friday, 09:00 in Berlin


def job(timeouts: Timeouts, *windows: str) -> JobSpec:
    hours = Windows([OpenHours(each) for each in windows], "Europe/Berlin") if windows else None
    return JobSpec("standalone", {"worker": TaskSpec("true")}, timeouts=timeouts, windows=hours)


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
    assert problems(job(timeouts), NOW) == []


def test_a_deadline_that_is_over_is_named() -> None:
    (problem,) = problems(job(Timeouts(deadline=Moment(NOW - 1))), NOW)
    assert "timeouts.deadline: 2027-01-15T07:59:59+00:00 is in the past" in problem


def test_a_job_that_would_end_before_a_window_opens_is_refused() -> None:
    hour = Duration(3600)
    assert problems(job(Timeouts(lifetime=hour), "08:00-18:00"), NOW) == []
    assert problems(job(Timeouts(), "22:00-06:00"), NOW) == []
    assert problems(job(Timeouts(lifetime=Duration(14 * hour)), "22:00-06:00"), NOW) == []
    (problem,) = problems(job(Timeouts(lifetime=hour), "22:00-06:00"), NOW)
    assert problem == (
        "windows: no window opens before the job ends: the next one opens at Fri 22:00 (Europe/Berlin), but the "
        "job's time ends at 2027-01-15T09:00:00+00:00 (timeouts.lifetime, timeouts.deadline)"
    )
