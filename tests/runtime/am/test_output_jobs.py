"""A real job on this machine whose shards' outputs are published, whoever is killed meanwhile."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.am.heirs import inherit
from tests.runtime.am.local_resource_manager.jobs import LocalJob, start
from tests.runtime.am.test_successor import kill, result, until
from tests.runtime.history.events import names_in
from tony_provider.runtime.jobspec.model import (
    Duration,
    InputDeal,
    InputSpec,
    JobSpec,
    Memory,
    OutputLayout,
    OutputSpec,
    RestartPolicy,
    TaskSpec,
    Timeouts,
)
from tony_provider.runtime.outputs.publication import Publication
from tony_provider.runtime.protocol.status import FinalStatus, OutputStatus

COUNT = 200
SCORES = """
import os, pathlib, sys, time
import tony_sdk

marks = pathlib.Path(sys.argv[1])
out = pathlib.Path(tony_sdk.output("predictions"))
for number, shard in enumerate(tony_sdk.inputs("data")):
    made = out / (os.path.basename(shard.path) + ".out")
    made.write_text("made of " + pathlib.Path(shard.path).read_text())
    if number == 5:
        (marks / f"five-{os.environ['TONY_TASK_INDEX']}-{os.getpid()}").touch()
        while not (marks / "go").exists():
            time.sleep(0.05)
    shard.done(made)
"""


def files(directory: Path) -> dict[str, str]:
    found = (path for path in directory.rglob("*") if path.is_file() and not path.name.startswith("_"))
    return {path.relative_to(directory).as_posix(): path.read_text() for path in found}


def job_of(tmp_path: Path, **output: object) -> JobSpec:
    marks, data = tmp_path / "marks", tmp_path / "shards"
    for directory in (marks, data):
        directory.mkdir()
    for number in range(COUNT):
        (data / f"{number:03}").write_text(str(number))
    (tmp_path / "score.py").write_text(SCORES)
    return JobSpec(
        "standalone",
        {"worker": TaskSpec(f"exec python {tmp_path}/score.py {marks}", instances=3, memory=Memory(256))},
        inputs={"data": InputSpec([str(data)], InputDeal.QUEUE)},
        outputs={"predictions": OutputSpec(str(tmp_path / "out" / "predictions"), **output)},  # type: ignore[arg-type]
        restart=RestartPolicy(backoff=Duration(0)),
        timeouts=Timeouts(grace=Duration(2)),
    )


async def at_five(job: LocalJob, tmp_path: Path, tasks: int = 3) -> None:
    await until(lambda: len(list((tmp_path / "marks").glob("five-*"))) == tasks, job)


async def test_each_shard_is_there_once_though_a_worker_and_the_master_are_killed(tmp_path: Path) -> None:
    job = await start(tmp_path, job_of(tmp_path))
    await at_five(job, tmp_path)
    [mark] = (tmp_path / "marks").glob("five-1-*")
    os.kill(int(mark.name.rpartition("-")[2]), signal.SIGKILL)
    await at_five(job, tmp_path, 4)
    await kill(job)
    running = asyncio.ensure_future(inherit(job))
    (tmp_path / "marks" / "go").touch()
    assert await running is FinalStatus.SUCCEEDED, job.log
    out = tmp_path / "out"
    assert [path.name for path in out.iterdir()] == ["predictions"]
    found = files(out / "predictions")
    assert {name.rpartition("/")[0] for name in found} == {"worker-0", "worker-1.1.1", "worker-1", "worker-2"}
    assert sorted(name.rpartition("/")[2] for name in found) == [f"{number:03}.out" for number in range(COUNT)]
    assert all(text == f"made of {int(name[-7:-4])}" for name, text in found.items())
    assert sum(1 for name in found if name.startswith("worker-1.1.1/")) == 5
    size = sum(map(len, found.values()))
    uri = f"file://{out}/predictions"
    assert result(job).outputs == [OutputStatus("predictions", uri, COUNT, size)]


async def test_a_master_that_dies_before_it_has_published_is_followed_by_one_that_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All tasks are gone by then: what counts is in the event log."""
    spec = job_of(tmp_path, layout=OutputLayout.FLAT)
    (tmp_path / "marks" / "go").touch()
    job = await start(tmp_path, spec)
    staging = tmp_path / "out" / f"_predictions.{job.description.application_id}"
    await until(lambda: staging.exists(), job)
    (staging / "out").write_text("a file where a directory should be")
    await until(lambda: "store_unavailable" in names_in(job.store), job)
    await kill(job)
    (staging / "out").unlink()
    published = Publication.publish
    calls = []

    def publish(*given: Any) -> OutputStatus:
        calls.append(given)
        return published(*given)

    monkeypatch.setattr(Publication, "publish", publish)
    assert await inherit(job) is FinalStatus.SUCCEEDED, job.log
    assert len(calls) == 1
    assert files(tmp_path / "out" / "predictions") == {
        f"{number:03}.out": f"made of {number}" for number in range(COUNT)
    }
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["predictions"]
