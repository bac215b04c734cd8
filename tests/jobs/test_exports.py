"""Exports of the model of a job that trains: asked for from outside, at every Nth checkpoint, and hit by a kill."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.job import Job
from tests.jobs.left import assert_nothing_left
from tests.jobs.places import LocalPlace
from tests.waiting import until
from tony_provider.cluster.errors import MasterOutOfReach
from tony_provider.cluster.training.plan import ChainOrigin
from tony_provider.hooks.job import NotExported
from tony_provider.runtime.protocol.status import JobState
from tony_provider.runtime.storage import local_path

PROGRAM = """
import pathlib, sys, time
import tony_sdk

wishes, heeds, parts = pathlib.Path(sys.argv[1]), sys.argv[2] == "heeds", int(sys.argv[3])
directory = pathlib.Path(tony_sdk.checkpoint_dir())
saved = tony_sdk.resume_step()
while not (wishes / "end").exists():
    wanted = int((wishes / "step").read_text())
    if wanted > saved and tony_sdk.task().rank == 0:
        (directory / f"weights-{wanted}").write_text(f"after step {wanted}")
        tony_sdk.commit_checkpoint(wanted, directory / f"weights-{wanted}")
        saved = wanted
    if heeds and tony_sdk.export_requested():
        with tony_sdk.export(saved) as export:
            for number in range(parts):
                pathlib.Path(export, f"part-{number:05}").write_text(f"part {number} of step {saved}")
    time.sleep(0.05)
"""


@dataclass
class Training:
    """Saves and exports what it is asked for, until it may end."""

    job: Job
    wishes: Path

    @classmethod
    def start(cls, place: LocalPlace, wishes: Path, *, heeds: bool = True, parts: int = 2, **spec: Any) -> Training:
        (wishes / "train.py").write_text(PROGRAM)
        (wishes / "step").write_text("0")
        command = f"exec python3 {wishes}/train.py {wishes} {'heeds' if heeds else 'ignores'} {parts}"
        worker = {"instances": 2, "memory": "128MiB", "restart": "gang", "command": command}
        training = cls(place.submit({"timeouts": {"grace": "2s"}, "tasks": {"worker": worker}, **spec}), wishes)
        training.job.until(JobState.RUNNING)
        return training

    def save(self, step: int) -> None:
        """Have a checkpoint saved, and wait until it is committed."""
        partial = self.wishes / "step.part"
        partial.write_text(str(step))
        partial.replace(self.wishes / "step")
        until(lambda: self.job.status().checkpoint_step == step, self.job.describe)

    def exported(self, step: int) -> None:
        """Wait for the export of a step."""
        until(lambda: (newest := self.job.status().export) is not None and newest.step == step, self.job.describe)

    def exports(self) -> list[str]:
        """All files of exports on the store, half ones too."""
        return [name.removeprefix("exports/") for name in self.job.files() if name.startswith("exports/")]

    def end(self) -> None:
        (self.wishes / "end").touch()


@pytest.fixture
def wishes(tmp_path: Path) -> Path:
    directory = tmp_path / "wishes"
    directory.mkdir()
    return directory


def test_a_job_exports_its_model_when_it_is_asked_and_goes_on(local: LocalPlace, wishes: Path) -> None:
    training = Training.start(local, wishes)
    job = training.job
    training.save(10)
    first = job.hook.export(job.id, "to evaluate it", seconds=60)
    assert (first.step, first.uri) == (10, f"{job.directory}/exports/step-10")
    assert job.read("exports/step-10/part-00001") == "part 1 of step 10"
    training.save(20)
    second = job.hook.export(job.id, "to serve it", seconds=60)
    assert second.step == 20
    assert job.hook.export(job.id, "once more", seconds=60).uri == second.uri  # nothing is new
    until(lambda: job.status().export_request is None, job.describe)  # the file is written a moment later
    status = job.status()
    assert (status.state, status.restarts) == (JobState.RUNNING, 0)

    training.end()
    result = job.succeeded()
    assert result.export is not None
    assert (result.export.uri, result.warnings) == (second.uri, [])
    assert training.exports() == [f"step-{step}/part-0000{part}" for step in (10, 20) for part in (0, 1)]
    assert_nothing_left(local, job)
    with pytest.raises(MasterOutOfReach):
        job.hook.export(job.id, "too late")

    tasks = {"worker": {"memory": "128MiB", "command": 'cat "$TONY_WARM_START/part-00000"'}}
    other = local.submit({"tasks": tasks}, origin=ChainOrigin(warm_start=second.uri))
    other.succeeded()
    assert "part 0 of step 20" in other.log("worker:0")


def test_an_upload_that_is_killed_leaves_no_half_export(local: LocalPlace, wishes: Path) -> None:
    """The program starts again, is asked again, and exports the same step: whole, and once."""
    parts = 2000  # that take a while
    training = Training.start(local, wishes, parts=parts)
    job = training.job
    training.save(10)
    job.hook.control(job.id, "export", {"reason": "to evaluate it"})
    exports = local_path(job.directory) / "exports"
    until(lambda: list(exports.glob("step-10.tmp-*")) if exports.exists() else [], job.describe, period=0.005)
    container = job.task("worker:0").container_id
    [executor] = [each.pid for each in job.executors() if each.holds(f"CONTAINER_ID={container}")]
    os.kill(executor, signal.SIGKILL)
    training.exported(10)
    assert not list(exports.glob("step-10/*.tmp*"))
    assert len(list((exports / "step-10").iterdir())) == parts
    assert job.task("worker:0").attempt == 2
    training.end()
    result = job.succeeded()
    assert result.export is not None
    assert [path.name for path in exports.iterdir()] == ["step-10"]
    events = [event["event"] for event in job.events()]
    assert events.count("exported") == 1


@pytest.mark.long
def test_a_job_exports_its_model_at_every_nth_checkpoint(local: LocalPlace, wishes: Path) -> None:
    training = Training.start(local, wishes, export={"every": 2, "keep_last": 1})
    for step in (10, 20, 30, 40):
        training.save(step)
        if step % 20 == 0:
            training.exported(step)
    training.end()
    assert training.job.succeeded().warnings == []
    assert training.exports() == [f"step-40/part-0000{part}" for part in (0, 1)]


@pytest.mark.long
def test_a_program_that_ignores_requests_leaves_its_checkpoints(local: LocalPlace, wishes: Path) -> None:
    training = Training.start(local, wishes, heeds=False)
    job = training.job
    training.save(10)
    with pytest.raises(NotExported, match=r"within 3 s\. The request remains") as caught:
        job.hook.export(job.id, "to evaluate it", seconds=3)
    status = job.status()
    assert status.checkpoint is not None
    assert f"Its newest checkpoint is {status.checkpoint.label}: {status.checkpoint.uri}" in str(caught.value)
    assert status.checkpoint.step == 10
    assert status.export_request is not None
    assert status.export_request.reason == "to evaluate it"
    training.end()
    assert job.succeeded().export is None
