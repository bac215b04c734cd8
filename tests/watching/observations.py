"""Observations of jobs, and a clock that is set by hand."""

from __future__ import annotations

from typing import Any

import attrs

from tests.operators.statuses import ID, application, status
from tony_provider.cluster.training.identity import Identity
from tony_provider.runtime.protocol.status import FinalStatus
from tony_provider.watching.job_poller import FoundApplication, JobObservation, JobTarget

TRAINING = Identity("digits", "0123456789abcdef0123")
FOUND = FoundApplication(ID, TRAINING)
OF_TRAINING, BY_ID, BY_TAG = JobTarget(identity=TRAINING), JobTarget(application_id=ID), JobTarget(tag="nightly")
FINAL = ("SUCCEEDED", "FAILED", "KILLED")


@attrs.define
class Clock:
    now: float = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


def nothing() -> JobObservation:
    return JobObservation()


def seen(state: str = "RUNNING", cluster: str | None = None, **fields: Any) -> JobObservation:
    """A job in this state, and its application in what goes with that, or ``cluster``."""
    if cluster is None:
        cluster = "FINISHED" if state in FINAL else "RUNNING"
    final = FinalStatus(state) if state in FINAL and cluster == "FINISHED" else None
    return JobObservation(application(cluster, final_status=final), status(state, **fields), found=FOUND)


def without_status(cluster: str, **fields: Any) -> JobObservation:
    return JobObservation(application(cluster, **fields), found=FOUND)
