"""Jobs that do not end by themselves."""

from __future__ import annotations

import signal
from typing import Any

from tests.hadoop.processes import Process
from tests.jobs.job import Job
from tests.jobs.left import assert_nothing_left
from tests.jobs.places import LocalPlace, Place
from tests.jobs.waiting import settled
from tony_provider.cluster.base import ApplicationState
from tony_provider.runtime.protocol.status import JobState

# Deaf to SIGTERM, with a child that has left its process group.
STUBBORN = "trap '' TERM; setsid sleep 1000 & echo ready; while :; do sleep 1; done"


def stubborn_job(place: Place) -> Job:
    spec: dict[str, Any] = {
        "timeouts": {"grace": "2s"},
        "tasks": {"worker": {"instances": 2, "memory": "128MiB", "command": STUBBORN}},
    }
    job = place.submit(spec)
    job.until(JobState.RUNNING)
    for task in ("worker:0", "worker:1"):
        job.until_said(task, "ready")
    return job


def test_a_killed_job_is_gone(place: Place) -> None:
    job = stubborn_job(place)
    assert len([process for process in job.processes() if process.words == "sleep 1000"]) == 2

    job.hook.kill(job.id, "the task was cleared in Airflow")

    application = job.end()
    assert application.state is ApplicationState.KILLED
    assert "the task was cleared in Airflow" in application.diagnostics
    assert settled(job.processes) == []
    job.hook.kill(job.id, "again")
    job.hook.cleanup(job.identity, job.id)
    assert_nothing_left(place, job)
    status = job.hook.job_status(job.identity, job.id)
    assert status is not None
    assert status.state is JobState.KILLED, job.describe()
    assert "the task was cleared" in job.application().diagnostics


def test_a_job_killed_before_it_began(place: Place) -> None:
    job = place.submit({"tasks": {"worker": {"memory": "128MiB", "command": "sleep 1000"}}})

    job.hook.kill(job.id, "never mind")

    assert job.end().state is ApplicationState.KILLED
    job.hook.cleanup(job.identity, job.id)
    assert_nothing_left(place, job)


def test_an_application_master_that_dies_takes_its_tasks_with_it(place: Place) -> None:
    job = stubborn_job(place)
    master = Process.of(job.master().pid)
    assert master is not None

    master.signal(signal.SIGKILL)

    application = job.end()
    assert application.state is ApplicationState.FAILED
    if isinstance(place, LocalPlace):
        assert "the application master ended without saying how the job did" in application.diagnostics
    else:
        assert "137" in application.diagnostics
    assert settled(job.processes) == []
    job.hook.cleanup(job.identity, job.id)
    assert_nothing_left(place, job)
