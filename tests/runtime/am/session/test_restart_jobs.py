"""Real jobs on this machine whose tasks die: a real master and real executors carry out what the session decides."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest

from tests.runtime.am.local_resource_manager.jobs import LocalJob, start
from tony_provider.runtime.common import contract
from tony_provider.runtime.jobspec.model import (
    Duration,
    JobSpec,
    Memory,
    RestartPolicy,
    RestartScope,
    TaskSpec,
    Timeouts,
)
from tony_provider.runtime.launch.launch_context import PID_FILE
from tony_provider.runtime.protocol.status import FailureKind, JobState, JobStatus

DEADLINE = 60

HANGING = """
import json, os, threading, time

def hang_in_a_collective_operation():
    threading.Event().wait()

with open(os.environ["TONY_METRICS_FILE"], "a") as metrics:
    print(json.dumps({"step": 7}), file=metrics)
hang_in_a_collective_operation()
"""


@attrs.frozen
class Tasks:
    """Workers that say who they are, and go on until they may end, or must fail."""

    directory: Path

    @property
    def command(self) -> str:
        here = self.directory
        return (
            f"echo $$ $TONY_GENERATION $TONY_CLUSTER_SPEC >> {here}/starts-$TONY_TASK_INDEX; "
            f"while [ ! -e {here}/end ]; do rm {here}/fail-$TONY_TASK_INDEX 2>/dev/null && exit 3; sleep 0.05; done"
        )

    def job(self, scope: RestartScope) -> JobSpec:
        worker = TaskSpec(self.command, instances=2, memory=Memory(256), restart=scope)
        policy = RestartPolicy(budget=9, backoff=Duration(0), max_backoff=Duration(0))
        return JobSpec("standalone", {"worker": worker}, timeouts=Timeouts(grace=Duration(2)), restart=policy)

    def starts(self, index: int) -> list[list[str]]:
        """Of each start: the process, its generation, the cluster."""
        file = self.directory / f"starts-{index}"
        return [line.split() for line in file.read_text().splitlines()] if file.exists() else []

    def kill(self, index: int) -> None:
        os.kill(int(self.starts(index)[-1][0]), signal.SIGKILL)

    def fail(self, index: int) -> None:
        (self.directory / f"fail-{index}").touch()

    def end(self) -> None:
        (self.directory / "end").touch()


@pytest.fixture
def tasks(tmp_path: Path) -> Iterator[Tasks]:
    (tmp_path / "tasks").mkdir()
    yield Tasks(tmp_path / "tasks")
    (tmp_path / "tasks" / "end").touch()  # of a test that has failed


async def until(look: Callable[[], bool], job: LocalJob) -> None:
    try:
        async with asyncio.timeout(DEADLINE):
            while not look():  # noqa: ASYNC110 - other processes make it true
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(job.log + "\n".join(map(str, job.events()))) from None


async def started(job: LocalJob, tasks: Tasks, *numbers: int) -> None:
    """As many user processes of each worker."""
    await until(lambda: [len(tasks.starts(index)) for index in range(len(numbers))] == list(numbers), job)


def executors(job: LocalJob) -> dict[str, int]:
    """Process by container."""
    files = (job.root / "containers").glob(f"*/{PID_FILE}")
    return {file.parent.name: int(file.read_text().split()[0]) for file in files}


async def test_a_gang_starts_again_whatever_dies(tmp_path: Path, tasks: Tasks) -> None:
    job = await start(tmp_path, tasks.job(RestartScope.GANG))
    await started(job, tasks, 1, 1)
    first = executors(job)
    tasks.fail(1)
    await started(job, tasks, 2, 2)
    tasks.kill(0)
    await started(job, tasks, 3, 3)
    assert executors(job) == first

    status = await job.until(JobState.RUNNING)
    lost = next(task.container_id for task in status.tasks if task.name == "worker:1")
    assert lost
    os.kill(first[lost], signal.SIGKILL)
    await started(job, tasks, 4, 4)
    assert len(executors(job).keys() - first.keys()) == 1

    tasks.end()
    result = await job.end()
    assert (result.state, result.generation, result.restarts) == (JobState.SUCCEEDED, 4, 3)
    assert {task.name: (task.attempt, task.start) for task in result.tasks} == {"worker:0": (1, 4), "worker:1": (2, 4)}
    for index in range(2):
        assert [line[1] for line in tasks.starts(index)] == ["1", "2", "3", "4"]
    assert tasks.starts(0)[-1][2] == tasks.starts(1)[-1][2]  # both look for each other in the same places
    assert job.processes() == []


async def test_a_task_alone_starts_again_while_the_others_go_on(tmp_path: Path, tasks: Tasks) -> None:
    job = await start(tmp_path, tasks.job(RestartScope.TASK))
    await started(job, tasks, 1, 1)
    tasks.fail(1)
    await started(job, tasks, 1, 2)
    status = await job.until(JobState.RUNNING)
    lost = next(task.container_id for task in status.tasks if task.name == "worker:1")
    assert lost
    os.kill(executors(job)[lost], signal.SIGKILL)
    await started(job, tasks, 1, 3)
    tasks.end()
    result = await job.end()
    assert (result.state, result.generation, result.restarts) == (JobState.SUCCEEDED, 1, 2)
    assert {task.name: (task.attempt, task.start) for task in result.tasks} == {"worker:0": (1, 1), "worker:1": (2, 3)}


async def test_a_user_process_that_hangs_says_where(tmp_path: Path) -> None:
    program = tmp_path / "hang.py"
    program.write_text(HANGING)
    spec = JobSpec(
        "standalone",
        {"worker": TaskSpec("python3 hang.py", memory=Memory(256))},
        timeouts=Timeouts(grace=Duration(2), stall=Duration(3)),
        restart=RestartPolicy(budget=0),
    )
    job = await start(tmp_path, spec, files={"hang.py": program})
    result = await job.end()
    assert result.failure
    assert result.failure.kind is FailureKind.STALLED
    assert "reported no step after step 7 for 3 s" in result.message
    log = job.task_log(contract.log_name("worker:0", 1))
    assert "hang_in_a_collective_operation" in log


async def test_a_typo_is_tried_once_more(tmp_path: Path) -> None:
    program = tmp_path / "typo.py"
    program.write_text("import sys, time\nprint(time.time(), id(sys), file=sys.stderr)\nmodel = lodel()\n")
    workers = TaskSpec("python3 typo.py", instances=2, memory=Memory(256), restart=RestartScope.GANG)
    spec = JobSpec("standalone", {"worker": workers}, timeouts=Timeouts(grace=Duration(2)))
    job = await start(tmp_path, spec, files={"typo.py": program})
    result = await job.end()
    assert result.failure
    assert (result.failure.kind, result.failure.exit_code, result.restarts) == (FailureKind.USER, 1, 1)
    first, *rest = result.failure.message.splitlines()
    assert "the same failure 2 times" in first
    assert rest[-1] == "NameError: name 'lodel' is not defined"


CHIEF = "while [ ! -e {here}/end ]; do sleep 0.05; done; touch {here}/finished; sleep 0.5"
SERVER = "while [ ! -e {here}/{until} ]; do sleep 0.05; done"


async def test_a_parameter_server_that_ends_fails_the_job_at_once(tmp_path: Path) -> None:
    result = await _with_server(tmp_path, until="leave")
    assert result.failure
    assert (result.state, result.failure.task, result.restarts) == (JobState.FAILED, "ps:0", 0)
    assert "chief:0 had not succeeded" in result.message


async def test_a_parameter_server_that_ends_with_the_chief_fails_nothing(tmp_path: Path) -> None:
    result = await _with_server(tmp_path, until="finished")
    assert (result.state, result.restarts) == (JobState.SUCCEEDED, 0)


async def _with_server(here: Path, *, until: str) -> JobStatus:
    """A chief, and a parameter server that ends with exit code 0 once there is a file."""
    tasks = {
        "chief": TaskSpec(CHIEF.format(here=here), memory=Memory(256)),
        "ps": TaskSpec(SERVER.format(here=here, until=until), memory=Memory(256)),
    }
    job = await start(here, JobSpec("tensorflow", tasks, timeouts=Timeouts(grace=Duration(2))))
    await job.until(JobState.RUNNING)
    (here / ("end" if until == "finished" else until)).touch()
    return await job.end()
