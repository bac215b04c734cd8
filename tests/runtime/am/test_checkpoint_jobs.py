"""Whole jobs that save checkpoints: real executors copy them, and the real master commits and chooses them."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest

from tests.runtime.am.chains import OTHER, own
from tests.runtime.am.local_resource_manager.jobs import LocalJob, start
from tony_provider.runtime.checkpoint.catalog import Catalog
from tony_provider.runtime.jobspec.model import (
    AfterSuccess,
    CheckpointFormat,
    CheckpointSpec,
    Duration,
    JobSpec,
    Memory,
    MirrorScope,
    RestartScope,
    TaskSpec,
    Timeouts,
)
from tony_provider.runtime.protocol.status import FailureKind, JobState
from tony_provider.runtime.storage import LocalStorage

DEADLINE = 60

# Saves a part of its own for each step that it is asked for; says what it has found when it started.
PROGRAM = """
import os, pathlib, signal, sys, time
import tony_sdk

wishes, index = pathlib.Path(sys.argv[1]), os.environ["TONY_TASK_INDEX"]
directory = pathlib.Path(os.environ["TONY_CHECKPOINT_DIR"])
saved = tony_sdk.resume_step()
found = ",".join(sorted(path.name for path in directory.iterdir() if path.name.startswith("part")))
with (wishes / f"starts-{index}").open("a") as starts:
    print(os.getpid(), saved, found or "nothing", file=starts)


def save(step):
    part = directory / f"part-{index}-of-{step}"
    part.write_text(f"{index} after {step}")
    tony_sdk.commit_checkpoint(step, part)


def stop(*_):
    if (wishes / "last").exists():
        save(int((wishes / "last").read_text()))
    sys.exit()


signal.signal(signal.SIGTERM, stop)
while not (wishes / "end").exists():
    wanted = int((wishes / "step").read_text())
    if wanted > saved:
        save(wanted)
        saved = wanted
    time.sleep(0.05)
"""


@attrs.frozen
class Wishes:
    directory: Path

    def step(self, step: int) -> None:
        partial = self.directory / "step.part"
        partial.write_text(str(step))
        partial.replace(self.directory / "step")

    def starts(self, index: int) -> list[list[str]]:
        """Of each start: the process, its step, the files of checkpoints that it has found."""
        file = self.directory / f"starts-{index}"
        return [line.split() for line in file.read_text().splitlines()] if file.exists() else []

    def end(self) -> None:
        (self.directory / "end").touch()


@pytest.fixture
def wishes(tmp_path: Path) -> Iterator[Wishes]:
    directory = tmp_path / "wishes"
    directory.mkdir()
    (directory / "train.py").write_text(PROGRAM)
    wishes = Wishes(directory)
    wishes.step(0)
    yield wishes
    wishes.end()  # of a test that has failed


async def run(tmp_path: Path, wishes: Wishes, checkpoint: CheckpointSpec) -> LocalJob:
    worker = TaskSpec(
        f"exec python3 {wishes.directory}/train.py {wishes.directory}",
        instances=2,
        memory=Memory(256),
        restart=RestartScope.GANG,
    )
    job = await start(
        tmp_path,
        JobSpec("standalone", {"worker": worker}, checkpoint=checkpoint, timeouts=Timeouts(grace=Duration(2))),
    )
    await until(lambda: len(wishes.starts(0)) == len(wishes.starts(1)) == 1, job)
    return job


async def until(look: Callable[[], bool], job: LocalJob) -> None:
    try:
        async with asyncio.timeout(DEADLINE):
            while not look():  # noqa: ASYNC110 - other processes make it true
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(job.log) from None


def committed(job: LocalJob) -> list[int | None]:
    return [stored.step for stored in Catalog(LocalStorage(), job.description.chain_dir).list()]


def spec(mirror: MirrorScope, after_success: AfterSuccess = AfterSuccess.KEEP_LAST, keep: int = 3) -> CheckpointSpec:
    return CheckpointSpec(mirror, CheckpointFormat.MANIFEST, keep=keep, after_success=after_success)


async def test_leader_s_checkpoints_are_everybody_s(tmp_path: Path, wishes: Wishes) -> None:
    job = await run(tmp_path, wishes, spec(MirrorScope.LEADER, keep=2))
    for step in (10, 20, 30):
        wishes.step(step)
        await until(lambda step=step: step in committed(job), job)  # type: ignore[misc]
    await until(lambda: committed(job) == [20, 30], job)
    os.kill(int(wishes.starts(1)[0][0]), signal.SIGKILL)
    await until(lambda: len(wishes.starts(0)) == len(wishes.starts(1)) == 2, job)
    for index in range(2):
        assert wishes.starts(index)[1][1:] == ["30", "part-0-of-10,part-0-of-20,part-0-of-30"]
    wishes.end()
    result = await job.end()
    assert (result.state, result.generation, result.restarts) == (JobState.SUCCEEDED, 2, 1)
    assert (result.resumed_step, result.checkpoint_step) == (30, 30)
    assert committed(job) == [30]
    assert result.checkpoint_dir == Catalog(LocalStorage(), job.description.chain_dir).list()[0].uri
    (newest,) = (
        event["data"]["checkpoint"]
        for event in job.events()
        if "(step 30," in event["message"] and event["event"] == "checkpoint"
    )
    assert newest["files"] == 6, "three parts and their manifests"
    assert newest["size"] == 3 * newest["sent"] > 0, "only the last save was sent"


@pytest.mark.parametrize("mirror", [MirrorScope.AUTO, MirrorScope.ALL])
async def test_parts_of_all_ranks_are_one_checkpoint(tmp_path: Path, wishes: Wishes, mirror: MirrorScope) -> None:
    job = await run(tmp_path, wishes, spec(mirror))
    wishes.step(10)
    await until(lambda: committed(job) == [10], job)
    (stored,) = Catalog(LocalStorage(), job.description.chain_dir).list()
    assert [each.rank for each in stored.manifest.trees] == [0, 1]
    os.kill(int(wishes.starts(0)[0][0]), signal.SIGKILL)
    await until(lambda: len(wishes.starts(0)) == len(wishes.starts(1)) == 2, job)
    for index in range(2):
        assert wishes.starts(index)[1][1:] == ["10", "part-0-of-10,part-1-of-10"]
    wishes.end()
    assert (await job.end()).state is JobState.SUCCEEDED


async def test_checkpoint_that_a_stopped_process_leaves_is_copied(tmp_path: Path, wishes: Wishes) -> None:
    job = await run(tmp_path, wishes, spec(MirrorScope.LEADER))
    (wishes.directory / "last").write_text("10")
    job.kill()
    result = await job.end()
    assert (result.state, result.checkpoint_step) == (JobState.KILLED, 10)
    assert committed(job) == [10]


async def test_nothing_stays_after_success_where_nothing_is_to(tmp_path: Path, wishes: Wishes) -> None:
    job = await run(tmp_path, wishes, spec(MirrorScope.LEADER, AfterSuccess.REMOVE))
    wishes.step(10)
    await until(lambda: committed(job) == [10], job)
    wishes.end()
    result = await job.end()
    assert (result.state, result.checkpoint_dir) == (JobState.SUCCEEDED, None)
    assert list((tmp_path / "chain-0001" / "checkpoints").iterdir()) == []


@pytest.mark.long
async def test_newer_application_takes_the_chain_over(tmp_path: Path, wishes: Wishes) -> None:
    job = await run(tmp_path, wishes, spec(MirrorScope.LEADER))
    wishes.step(10)
    await until(lambda: committed(job) == [10], job)
    own(tmp_path, OTHER)
    wishes.step(20)
    result = await job.end()
    assert result.failure
    assert (result.state, result.failure.kind) == (JobState.FAILED, FailureKind.FENCED)
    assert OTHER in result.failure.message
    assert committed(job) == [10]
    assert job.processes() == []


async def test_application_that_is_fenced_before_it_begins_starts_nothing(tmp_path: Path, wishes: Wishes) -> None:
    own(tmp_path, OTHER)
    worker = TaskSpec(f"exec python3 {wishes.directory}/train.py {wishes.directory}", memory=Memory(256))
    job = await start(tmp_path, JobSpec("standalone", {"worker": worker}))
    result = await job.end()
    assert result.failure
    assert (result.state, result.failure.kind) == (JobState.FAILED, FailureKind.FENCED)
    assert job.report().diagnostics == result.failure.message
    assert "allocated" not in [event["event"] for event in job.events()]
