"""A try that has ended, as it is told to others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from tony_provider.cluster.base import Application
from tony_provider.exceptions import TonyJobFailed, TonyKilledExternally, TonyTaskKilled
from tony_provider.operators.tries import TaskRun
from tony_provider.runtime.protocol.status import FinalStatus, JobStatus
from tony_provider.runtime.text import first_line

if TYPE_CHECKING:
    from tony_provider.cluster.history.job_summary import JobSummary

_KILLED = (TonyKilledExternally, TonyTaskKilled)


@attrs.frozen(kw_only=True)
class EndedTry:
    """How a try of a training task has ended, and what is known of its application by then."""

    run: TaskRun
    application_id: str  # empty: none was submitted
    error: BaseException | None = None  # that the task fails with; None: it has succeeded
    application: Application | None = None  # None: the cluster does not know it, or was not asked in the end
    status: JobStatus | None = None  # None: it has left none, or was not asked in the end
    summary: JobSummary | None = None

    @property
    def verdict(self) -> FinalStatus:
        if self.error is None:
            return FinalStatus.SUCCEEDED
        return FinalStatus.KILLED if isinstance(self.error, _KILLED) else FinalStatus.FAILED

    @property
    def kind(self) -> str:
        """Why it has failed: a FailureKind, or the name of the error where the job itself says none; else empty."""
        if self.error is None:
            return ""
        if isinstance(self.error, TonyJobFailed) and self.error.failure is not None:
            return self.error.failure.kind.value
        return type(self.error).__name__

    @property
    def reason(self) -> str:
        """The first line of the error."""
        return first_line(str(self.error)) if self.error is not None else ""

    @property
    def queue(self) -> str:
        return self.application.queue if self.application is not None else ""

    @property
    def started_ms(self) -> int | None:
        """When it was submitted, or else when its master began."""
        known = (self.application, self.status)
        return next((each.started_ms for each in known if each is not None and each.started_ms), None)

    @property
    def finished_ms(self) -> int | None:
        known = (self.application, self.status)
        return next((each.finished_ms for each in known if each is not None and each.finished_ms), None)

    @property
    def total_seconds(self) -> float | None:
        if self.started_ms is None or self.finished_ms is None:
            return None
        return max(0, self.finished_ms - self.started_ms) / 1000

    @property
    def waiting_seconds(self) -> float | None:
        times = self.status.times if self.status is not None else None
        return times.waiting if times is not None else None

    @property
    def training_seconds(self) -> float | None:
        times = self.status.times if self.status is not None else None
        return times.training if times is not None else None
