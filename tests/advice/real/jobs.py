"""Real jobs for rules to judge: a training of ``programs/fit.py``, and what is known of it after its end."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

from tests.jobs.job import Job
from tests.jobs.places import Place
from tests.waiting import until
from tony_provider.cluster.records.history import JobHistory
from tony_provider.cluster.records.summary import JobSummary
from tony_provider.operators.advice import Adviser
from tony_provider.runtime.protocol.status import TaskState, TaskStatus

PROGRAM = Path(__file__).parent / "programs" / "fit.py"
SECONDS = 400.0  # that any job here may take, on a machine that is busy
TASK = {"dag_id": "visits", "task_id": "fit"}  # whose former runs are kept


def fit(options: str = "", *, job: dict[str, Any] | None = None, **task: Any) -> dict[str, Any]:
    """A job that trains with these arguments of the program; ``task``: more about its workers."""
    worker = {"command": f"exec python3 fit.py {options}", "memory": "256MiB", **task}
    return {"files": [str(PROGRAM)], "tasks": {"worker": worker}, **(job or {})}


@attrs.frozen
class Ran:
    """A job that has ended, and what is known of it and of former runs of its task."""

    job: Job
    history: JobHistory
    former: Sequence[JobSummary] = ()

    @property
    def place(self) -> str:
        return "local" if self.job.hook.layout.root.startswith("file:") else "YARN"


def submitted(place: Place, *specs: dict[str, Any], **more: Any) -> list[Job]:
    """So many jobs that run at the same time; ``more`` are fields of their SubmissionRequests."""
    return [place.submit(spec, **more) for spec in specs]


def lose(job: Job, name: str) -> str:
    """Kill a task's executor when its program runs, and wait until it runs again elsewhere; the node that it was on."""
    task = until(lambda: _running(job, name), job.describe)
    executor = next(each for each in job.executors() if (task.container_id or "?").encode() in each.environment)
    os.kill(executor.pid, signal.SIGKILL)
    until(lambda: again if (again := _running(job, name)) and again.attempt > task.attempt else None, job.describe)
    return task.node or ""


def _running(job: Job, name: str) -> TaskStatus | None:
    status = job.hook.job_status(job.identity, job.id)
    assert not job.application().is_final, job.describe()
    tasks = status.tasks if status else []
    return next((each for each in tasks if each.name == name and each.state is TaskState.RUNNING), None)


def ran(job: Job) -> Ran:
    """Once it has ended."""
    job.end(SECONDS)
    history = job.handle.history()
    assert history.missing == [], job.describe()
    return Ran(job, history)


def ran_again(jobs: Sequence[Job]) -> Ran:
    """The last of several runs of TASK, each judged and kept when it has ended, as the operator does it."""
    log: Any = logging.getLogger(__name__)
    for job in jobs[:-1]:
        job.end(SECONDS)
        Adviser(job.hook, job.identity, log).conclude(job.handle)
    last = ran(jobs[-1])
    former = last.job.hook.former_runs(TASK).summaries
    assert [each.application_id for each in former] == [each.id for each in jobs[:-1]]
    return attrs.evolve(last, former=former)
