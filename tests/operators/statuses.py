"""Statuses of jobs to look at."""

from __future__ import annotations

from typing import Any

from tony_provider.cluster.interface import Application, ApplicationState
from tony_provider.runtime.protocol.status import JobState, JobStatus, TaskProgress, TaskState, TaskStatus

ID = "application_1700000000000_0001"


def application(state: str = "RUNNING", **fields: Any) -> Application:
    return Application(ID, ApplicationState(state), **fields)


def status(state: str = "RUNNING", step: int | None = None, **fields: Any) -> JobStatus:
    """``step``, and the other fields of TaskProgress, are those of worker:0, which is its only task then."""
    reported = {key: fields.pop(key) for key in ("total_steps", "steps_per_second", "metrics") if key in fields}
    if step is not None:
        task = TaskStatus("worker", 0, TaskState.RUNNING, progress=TaskProgress(step, **reported))
        fields |= {"leader": task.name, "tasks": [task]}
    return JobStatus(ID, "digits", JobState(state), **fields)


def worker(index: int, state: str = "RUNNING", step: int | None = None, **fields: Any) -> TaskStatus:
    progress = TaskProgress(step, steps_per_second=2.5) if step is not None else None
    return TaskStatus("worker", index, TaskState(state), progress=progress, **fields)
