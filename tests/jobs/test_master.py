"""An application master of a running job is killed: YARN starts another one, and nothing of the tasks stops."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.job import Job
from tests.jobs.left import assert_nothing_left
from tests.jobs.places import YarnPlace
from tests.waiting import until
from tony_provider.runtime.common import contract
from tony_provider.runtime.protocol.status import JobState

PROGRAM = """
import os, pathlib, sys, time
import tony_sdk

wishes = pathlib.Path(sys.argv[1])
task = os.environ["TONY_TASK_TYPE"] + "-" + os.environ["TONY_TASK_INDEX"]
with (wishes / f"pids-{task}").open("a") as pids:
    print(os.getpid(), tony_sdk.resume_step(), file=pids)
directory = pathlib.Path(os.environ["TONY_CHECKPOINT_DIR"])
saved = tony_sdk.resume_step()
while not (wishes / "end").exists():
    wanted = int((wishes / "step").read_text())
    if wanted > saved and task == "worker-0":
        (directory / f"weights-{wanted}").write_text(f"after step {wanted}")
        tony_sdk.commit_checkpoint(wanted, directory / f"weights-{wanted}")
        saved = wanted
    time.sleep(0.1)
"""


@dataclass
class Training:
    """Saves the checkpoints that it is asked for, until it may end."""

    job: Job
    wishes: Path

    def processes(self, index: int) -> list[tuple[int, int]]:
        """Of every start of a worker's user process: its number, and the step that it resumed from."""
        file = self.wishes / f"pids-worker-{index}"
        lines = file.read_text().splitlines() if file.exists() else []
        return [(int(line.split()[0]), int(line.split()[1])) for line in lines]

    def starts(self) -> list[int]:
        return [len(self.processes(index)) for index in range(2)]

    def wish(self, step: int) -> None:
        partial = self.wishes / "step.part"
        partial.write_text(str(step))
        partial.replace(self.wishes / "step")

    def save(self, step: int) -> None:
        """Have a checkpoint saved, and wait until it is committed."""
        self.wish(step)
        until(lambda: self.job.status().checkpoint_step == step, self.job.describe)

    def kill_master(self) -> None:
        """And wait for the next one, which finds everybody running."""
        os.kill(self.job.master().pid, signal.SIGKILL)
        self.wait_for_next_master()

    def wait_for_next_master(self) -> None:
        until(
            lambda: (status := self.job.status()).am_attempt == 2 and status.state is JobState.RUNNING,
            self.job.describe,
        )

    def end(self) -> None:
        (self.wishes / "end").touch()


@pytest.fixture
def training(yarn: YarnPlace, tmp_path_factory: pytest.TempPathFactory) -> Training:
    wishes = tmp_path_factory.mktemp("wishes")
    wishes.chmod(0o777)
    (wishes / "train.py").write_text(PROGRAM)
    spec: dict[str, Any] = {
        "timeouts": {"grace": "2s"},
        "tasks": {
            "worker": {
                "instances": 2,
                "memory": "128MiB",
                "restart": "gang",
                "command": f"exec python3 {wishes}/train.py {wishes}",
            }
        },
    }
    (wishes / "step").write_text("0")
    training = Training(yarn.submit(spec), wishes)
    until(lambda: training.starts() == [1, 1], training.job.describe)
    training.job.until(JobState.RUNNING)
    return training


def test_user_processes_never_notice(yarn: YarnPlace, training: Training) -> None:
    """And checkpoints are saved under either master."""
    job = training.job
    training.save(10)
    training.kill_master()
    training.save(20)
    training.end()
    status = job.succeeded()
    assert (status.am_attempt, status.generation, status.restarts, status.checkpoint_step) == (2, 1, 0, 20)
    assert training.starts() == [1, 1]
    assert {task.attempt for task in status.tasks} == {1}
    events = [event["event"] for event in job.events()]
    assert events.count("application") == 1
    assert events.count("rendezvous") == 1
    assert_nothing_left(yarn, job)


@pytest.mark.long
def test_master_that_yarn_takes_away_stops_nothing(yarn: YarnPlace, training: Training) -> None:
    """As for another queue's sake, or because it used too much memory: SIGTERM, a quarter of a second, SIGKILL."""
    job = training.job
    training.save(10)
    master = job.master().pid
    os.kill(master, signal.SIGTERM)
    time.sleep(0.25)  # what a NodeManager leaves it
    os.kill(master, signal.SIGKILL)
    training.wait_for_next_master()
    assert contract.RESULT_FILE not in job.files()
    training.save(20)
    training.end()
    status = job.succeeded()
    assert (status.am_attempt, status.generation, status.restarts) == (2, 1, 0)
    assert training.starts() == [1, 1]
    assert_nothing_left(yarn, job)


@pytest.mark.long
def test_next_master_starts_again_what_fails(yarn: YarnPlace, training: Training) -> None:
    """From the checkpoint that the former one has committed."""
    job = training.job
    training.save(10)
    training.kill_master()
    (pid, _), *_ = training.processes(1)
    os.kill(pid, signal.SIGKILL)
    until(lambda: training.starts() == [2, 2], job.describe)
    assert [training.processes(index)[1][1] for index in range(2)] == [10, 10]
    training.save(20)
    training.end()
    status = job.succeeded()
    assert (status.am_attempt, status.generation, status.restarts, status.resumed_step) == (2, 2, 1, 10)
    assert {task.attempt for task in status.tasks} == {1}
    assert_nothing_left(yarn, job)


@pytest.mark.long
def test_executor_that_dies_with_the_master_is_replaced(yarn: YarnPlace, training: Training) -> None:
    job = training.job
    training.save(10)
    status = job.status()
    victim = next(task for task in status.tasks if task.name == "worker:1")
    executor = next(seen for seen in job.executors() if str(victim.container_id) in seen.folder)
    os.kill(job.master().pid, signal.SIGKILL)
    os.kill(executor.pid, signal.SIGKILL)
    until(lambda: training.starts() == [2, 2], job.describe)
    training.end()
    status = job.succeeded()
    assert (status.am_attempt, status.generation, status.resumed_step) == (2, 2, 10)
    assert {task.name: task.attempt for task in status.tasks} == {"worker:0": 1, "worker:1": 2}
    assert_nothing_left(yarn, job)
