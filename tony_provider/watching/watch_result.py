"""How the watch over a job has ended, and until when it may go on."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum

import attrs

from tony_provider.cluster.base import Application
from tony_provider.runtime.protocol.status import JobStatus

_DEFER_SLACK = 300.0  # seconds after a deadline, until which a triggerer that is down may come back


class Reason(StrEnum):
    """Why there is nothing more to watch."""

    FINISHED = "finished"  # well or not
    FORGOTTEN = "forgotten"  # the cluster does not know it, and it left no result
    DEADLINE = "deadline"  # of this try of the task
    QUEUE_TIMEOUT = "queue_timeout"


@attrs.frozen
class WatchResult:
    """How a watch has ended, with what was last seen of the application."""

    reason: Reason
    last_message: str = ""  # the job's own last word on what it was doing or waiting for
    application: Application | None = None  # as last seen
    status: JobStatus | None = None  # as last seen


@attrs.frozen
class WatchLimits:
    """When a watch ends at the latest: epoch seconds by the cluster's clock; None: no limit.

    The processes of Airflow that count them may run on machines whose clocks differ.
    """

    end: float | None = None  # of this try of the task
    queue: float | None = None  # until which the job may wait for its containers, before they were ever all there

    def next_after(self, now: float) -> float | None:
        """The earliest limit that is still to come; None: there is none."""
        return min((each for each in (self.end, self.queue) if each is not None and each > now), default=None)


def deferral_timeout(end: float, now: float) -> timedelta:
    """The timeout of a deferral for a task that may wait until ``end``, in epoch seconds by the clock of ``now``.

    An expired deferral calls nobody, so the trigger minds the deadline; this is for when there is no trigger.
    """
    return timedelta(seconds=max(0.0, end - now) + _DEFER_SLACK)
