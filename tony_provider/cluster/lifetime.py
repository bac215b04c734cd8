"""How long an application may live: the shorter of its lifetime and the time to its deadline."""

from __future__ import annotations

from datetime import UTC, datetime

from tony_provider.runtime.spec.model import Timeouts


def seconds_left(timeouts: Timeouts, now: float) -> float | None:
    """The seconds from ``now`` (epoch) that an application which begins then may live; None: for ever."""
    limits = [
        *([timeouts.lifetime] if timeouts.lifetime is not None else []),
        *([timeouts.deadline - now] if timeouts.deadline is not None else []),
    ]
    return min(limits, default=None)


def problems(timeouts: Timeouts, now: float) -> list[str]:
    """What is wrong with the job's limits: a deadline that is over; empty when there is time left."""
    if timeouts.deadline is None or timeouts.deadline > now:
        return []
    deadline = datetime.fromtimestamp(timeouts.deadline, UTC)
    return [f"timeouts.deadline: {deadline.isoformat(timespec='seconds')} is over; name one that is yet to come"]
