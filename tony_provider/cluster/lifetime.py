"""How long an application may live: the shorter of its lifetime and the time to its deadline."""

from __future__ import annotations

from datetime import UTC, datetime

from tony_provider.cluster.zone_offsets import zone_offsets
from tony_provider.runtime.spec.model import JobSpec, Timeouts
from tony_provider.runtime.spec.opening_hours import Week, read_hours


def seconds_left(timeouts: Timeouts, now: float) -> float | None:
    """The seconds from ``now`` (epoch) that an application which begins then may live; None: for ever."""
    limits = [
        *([timeouts.lifetime] if timeouts.lifetime is not None else []),
        *([timeouts.deadline - now] if timeouts.deadline is not None else []),
    ]
    return min(limits, default=None)


def problems(job: JobSpec, now: float) -> list[str]:
    """What is wrong with the job's limits: there is no time left, or none in its windows; empty when there is."""
    deadline = job.timeouts.deadline
    if deadline is not None and deadline <= now:
        return [f"timeouts.deadline: {_written(deadline)} is over; name one that is yet to come"]
    left = seconds_left(job.timeouts, now)
    if job.windows is None or left is None:
        return []
    week = Week(map(read_hours, job.windows.open), zone_offsets(job.windows.zone, now))
    opening = week.next_opening(now)
    if opening - now < left:
        return []
    when = f"{week.in_words(opening)} ({job.windows.zone})"
    return [
        f"windows: none opens before the job ends: the next one at {when}, and its time is over at "
        f"{_written(now + left)} (timeouts.lifetime, timeouts.deadline)"
    ]


def _written(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds")
