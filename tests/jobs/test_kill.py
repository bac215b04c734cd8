"""Jobs that do not end by themselves."""

from __future__ import annotations

import signal
from typing import Any

from tests.hadoop.processes import Process
from tests.jobs.job import Job
from tests.jobs.left import assert_nothing_left
from tests.jobs.places import LocalPlace, Place, YarnPlace
from tests.waiting import settled
from tony_provider.cluster.interface import ApplicationState
from tony_provider.runtime.protocol.status import FailureKind, FinalStatus, JobState

# Deaf to SIGTERM, with a child that has left its process group.
STUBBORN = "trap '' TERM; setsid sleep 1000 & echo ready; while :; do sleep 1; done"


def stubborn_job(place: Place, **more: Any) -> Job:
    spec: dict[str, Any] = {
        **more,
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
    job.handle.clean_up()
    assert_nothing_left(place, job)
    if isinstance(place, LocalPlace):
        # YARN leaves a master a quarter of a second, which may not be enough to say so.
        assert job.status().state is JobState.KILLED
    assert "the task was cleared" in job.application().diagnostics


def test_a_job_killed_before_it_began(place: Place) -> None:
    job = place.submit({"tasks": {"worker": {"memory": "128MiB", "command": "sleep 1000"}}})

    job.hook.kill(job.id, "never mind")

    assert job.end().state is ApplicationState.KILLED
    job.handle.clean_up()
    assert_nothing_left(place, job)


def test_a_job_killed_while_it_waits_for_room(yarn: YarnPlace) -> None:
    yarn.extra["autoscaling"] = True  # or it would be refused
    memory = yarn.most_of_a_node
    job = yarn.submit({"tasks": {"worker": {"instances": yarn.nodes + 1, "memory": memory, "command": "sleep 1000"}}})
    job.until(JobState.WAITING)

    job.hook.kill(job.id, "not today")

    application = job.end()
    assert application.state is ApplicationState.KILLED
    assert "not today" in application.diagnostics
    job.handle.clean_up()
    assert_nothing_left(yarn, job)


def test_an_executor_that_dies_fails_a_job_without_restarts_and_leaves_nothing(place: Place) -> None:
    spec: dict[str, Any] = {
        "restart": {"budget": 0},
        "tasks": {
            "worker": {"instances": 2, "memory": "128MiB", "command": "setsid sleep 1000 & echo ready; sleep 1000"}
        },
    }
    job = place.submit(spec)
    job.until(JobState.RUNNING)
    for task in ("worker:0", "worker:1"):
        job.until_said(task, "ready")
    executor = Process.of(job.executors()[0].pid)
    assert executor is not None

    executor.signal(signal.SIGKILL)

    diagnostics = job.failed()
    failure = job.status().failure
    assert failure is not None
    assert failure.kind is FailureKind.CONTAINER_LOST
    assert diagnostics.startswith(f"the container of {failure.task} on {job.nodes(str(failure.task))[0]} ended")
    assert "SIGKILL" in diagnostics
    assert_nothing_left(place, job)


def test_a_job_that_outlives_its_lifetime(place: Place) -> None:
    job = place.run(
        {"timeouts": {"lifetime": "4s"}, "tasks": {"worker": {"memory": "128MiB", "command": "sleep 1000"}}}
    )

    application = job.end()
    assert application.state is ApplicationState.KILLED or application.final_status is FinalStatus.KILLED
    assert "lifetime" in application.diagnostics.lower()
    job.handle.clean_up()
    assert_nothing_left(place, job)


def test_the_last_application_master_that_dies_takes_its_tasks_with_it(place: Place) -> None:
    """The local cluster starts one, YARN as many as it is told."""
    job = stubborn_job(place, am={"memory": "256MiB", "attempts": 1})
    master = Process.of(job.master().pid)
    assert master is not None

    master.signal(signal.SIGKILL)

    application = job.end()
    assert application.state is ApplicationState.FAILED
    if isinstance(place, LocalPlace):
        assert "the application master ended without a report on the job" in application.diagnostics
    else:
        assert "137" in application.diagnostics
    assert settled(job.processes) == []
    job.handle.clean_up()
    assert_nothing_left(place, job)
