"""Real jobs whose inputs are dealt to them, on this machine."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.runtime.am.heirs import alive, inherit
from tests.runtime.am.local_resource_manager.jobs import LocalJob, start
from tests.runtime.am.test_successor import kill, result, until
from tony_provider.runtime.common import contract
from tony_provider.runtime.inputs.shards import InputShard, ShardCommit, read_log
from tony_provider.runtime.jobspec.model import (
    Duration,
    InputDeal,
    InputSpec,
    JobSpec,
    Memory,
    RestartPolicy,
    TaskSpec,
    Timeouts,
)
from tony_provider.runtime.launch.launch_context import PID_FILE
from tony_provider.runtime.protocol.status import FailureKind, FinalStatus, InputStatus, JobState
from tony_provider.runtime.storage import LocalStorage

# Says each shard that it has taken, and waits now and then until it may go on.
TAKES = """
import os, pathlib, sys, time
import tony_sdk

here = pathlib.Path(sys.argv[1])
me = os.environ["TONY_TASK_INDEX"]
with (here / f"pids-{me}").open("a") as pids:
    print(os.getpid(), file=pids)
for number, shard in enumerate(tony_sdk.inputs("data")):
    assert pathlib.Path(shard.path).read_text() == shard.path
    with (here / f"taken-{me}").open("a") as taken:
        print(shard.uri, file=taken)
    while number >= 10 and not (here / "go-on").exists():
        time.sleep(0.05)
    shard.done(f"{here}/out-{os.path.basename(shard.path)}")
"""

READS = """
import json, os, tony_sdk
uris = [shard.uri for shard in tony_sdk.inputs("data")]
assert uris == [shard.uri for shard in tony_sdk.inputs("data")]
print(json.dumps(uris))
"""


def make_data(directory: Path, count: int) -> Path:
    data = directory / "data"
    data.mkdir()
    for number in range(count):
        path = data / f"shard-{number:03}"
        path.write_text(str(path))
    return data


def job_of(program: Path, data: str, *, instances: int = 3, deal: InputDeal = InputDeal.QUEUE, **more: Any) -> JobSpec:
    command = f"exec python {program} {program.parent}"
    worker = TaskSpec(command, instances=instances, memory=Memory(256))
    inputs = {"data": InputSpec([data], deal)}
    return JobSpec("standalone", {"worker": worker}, inputs=inputs, timeouts=Timeouts(grace=Duration(2)), **more)


@attrs.frozen
class Field:
    """A program in a folder of its own, and what its processes write there."""

    directory: Path

    @classmethod
    def make(cls, tmp_path: Path, program: str) -> Field:
        directory = tmp_path / "field"
        directory.mkdir()
        (directory / "program.py").write_text(program)
        return cls(directory)

    @property
    def program(self) -> Path:
        return self.directory / "program.py"

    def lines(self, name: str) -> list[str]:
        file = self.directory / name
        return file.read_text().splitlines() if file.exists() else []

    def taken(self) -> int:
        return sum(len(self.lines(f"taken-{index}")) for index in range(3))


def commits(job: LocalJob) -> list[ShardCommit]:
    return list(read_log(LocalStorage(), str(job.store / contract.INPUTS_DIR / "data.commits")))


def listed(job: LocalJob) -> list[InputShard]:
    lines = (job.store / contract.INPUTS_DIR / "data.jsonl").read_bytes().splitlines()
    return [InputShard.of_line(line) for line in lines]


async def test_each_shard_is_committed_once_though_a_worker_and_the_master_are_killed(tmp_path: Path) -> None:
    field, data = Field.make(tmp_path, TAKES), make_data(tmp_path, 200)
    job = await start(tmp_path, job_of(field.program, f"{data}/shard-*"))
    await until(lambda: field.taken() == 33, job)  # each has done ten, and has the next one
    worker = int(field.lines("pids-1")[0])
    os.kill(worker, signal.SIGKILL)
    await until(lambda: len(field.lines("pids-1")) == 2, job)
    await until(lambda: field.taken() == 44, job)  # its shard was the first of those that it took then
    await kill(job)
    assert all(alive(int(field.lines(f"pids-{index}")[-1])) for index in range(3))
    before = commits(job)
    assert len(before) == 40
    running = asyncio.ensure_future(inherit(job))
    (field.directory / "go-on").touch()
    assert await running is FinalStatus.SUCCEEDED, job.log

    assert [len(field.lines(f"pids-{index}")) for index in range(3)] == [1, 2, 1]
    uris = [shard.uri for shard in listed(job)]
    assert uris == [f"file://{data}/shard-{number:03}" for number in range(200)]
    settled = commits(job)
    assert settled[:40] == before
    assert Counter(each.shard for each in settled) == Counter(range(200))
    assert all(each.failed is None for each in settled)
    assert all(each.outputs == [f"{field.directory}/out-shard-{each.shard:03}"] for each in settled)
    assert {each.reader.task for each in settled} == {"worker:0", "worker:1", "worker:2"}
    lost = field.lines("taken-1")[10]
    taken = Counter(uri for index in range(3) for uri in field.lines(f"taken-{index}"))
    assert {uri for uri, times in taken.items() if times > 1} == {lost}
    assert result(job).inputs == [
        InputStatus(
            name="data",
            deal="queue",
            shards=200,
            size=sum(len(uri) - len("file://") for uri in uris),
            listing=f"file://{job.store}/inputs/data.jsonl",
            committed=200,
        )
    ]


async def test_what_a_container_had_taken_is_done_by_others(tmp_path: Path) -> None:
    field, data = Field.make(tmp_path, TAKES), make_data(tmp_path, 60)
    job = await start(tmp_path, job_of(field.program, str(data)))
    await until(lambda: field.taken() == 33, job)
    status = await job.until(JobState.RUNNING)  # a reader may be quicker than the status that names its container
    container = next(task.container_id for task in status.tasks if task.name == "worker:2")
    assert container
    os.killpg(int((job.root / "containers" / container / PID_FILE).read_text().split()[0]), signal.SIGKILL)
    (field.directory / "go-on").touch()
    assert (await job.end()).state is JobState.SUCCEEDED, job.log
    settled = commits(job)
    assert Counter(each.shard for each in settled) == Counter(range(60))
    lost = data / Path(field.lines("taken-2")[10]).name
    (by,) = [each.reader for each in settled if each.shard == int(lost.name[-3:])]
    assert (by.task, by.attempt) != ("worker:2", 1)


async def test_parts_are_balanced_and_each_task_has_one(tmp_path: Path) -> None:
    field, data = Field.make(tmp_path, READS), make_data(tmp_path, 50)
    job = await start(tmp_path, job_of(field.program, str(data), deal=InputDeal.STATIC))
    status = await job.end()
    assert status.state is JobState.SUCCEEDED, job.log
    parts = []
    for index in range(3):
        lines = job.task_log(f"worker-{index}.log").splitlines()
        (said,) = [line for line in lines if line.startswith('["')]
        parts.append(json.loads(said))
    assert sorted(uri for part in parts for uri in part) == [shard.uri for shard in listed(job)]
    assert sorted(len(part) for part in parts) == [16, 17, 17]
    assert [(each.shards, each.committed) for each in status.inputs] == [(50, None)]


async def test_shard_that_disappears_fails_with_its_name_after_all_others(tmp_path: Path) -> None:
    field, data = Field.make(tmp_path, TAKES), make_data(tmp_path, 40)
    spec = attrs.evolve(job_of(field.program, str(data)), restart=RestartPolicy(budget=0))
    job = await start(tmp_path, spec)
    await until(lambda: field.taken() == 33, job)
    (data / "shard-037").unlink()
    (data / "shard-038").write_text("somebody has written it again")
    (field.directory / "go-on").touch()
    status = await job.end()
    assert status.state is JobState.FAILED
    assert status.failure
    assert "unreadable shards of the input data: 2." in status.failure.message
    assert f"file://{data}/shard-037 was listed, but does not exist any more" in status.failure.message
    assert f"file://{data}/shard-038 has changed since it was listed" in status.failure.message
    assert Counter(each.shard for each in commits(job)) == Counter(range(40))
    assert [each.shard for each in sorted(commits(job), key=lambda each: each.shard) if each.failed] == [37, 38]
    assert [event["event"] for event in job.events()].count("shard_failed") == 2


async def test_success_before_all_is_committed_is_told(tmp_path: Path) -> None:
    program = "import tony_sdk\nshards = tony_sdk.inputs('data')\nnext(shards)\nnext(shards)\n"
    field, data = Field.make(tmp_path, program), make_data(tmp_path, 5)
    job = await start(tmp_path, job_of(field.program, str(data), instances=1))
    status = await job.end()
    assert status.state is JobState.SUCCEEDED, job.log
    assert status.warnings == ["input data: 4 of 5 shards were not committed"]
    assert [each.shard for each in commits(job)] == [0]


async def test_a_store_that_refuses_commits_ends_the_job(tmp_path: Path) -> None:
    program = """
import pathlib, sys, time, tony_sdk
where = pathlib.Path(sys.argv[1], "commits")
shards = tony_sdk.inputs("data")
next(shards)
while not where.exists():
    time.sleep(0.05)
pathlib.Path(where.read_text()).touch()  # where the directory is to be
next(shards)
"""
    field, data = Field.make(tmp_path, program), make_data(tmp_path, 5)
    spec = job_of(field.program, str(data), instances=1)
    job = await start(tmp_path, attrs.evolve(spec, timeouts=attrs.evolve(spec.timeouts, upload=Duration(1))))
    (field.directory / "written").write_text(str(job.store / contract.INPUTS_DIR / "data.commits"))
    (field.directory / "written").rename(field.directory / "commits")
    status = await job.end()
    assert status.failure, job.log
    assert status.failure.kind is FailureKind.INPUT
    assert status.failure.message.startswith("inputs.data: no commit could be written to the store for 1 s")


@pytest.mark.parametrize(
    ("path", "deal", "words"),
    [
        ("nothing-*", InputDeal.QUEUE, "inputs.data.paths[0]: {data}/nothing-* matches no file"),
        ("shard-001", InputDeal.STATIC, "inputs.data: 1 shard for 3 tasks (worker); with `deal: static`"),
    ],
)
async def test_input_that_cannot_be_dealt_starts_nothing(
    tmp_path: Path, path: str, deal: InputDeal, words: str
) -> None:
    field, data = Field.make(tmp_path, TAKES), make_data(tmp_path, 3)
    job = await start(tmp_path, job_of(field.program, f"{data}/{path}", deal=deal))
    status = await job.end()
    assert status.state is JobState.FAILED
    assert status.failure
    assert status.failure.kind is FailureKind.INPUT
    assert words.format(data=data) in status.failure.message
    assert [event["event"] for event in job.events()].count("allocated") == 0
