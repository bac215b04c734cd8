"""An application master is killed; the next one goes on with the tasks that have never stopped."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest

from tests.runtime.am.heirs import alive, inherit
from tests.runtime.am.local_resource_manager.jobs import LocalJob, start
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.codec import dump_json, load_json
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
from tony_provider.runtime.protocol.status import FinalStatus, JobState, JobStatus, TaskState

DEADLINE = 60


def job_of(command: str, instances: int = 2) -> JobSpec:
    worker = TaskSpec(command, instances=instances, memory=Memory(256), restart=RestartScope.GANG)
    return JobSpec("standalone", {"worker": worker}, timeouts=Timeouts(grace=Duration(2)))


async def until(look: Callable[[], bool], job: LocalJob, heir: asyncio.Future[FinalStatus] | None = None) -> None:
    """Wait for what is to be seen; not any longer once the next application master has failed."""
    try:
        async with asyncio.timeout(DEADLINE):
            while not look():
                if heir and heir.done():
                    heir.result()
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(job.log + "\n".join(map(str, job.events()))) from None


async def until_running(job: LocalJob, attempt: int, heir: asyncio.Future[FinalStatus]) -> JobStatus:
    def running() -> bool:
        status = job.status()
        return status is not None and (status.am_attempt, status.state) == (attempt, JobState.RUNNING)

    await until(running, job, heir)
    status = job.status()
    assert status
    return status


def rendezvous(job: LocalJob) -> int:
    """How many there were, by the event log."""
    return [event["event"] for event in job.events()].count("rendezvous")


@attrs.frozen
class Training:
    """Two workers that say who they are, and go on until they may end."""

    directory: Path

    @property
    def command(self) -> str:
        here = self.directory
        return (
            f"echo $$ >> {here}/pids-$TONY_TASK_INDEX; "
            f"until [ -e {here}/end-$TONY_TASK_INDEX ] || [ -e {here}/end ]; do sleep 0.1; done"
        )

    def pids(self, index: int) -> list[int]:
        """Of every start of its user process."""
        file = self.directory / f"pids-{index}"
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    def end(self, index: int | None = None) -> None:
        (self.directory / ("end" if index is None else f"end-{index}")).touch()

    async def begin(self, tmp_path: Path) -> LocalJob:
        job = await start(tmp_path, job_of(self.command))
        await until(lambda: all(self.pids(index) for index in range(2)), job)
        await until(lambda: rendezvous(job) == 1, job)  # the last second of its events may be lost with a master
        return job


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Training]:
    (tmp_path / "training").mkdir()
    yield Training(tmp_path / "training")
    for file in (tmp_path / "cluster").glob(f"*/containers/*/{PID_FILE}"):  # of a test that has failed
        pid = int(file.read_text().split()[0])
        if alive(pid):
            os.killpg(pid, signal.SIGKILL)


async def kill(job: LocalJob) -> None:
    job.process.kill()
    await job.process.wait()


def result(job: LocalJob) -> JobStatus:
    return load_json((job.store / contract.RESULT_FILE).read_bytes(), JobStatus)


async def test_user_processes_go_on_under_the_next_master(tmp_path: Path, training: Training) -> None:
    job = await training.begin(tmp_path)
    before = job.events()
    await kill(job)
    running = asyncio.ensure_future(inherit(job))
    status = await until_running(job, attempt=2, heir=running)
    assert {task.state for task in status.tasks} == {TaskState.RUNNING}
    assert all(alive(training.pids(index)[0]) for index in range(2))
    training.end()
    assert await running is FinalStatus.SUCCEEDED
    final = result(job)
    assert (final.state, final.am_attempt, final.generation, final.restarts) == (JobState.SUCCEEDED, 2, 1, 0)
    assert final.started_ms == status.started_ms <= before[0]["time_ms"]
    assert [len(training.pids(index)) for index in range(2)] == [1, 1]
    assert {task.attempt for task in final.tasks} == {1}
    events = job.events()
    assert events[: len(before)] == before
    assert rendezvous(job) == 1
    assert not (job.store / contract.LAUNCH_DIR).exists()
    assert job.processes() == []


@pytest.mark.long
async def test_end_that_no_master_saw_is_told_to_the_next(tmp_path: Path, training: Training) -> None:
    job = await training.begin(tmp_path)
    await kill(job)
    training.end(1)
    await until(lambda: not alive(training.pids(1)[0]), job)
    running = asyncio.ensure_future(inherit(job))
    await until_running(job, attempt=2, heir=running)
    training.end(0)
    assert await running is FinalStatus.SUCCEEDED
    assert [len(training.pids(index)) for index in range(2)] == [1, 1]


@pytest.mark.long
async def test_executor_that_died_without_a_master_is_replaced(tmp_path: Path, training: Training) -> None:
    """And the gang starts again, once."""
    job = await training.begin(tmp_path)
    status = job.status()
    assert status
    lost = next(task.container_id for task in status.tasks if task.name == "worker:1")
    await kill(job)
    executor = int((job.root / "containers" / str(lost) / PID_FILE).read_text().split()[0])
    os.killpg(executor, signal.SIGKILL)
    running = asyncio.ensure_future(inherit(job))
    await until(lambda: [len(training.pids(index)) for index in range(2)] == [2, 2], job, running)
    training.end()
    assert await running is FinalStatus.SUCCEEDED
    final = result(job)
    assert final.generation == 2
    assert {task.name: task.attempt for task in final.tasks} == {"worker:0": 1, "worker:1": 2}


@pytest.mark.long
async def test_three_masters_one_after_the_other(tmp_path: Path, training: Training) -> None:
    """What the second one has learned, the third one knows."""
    job = await training.begin(tmp_path)
    await kill(job)
    os.kill(training.pids(0)[0], signal.SIGKILL)  # a failure: the second master starts generation 2
    second = asyncio.ensure_future(inherit(job))
    await until(lambda: [len(training.pids(index)) for index in range(2)] == [2, 2], job, second)
    await until(lambda: rendezvous(job) == 2, job, second)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    training.end()
    assert await inherit(job, attempt=3) is FinalStatus.SUCCEEDED
    final = result(job)
    assert (final.am_attempt, final.generation, final.restarts) == (3, 2, 1)
    assert [len(training.pids(index)) for index in range(2)] == [2, 2]


async def test_master_that_died_before_anything_began(tmp_path: Path) -> None:
    """The next one begins as if it were the first."""
    job = await start(tmp_path, job_of("true"))
    await kill(job)
    for path in (job.root / "containers").glob("*"):
        assert not path.exists(), "it was too late"
    assert await inherit(job) is FinalStatus.SUCCEEDED
    assert result(job).am_attempt == 2


async def test_job_that_was_over_is_not_run_again(tmp_path: Path, training: Training) -> None:
    """The former master had written its result, and could not take its leave."""
    job = await training.begin(tmp_path)
    await kill(job)
    status = job.status()
    assert status
    over = attrs.evolve(status, state=JobState.SUCCEEDED, message="the job has succeeded")
    for name in (contract.STATUS_FILE, contract.RESULT_FILE):
        (job.store / name).write_bytes(dump_json(over))
    assert await inherit(job) is FinalStatus.SUCCEEDED
    assert job.report().final_status is FinalStatus.SUCCEEDED
    assert result(job) == over
    assert not (job.store / contract.LAUNCH_DIR).exists()
    await until(lambda: not job.processes(), job)


async def test_job_that_was_ending_ends_as_it_was_to(tmp_path: Path, training: Training) -> None:
    """Its tasks have the grace that they were promised, none starts again, and what they have reported is kept."""
    here = training.directory
    ends = f"trap 'until [ -e {here}/end ]; do sleep 0.1; done; exit 0' TERM; sleep 600 & wait"
    fails = f"until [ -e {here}/end-1 ]; do sleep 0.1; done; exit 3"
    said = """echo '{"step": 4, "loss": 0.5}' >> $TONY_METRICS_FILE"""
    command = f"echo $$ >> {here}/pids-$TONY_TASK_INDEX; {said}; if [ $TONY_TASK_INDEX = 1 ]; then {fails}; fi; {ends}"
    spec = attrs.evolve(job_of(command), timeouts=Timeouts(grace=Duration(30)), restart=RestartPolicy(budget=0))
    job = await start(tmp_path, spec)
    await until(lambda: (status := job.status()) is not None and status.metrics == {"loss": 0.5}, job)
    training.end(1)
    await until(lambda: any(event["event"] == "verdict" for event in job.events()), job)
    await kill(job)
    running = asyncio.ensure_future(inherit(job))
    await until(lambda: any(event["event"] == "recovering" for event in job.events()), job, running)
    assert alive(training.pids(0)[0])
    training.end()
    assert await running is FinalStatus.FAILED
    final = result(job)
    assert final.failure
    assert (final.failure.task, final.failure.exit_code, final.am_attempt) == ("worker:1", 3, 2)
    assert (final.metrics, final.step) == ({"loss": 0.5}, 4)
    assert [len(training.pids(index)) for index in range(2)] == [1, 1]
    assert job.processes() == []
