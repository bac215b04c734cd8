"""Tries that have ended, to be told to others."""

from __future__ import annotations

from typing import Any

from tests.operators.statuses import ID, application, status
from tony_provider.operators.try_state import EndedTry, TaskInstanceInfo
from tony_provider.runtime.protocol.status import FinalStatus, TimeUse

START = 1_795_000_000_000  # epoch ms
RUN = TaskInstanceInfo("clicks", "scheduled__2026-01-05", "train", try_number=2)


def ended(error: BaseException | None = None, **fields: Any) -> EndedTry:
    """Of a job that took a hundred seconds, and trained for sixty of these."""
    known: dict[str, Any] = {
        "application": application(
            "FINISHED",
            final_status=FinalStatus.SUCCEEDED if error is None else FinalStatus.FAILED,
            queue="ml",
            started_ms=START,
            finished_ms=START + 100_000,
        ),
        "status": status(
            "SUCCEEDED" if error is None else "FAILED",
            step=40,
            steps_per_second=2.5,
            metrics={"loss": 0.25},
            restarts=2,
            times=TimeUse(queue=5.0, allocation=10.0, training=60.0),
        ),
    }
    return EndedTry(run=RUN, application_id=ID, error=error, **{**known, **fields})
