"""What is told of a notebook that runs and has ended. The cluster is a stand-in; real notebooks: tests/jobs."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from tests.waiting import until
from tony_provider.cli import notebook
from tony_provider.cli.notebook import NotebookConnection
from tony_provider.cli.wait_for_job import JobEndedBadly
from tony_provider.cluster.errors import MasterOutOfReach, TunnelEnded
from tony_provider.cluster.interface import Application, ApplicationState
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.protocol.status import FinalStatus, JobState, JobStatus

ID = "application_1700000000000_0001"
NOT_THERE = "the newest checkpoint of notebook:0 is not on the store: its quota is used up"


@attrs.define
class StandInJob:
    now: JobStatus
    result: Any = None
    asked: int = 0

    application_id = ID

    def application(self) -> Application:
        return Application(ID, ApplicationState.FINISHED, final_status=FinalStatus(self.now.state.value))

    def status(self) -> JobStatus:
        return self.now

    def returned(self) -> Any:
        return self.result

    def master_status(self) -> JobStatus:
        self.asked += 1
        if self.asked % 2:
            raise MasterOutOfReach("another one is starting")
        return self.now


def status(state: JobState, step: int | None = None, **more: Any) -> JobStatus:
    checkpoint = None if step is None else ResumePoint(step, "hdfs://store/save-1")
    return JobStatus(ID, "notebook clicks", state, checkpoint=checkpoint, **more)


def way(job: StandInJob) -> NotebookConnection:
    return NotebookConnection("clicks", job, "a-token")  # type: ignore[arg-type]


def ending(monkeypatch: pytest.MonkeyPatch, job: StandInJob) -> str:
    monkeypatch.setattr(notebook, "clean_up", lambda *_: None)
    return way(job).ending(TunnelEnded("it has ended"))


@pytest.mark.parametrize(
    ("step", "result"),
    [
        (3, {"ended": "ended by its user", "kept": 3, "not_kept": ""}),
        (3, {"ended": "ended by its user", "kept": None}),  # nothing was written
        (3, {"ended": "ended by its user"}),  # of an earlier release
    ],
)
def test_work_that_is_on_the_store_is_kept(monkeypatch: pytest.MonkeyPatch, step: int, result: Any) -> None:
    said = ending(monkeypatch, StandInJob(status(JobState.SUCCEEDED, step), result))
    assert said == "The notebook has ended by its user. Its work is kept: the same command opens it again"


@pytest.mark.parametrize("step", [None, 2])
def test_work_that_did_not_get_to_the_store_is_not_said_to_be_kept(
    monkeypatch: pytest.MonkeyPatch, step: int | None
) -> None:
    ended = status(JobState.SUCCEEDED, step, warnings=[NOT_THERE])
    said = ending(monkeypatch, StandInJob(ended, {"ended": "ended by its user", "kept": 3, "not_kept": ""}))
    assert said.splitlines() == ["The notebook has ended by its user. NOT all of its work is kept:", f"  - {NOT_THERE}"]


def test_work_that_the_program_could_not_keep_is_not_said_to_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    result = {"ended": "ended by its user", "kept": 3, "not_kept": "NOT kept for lack of room: data.parquet"}
    said = ending(monkeypatch, StandInJob(status(JobState.SUCCEEDED, 3), result))
    assert said.endswith("NOT all of its work is kept:\n  - NOT kept for lack of room: data.parquet")


def test_one_that_ended_badly_says_what_is_not_on_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    job = StandInJob(status(JobState.KILLED, 2, message="enough", warnings=[NOT_THERE]))
    with pytest.raises(JobEndedBadly, match=f"(?s)enough.*{NOT_THERE}"):
        ending(monkeypatch, job)


def test_what_does_not_get_to_the_store_is_told_once_while_it_runs(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(notebook, "_LOOK_FOR_WARNINGS", 0.01)
    job = StandInJob(status(JobState.RUNNING, 2, warnings=["notebook:0: its newest checkpoint does not get there"]))
    with way(job).reporting_warnings():
        until(lambda: job.asked > 5, "its questions")
    assert capfd.readouterr().out == "Warning: notebook:0: its newest checkpoint does not get there\n"
