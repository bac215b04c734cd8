"""Containers that run several processes each: who they are, what each says and leaves, and that they die together."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.job import Job
from tests.jobs.left import assert_nothing_left
from tests.jobs.places import LocalPlace
from tests.jobs.processes import Seen
from tests.waiting import until
from tony_provider.runtime.protocol.status import JobState, TaskState

# Each says who it is and how far it is, and ends when it may; what it leaves tells whose it is.
COMMAND = """
echo "rank $TONY_RANK of $TONY_WORLD_SIZE is $TONY_LOCAL_RANK of $TONY_LOCAL_WORLD_SIZE in worker $TONY_TASK_INDEX,\
 port $TONY_PORT, generation $TONY_GENERATION"
echo "{\\"step\\": 1$TONY_RANK, \\"total_steps\\": 20, \\"loss\\": $TONY_RANK}" >> $TONY_METRICS_FILE
until test -e "$GO"; do sleep 0.1; done
echo "{\\"rank\\": $TONY_RANK}" > $TONY_RESULT_FILE
touch $TONY_MODEL_DIR/of-rank-$TONY_RANK $TONY_CHECKPOINT_DIR/of-rank-$TONY_RANK
"""
_SAID = re.compile(
    r"^\[(\d)\] rank (\d) of 4 is (\d) of 2 in worker (\d), port (\d+), generation (\d+)$",
    re.MULTILINE,
)


def two_by_two(go: Path, command: str = COMMAND) -> dict[str, Any]:
    worker = {"instances": 2, "processes": 2, "memory": "256MiB", "command": command}
    return {"framework": "generic", "env": {"GO": str(go)}, "tasks": {"worker": worker}}


def user_process(job: Job, rank: int) -> Seen:
    mark = f"\0TONY_RANK={rank}\0".encode()
    executors = {executor.pid for executor in job.executors()}
    (found,) = [each for each in job.processes() if each.parent in executors and mark in each.environment]
    return found


def until_all_said(job: Job, text: str) -> None:
    def said() -> bool:
        lines = "".join(job.output(f"worker:{index}") for index in (0, 1)).splitlines()
        return sum(line.startswith("rank ") and text in line for line in lines) == 4

    until(said, job.describe)


def metrics(job: Job) -> list[Any]:
    return [
        (task.progress and task.progress.step, [(each.rank, each.progress and each.progress.step) for each in further])
        for task in job.status().tasks
        for further in [task.further]
    ]


def test_each_has_its_rank_port_log_and_metrics(local: LocalPlace, tmp_path: Path) -> None:
    go = tmp_path / "go"
    job = local.submit(two_by_two(go))
    job.until(JobState.RUNNING)
    until(lambda: metrics(job) == [(10, [(1, 11)]), (12, [(3, 13)])], job.describe)
    status = job.status()
    go.touch()

    assert (status.step, status.metrics) == (10, {"loss": 0})
    assert all(each.rss_bytes for task in status.tasks for each in task.further)
    assert job.succeeded().model_dir == f"{job.directory}/model"
    said = [_SAID.findall(job.log(f"worker:{index}")) for index in (0, 1)]
    who = [sorted((mark, rank, local, task) for mark, rank, local, task, _, _ in each) for each in said]
    assert who == [
        [("0", "0", "0", "0"), ("1", "1", "1", "0")],
        [("0", "2", "0", "1"), ("1", "3", "1", "1")],
    ]
    assert len({port for each in said for *_, port, _ in each}) == 4
    first, second = (folder for folder in local.log_folders(job.id) if (folder / "task.out").exists())
    for folder in (first, second):
        assert (folder / "task.out").read_text().count("\n") == 1
        assert " is 0 of 2 in " in (folder / "task.out").read_text()
        assert " is 1 of 2 in " in (folder / "task-1.out").read_text()
    assert json.loads(job.read("return_value.json")) == {"rank": 0}
    assert [name for name in job.files() if name.startswith("model/")] == ["model/of-rank-0"]
    assert_nothing_left(local, job)


def test_one_that_dies_takes_all_with_it_and_all_start_again(local: LocalPlace, tmp_path: Path) -> None:
    go = tmp_path / "go"
    job = local.submit(two_by_two(go))
    job.until(JobState.RUNNING)
    until_all_said(job, "generation 1")
    before = {rank: user_process(job, rank).pid for rank in range(4)}
    os.kill(before[3], signal.SIGKILL)
    until_all_said(job, "generation 2")
    after = {rank: user_process(job, rank).pid for rank in range(4)}
    go.touch()

    status = job.succeeded()

    assert not set(before.values()) & set(after.values())
    assert [task.attempt for task in status.tasks] == [1, 1]
    assert status.restarts == 1
    (ended,) = [event for event in job.events() if event["event"] == "ended" and "SIGKILL" in str(event["message"])]
    assert ended["task"] == "worker:1"
    assert ended["message"] == "rank 3 (local rank 1) was killed by SIGKILL"
    assert "[tony] rank 3 (local rank 1) has failed: stopping the others" in job.log("worker:1")
    assert {task.state for task in status.tasks} == {TaskState.SUCCEEDED}
    assert_nothing_left(local, job)


@pytest.mark.long
def test_the_failure_names_the_process(local: LocalPlace, tmp_path: Path) -> None:
    fails = 'if test $TONY_RANK = 2; then echo "no data for rank 2" >&2; exit 7; fi; exec sleep 600'
    job = local.submit({**two_by_two(tmp_path / "go", fails), "restart": {"budget": 0}})
    told = job.failed()
    assert re.search(r"worker:1 on \S+: rank 2 \(local rank 0\) ended with exit code 7", told), told
    assert "no data for rank 2" in told
    assert_nothing_left(local, job)
