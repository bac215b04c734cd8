"""Jobs with more tasks than there is room for: each begins as soon as its container is there."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.left import assert_nothing_left
from tests.jobs.places import LocalPlace, Place, YarnPlace
from tests.waiting import until
from tony_provider.runtime.protocol.status import FinalStatus, JobState, TaskState

COMMAND = """
echo "$TONY_RANK of $TONY_WORLD_SIZE"
echo "$TONY_RANK" >> "$DONE"
"""


def scoring(tasks: int, command: str, **more: Any) -> dict[str, Any]:
    return {
        "start": "first-come",
        "tasks": {"scorer": {"instances": tasks, "memory": "1GiB", "command": command, **more.pop("task", {})}},
        **more,
    }


def two_at_a_time(place: LocalPlace) -> LocalPlace:
    place.extra.update(local_vcores=2, local_memory=8192)
    return place


def test_more_tasks_than_fit_all_have_their_turn(local: LocalPlace, tmp_path: Path) -> None:
    done = tmp_path / "done"
    job = two_at_a_time(local).submit(scoring(6, COMMAND, env={"DONE": str(done)}))

    status = job.succeeded()

    assert [task.state for task in status.tasks] == [TaskState.SUCCEEDED] * 6
    assert sorted(done.read_text().split()) == list("012345")
    assert all(f"{rank} of 6" in job.log(f"scorer:{rank}") for rank in range(6))
    assert status.restarts == 0
    assert_nothing_left(local, job)


@pytest.mark.long
def test_one_that_is_done_makes_room_for_the_next(place: Place, open_directory: Path) -> None:
    """Rank 0 goes on until all the others have ended."""
    command = 'touch "$DONE/$TONY_RANK"; test $TONY_RANK != 0 || until test -e "$DONE/5"; do sleep 0.1; done'
    task = {"memory": place.most_of_a_node} if isinstance(place, YarnPlace) else {}
    if isinstance(place, LocalPlace):
        two_at_a_time(place)
    job = place.submit(scoring(6, command, env={"DONE": str(open_directory)}, task=task))

    status = job.succeeded()

    assert [task.state for task in status.tasks] == [TaskState.SUCCEEDED] * 6
    over = [event["task"] for event in job.events() if event["event"] == "over"]
    assert "scorer:0" not in over[:3]
    assert len(over) >= 3  # or the others had found no room
    assert_nothing_left(place, job)


def test_the_next_master_knows_what_is_over(yarn: YarnPlace, open_directory: Path) -> None:
    go, tasks = open_directory / "go", yarn.nodes + 2
    command = f"echo ran >> {open_directory}/$TONY_RANK; test $TONY_RANK = 0 || until test -e {go}; do sleep 0.1; done"
    job = yarn.submit(scoring(tasks, command, task={"memory": yarn.most_of_a_node}))
    until((open_directory / "1").exists, job.describe)
    job.until(JobState.RUNNING)
    until(lambda: "over" in [event["event"] for event in job.events()], job.describe)
    until((open_directory / str(yarn.nodes)).exists, job.describe)  # in the room of rank 0

    os.kill(job.master().pid, signal.SIGKILL)
    until(lambda: "recovered" in [event["event"] for event in job.events()], job.describe)
    go.touch()

    status = job.succeeded()
    assert [task.state for task in status.tasks] == [TaskState.SUCCEEDED] * tasks
    assert status.am_attempt == 2
    assert [(open_directory / str(rank)).read_text() for rank in range(tasks)] == ["ran\n"] * tasks
    assert_nothing_left(yarn, job)


def test_a_few_may_fail_where_the_job_says_so(local: LocalPlace) -> None:
    command = "test $TONY_RANK != 2 || { echo 'a bad shard' >&2; exit 3; }"
    spec = scoring(4, command, tolerated_failures="25%", restart={"budget": 0})
    job = two_at_a_time(local).submit(spec)

    status = job.succeeded()

    assert [task.state for task in status.tasks].count(TaskState.FAILED) == 1
    assert "1 of 4 tasks failed, within tolerated_failures" in job.application().diagnostics
    (warning,) = [warning for warning in status.warnings if "scorer:2" in warning]
    assert "a bad shard" in warning
    assert "a bad shard" in job.log("scorer:2")
    assert "logs/scorer-2.log" not in job.files()  # the master has stored it, together with other logs


@pytest.mark.long
def test_one_failure_too_many_is_the_job_s(local: LocalPlace) -> None:
    spec = scoring(4, "test $TONY_RANK -lt 2 || exit 3", tolerated_failures=1, restart={"budget": 0})
    job = two_at_a_time(local).submit(spec)

    diagnostics = job.failed()

    assert "more failures than tolerated_failures allows (1)" in diagnostics
    assert job.application().final_status is FinalStatus.FAILED
