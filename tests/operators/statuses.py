"""Statuses of jobs to look at."""

from __future__ import annotations

from typing import Any

from tony_provider.cluster.base import Application, ApplicationState
from tony_provider.runtime.protocol.status import JobState, JobStatus, TaskProgress, TaskState, TaskStatus

ID = "application_1700000000000_0001"


def application(state: str = "RUNNING", **fields: Any) -> Application:
    return Application(ID, ApplicationState(state), **fields)


def status(state: str = "RUNNING", **fields: Any) -> JobStatus:
    return JobStatus(ID, "digits", JobState(state), **fields)


def worker(index: int, state: str = "RUNNING", step: int | None = None, **fields: Any) -> TaskStatus:
    progress = TaskProgress(step, steps_per_second=2.5) if step is not None else None
    return TaskStatus("worker", index, TaskState(state), progress=progress, **fields)
