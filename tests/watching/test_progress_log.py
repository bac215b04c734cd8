from __future__ import annotations

import re
from typing import Any

import pytest

from tests.operators.statuses import ID, application, status, worker
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.protocol.status import Failure, FailureKind
from tony_provider.watching.progress_log import MAX_ROWS, PROGRESS_INTERVAL, ProgressLog


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


_ENDING = ("FINISHING", "FAILED")


def test_says_each_state_once() -> None:
    log = ProgressLog()
    waiting = status("WAITING", message="1 of 2 containers")
    assert log.lines(application("ACCEPTED", queue="ml"), None) == [f"{ID} is ACCEPTED in queue ml"]
    assert log.lines(application("ACCEPTED", queue="ml"), None) == []
    assert log.lines(application(queue="ml"), waiting) == [
        f"{ID} is RUNNING in queue ml",
        "Job is WAITING: 1 of 2 containers",
    ]
    assert log.lines(application(queue="ml"), waiting) == []


def test_a_success_is_told_once() -> None:
    log = ProgressLog()
    done = status("SUCCEEDED", message="the job has succeeded")
    log.lines(application(queue="ml"), status())
    assert log.lines(application("FINISHED", queue="ml"), done) == ["Job is SUCCEEDED"]
    failed = status("FAILED", message="worker:0 exited with 1")
    assert ProgressLog().lines(application("FINISHED"), failed) == [
        f"{ID} is FINISHED",
        "Job is FAILED: worker:0 exited with 1",
    ]


def test_why_a_job_fails_is_told_once() -> None:
    log = ProgressLog()
    lines = [log.lines(application(), status(state, message="worker:0 exited with 1")) for state in _ENDING]
    assert [each[-1] for each in lines] == ["Job is FINISHING: worker:0 exited with 1", "Job is FAILED"]


def test_the_cause_of_a_failure_comes_first() -> None:
    failure = Failure(FailureKind.USER, "worker:0 exited with 1", "worker:0", cause="ValueError: no data")
    failed = status("FAILED", message=failure.message, failure=failure)
    assert ProgressLog().lines(application("FINISHED"), failed)[-1] == (
        "Job is FAILED: ValueError: no data; worker:0 exited with 1"
    )


def test_a_table_of_the_tasks_when_one_changes() -> None:
    log = ProgressLog()
    both = [worker(0, node="node1:45454", step=20, rss_bytes=300 << 20), worker(1, "STARTING")]
    log.lines(application(), status(tasks=[worker(0, "STARTING"), worker(1, "STARTING")]))
    assert log.lines(application(), status(tasks=both)) == [
        "task      state     node         step  steps/s  memory",
        "worker:0  RUNNING   node1:45454  20    2.5      300 MiB",
        "worker:1  STARTING  -            -     -        -",
    ]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"start": 2}, "RUNNING (start 2)"),
        ({"start": 3, "attempt": 2}, "RUNNING (start 3, container 2)"),
        ({"start": 0, "attempt": 2}, "RUNNING (container 2)"),
    ],
)
def test_a_task_that_was_started_again_says_so(fields: dict[str, Any], words: str) -> None:
    log = ProgressLog()
    log.lines(application(), status(tasks=[worker(0, start=1)]))
    lines = log.lines(application(), status(tasks=[worker(0, **fields)]))
    assert re.split(r"  +", lines[1]) == ["worker:0", words, "-", "-", "-", "-"]


def test_restarts_in_plain_words() -> None:
    log = ProgressLog()

    def lines(state: str, **fields: Any) -> list[str]:
        return log.lines(application(), status(state, **fields))

    assert lines("RUNNING", generation=1)[1:] == ["Job is RUNNING"]
    assert lines("RESTARTING", generation=1, restarts=1, message="worker:0 exited with 1") == [
        "Job is RESTARTING (restart 1): worker:0 exited with 1"
    ]
    assert lines("RUNNING", generation=2, restarts=1) == [
        "Job is RUNNING (restart 1)",
        "The job trains from the beginning (generation 2): no checkpoint was on the store",
    ]
    lines("RESTARTING", generation=2, restarts=2)
    assert lines("RUNNING", generation=3, restarts=2, resumed=ResumePoint(120, "hdfs://n/c")) == [
        "Job is RUNNING (restart 2)",
        "The job resumes from a snapshot (step 120) (generation 3)",
    ]
    lines("RESTARTING", generation=3, restarts=3)
    assert lines("SUCCEEDED", generation=4, restarts=3, resumed=ResumePoint(240, "hdfs://n/c"))[-1].endswith(
        "(step 240) (generation 4)"
    )


def test_the_cause_of_a_restart_is_logged_even_if_the_restart_itself_was_not_observed() -> None:
    log = ProgressLog()

    def lines(state: str, **fields: Any) -> list[str]:
        return log.lines(application(), status(state, **fields))

    killed = Failure(FailureKind.USER, "worker:1 on n1 was killed by SIGKILL", "worker:1", signal=9)
    raised = Failure(FailureKind.USER, "worker:0 on n0 ended with exit code 1", "worker:0", 1, cause="ValueError: no")
    lines("RUNNING", generation=1)
    resumed = ResumePoint(39, "hdfs://n/c")
    assert lines("RUNNING", generation=2, restarts=1, resumed=resumed, restarted_after=killed)[-1] == (
        "worker:1 on n1 was killed by SIGKILL; restart 1 resumes from a snapshot (step 39) (generation 2)"
    )
    assert lines("RUNNING", generation=2, restarts=1, resumed=resumed, restarted_after=killed) == []
    assert lines("RUNNING", generation=3, restarts=2, restarted_after=raised)[-1] == (
        "ValueError: no; worker:0 on n0 ended with exit code 1; restart 2 trains from the beginning (generation 3): "
        "no checkpoint was on the store"
    )
    assert lines("RUNNING", generation=3, restarts=3, restarted_after=killed)[-1] == (
        "worker:1 on n1 was killed by SIGKILL; worker:1 restarts (restart 3)"
    )
    assert lines("RUNNING", generation=4, restarts=4, resumed=resumed)[-1] == (
        "The job resumes from a snapshot (step 39) (generation 4)"
    )


def test_a_job_that_is_suspended_and_goes_on() -> None:
    log = ProgressLog()

    def lines(state: str, **fields: Any) -> list[str]:
        return log.lines(application(), status(state, **fields))

    lines("RUNNING", generation=1)
    assert lines("SUSPENDED", generation=1, message="it is day") == ["Job is SUSPENDED: it is day"]
    assert lines("SUSPENDED", generation=1, message="it is day") == []
    assert lines("RUNNING", generation=2, resumed=ResumePoint(120, "hdfs://n/c")) == [
        "Job is RUNNING",
        "The job resumes from a snapshot (step 120)",
    ]


def test_a_job_that_begins_again_without_a_restart() -> None:
    """Its application master and all containers were lost."""
    log = ProgressLog()
    log.lines(application(), status("RUNNING", generation=1))
    assert log.lines(application(), status("RUNNING", generation=2, am_attempt=2))[-1] == (
        "The job trains from the beginning: no checkpoint was on the store"
    )


def test_a_new_application_master_in_plain_words() -> None:
    log = ProgressLog()
    fields: dict[str, Any] = {"generation": 3, "restarts": 2, "resumed": ResumePoint(120, "hdfs://n/c")}
    log.lines(application(), status("RUNNING", **fields))
    assert log.lines(application(), status("RECOVERING", **fields)) == [
        "Job is RECOVERING (its application master was restarted, its tasks continue)"
    ]
    assert log.lines(application(), status("RUNNING", **fields)) == ["Job is RUNNING (restart 2)"]


def test_a_first_generation_that_resumes_says_from_which_step() -> None:
    lines = ProgressLog().lines(application(), status(generation=1, resumed=ResumePoint(0, "hdfs://n/c")))
    assert lines[-1] == "The job resumes from a snapshot (step 0)"


def test_memory_and_steps_alone_are_no_reason_for_a_table() -> None:
    log = ProgressLog()
    log.lines(application(), status(tasks=[worker(0, step=1)]))
    assert log.lines(application(), status(tasks=[worker(0, step=2, rss_bytes=1 << 30)])) == []


def test_a_large_gang_is_summed_up() -> None:
    tasks = [worker(index, "RUNNING" if index < 90 else "STARTING") for index in range(100)]
    lines = ProgressLog().lines(application(), status(tasks=tasks))
    assert lines[-1] == "of 100 tasks: 90 RUNNING, 10 STARTING"
    assert sum(line.startswith("worker:") for line in lines) == MAX_ROWS


def test_progress_now_and_then_and_at_the_end() -> None:
    clock = Clock()
    log = ProgressLog(clock)

    def lines(state: str, step: int) -> list[str]:
        told = log.lines(application(), status(state, step=step, total_steps=300, steps_per_second=8.44))
        return [line for line in told if line.startswith("step")]

    assert lines("RUNNING", 1) == ["step 1 of 300 (0 %), 8.44 steps/s, about 35 s left"]
    assert lines("RUNNING", 50) == []
    clock.now += PROGRESS_INTERVAL
    assert lines("RUNNING", 100) == ["step 100 of 300 (33 %), 8.44 steps/s, about 24 s left"]
    assert lines("RUNNING", 100) == []
    assert lines("FAILED", 200) == ["step 200 of 300 (66 %), 8.44 steps/s"]
    assert lines("SUCCEEDED", 300) == ["step 300 of 300 (100 %), 8.44 steps/s"]


def test_metrics_and_checkpoint_stand_beside_the_step() -> None:
    metrics = {"loss": 0.123456, "accuracy": 0.9}
    assert ProgressLog().lines(application(), status(step=5, metrics=metrics))[-1] == "step 5, accuracy=0.9 loss=0.1235"
    lines = ProgressLog().lines(application(), status(step=5, metrics=metrics, checkpoint=ResumePoint(4, "hdfs://n/c")))
    assert lines[-1] == "step 5, accuracy=0.9 loss=0.1235, checkpoint 4"


def test_a_checkpoint_without_a_step_is_told_by_its_save() -> None:
    point = ResumePoint(None, "hdfs://n/c", 7, 50_592_000)
    assert ProgressLog().lines(application(), status(generation=1, resumed=point))[-1] == (
        "The job resumes from snapshot 7 (saved 14:03:12 UTC)"
    )
    line = ProgressLog().lines(application(), status(step=5, checkpoint=point))[-1]
    assert line == "step 5, snapshot 7 (saved 14:03:12 UTC)"


def test_a_warning_is_told_once_for_as_long_as_it_lasts() -> None:
    log = ProgressLog()

    def lines(*warnings: str) -> list[str]:
        return log.lines(application(), status("RUNNING", warnings=list(warnings)))

    assert lines("the store is full")[-1] == "Warning: the store is full"
    assert lines("the store is full") == []
    assert lines() == []
    assert lines("the store is full", "a side-car failed") == [
        "Warning: the store is full",
        "Warning: a side-car failed",
    ]
