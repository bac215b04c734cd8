"""Waiting for an export of a running job's model, with a cluster that only tells what it is given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import attrs
import pytest

from tony_provider.cluster.errors import MasterOutOfReach
from tony_provider.cluster.interface import Application
from tony_provider.cluster.training.identity import Identity, Layout
from tony_provider.hooks import job as job_module
from tony_provider.hooks.job import NotExported, TonyJob
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.protocol.status import ExportedModel, ExportRequest, JobState, JobStatus

ASKED = 2000
APPLICATION = "application_1_0001"
LAYOUT, TRAINING = Layout("hdfs://nn/.tony"), Identity("digits", "0")
CHECKPOINT = ResumePoint(40, f"{LAYOUT.job_dir(TRAINING)}/checkpoints-1/save-4")
INSTEAD = rf"\. Its newest checkpoint is .*\(step 40\): {CHECKPOINT.uri}$"


@attrs.frozen
class MockHook:
    """Its master's answers, one after the other; None: it does not answer. Then the application has ended."""

    statuses: Iterator[JobStatus | None]
    result: JobStatus | None
    layout: Layout = LAYOUT

    def get_conn(self) -> MockHook:
        return self

    def job_status(self, *_: object, **__: object) -> JobStatus | None:
        return self.result

    def control(self, application_id: str, action: str, body: Mapping[str, Any], **_: Any) -> dict[str, Any]:
        assert (application_id, action, body) == (APPLICATION, "export", {"reason": "r"})
        return {"asked_ms": ASKED}

    def master_status(self, application_id: str, **_: Any) -> JobStatus:
        found = next(self.statuses, None)
        if found is None:
            raise MasterOutOfReach("nobody")
        return found

    def application(self, application_id: str) -> Application | None:
        return None


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_module, "_EXPORT_POLL", 0.001)


def status(state: JobState = JobState.RUNNING, **known: Any) -> JobStatus:
    return JobStatus(APPLICATION, "digits", state, checkpoint=CHECKPOINT, **known)


def export(*statuses: JobStatus, seconds: float = 60.0, result: JobStatus | None = None) -> ExportedModel:
    hook = MockHook(iter(statuses), result)
    return TonyJob(cast(Any, hook), APPLICATION, TRAINING).export("r", seconds=seconds)


def exported(asked_ms: int) -> ExportedModel:
    return ExportedModel(50, f"{LAYOUT.application_dir(TRAINING, APPLICATION)}/exports/step-50", 1, asked_ms)


def test_an_export_that_came_before_is_no_answer() -> None:
    assert export(status(export=exported(0)), status(export=exported(ASKED - 1)), status(export=exported(ASKED + 5)))


def test_the_last_export_of_a_job_that_has_ended_meanwhile_counts() -> None:
    found = exported(ASKED)
    assert export(status(), result=status(JobState.FAILED, export=found)) == found


def test_a_job_that_has_ended_without_one_names_its_checkpoint() -> None:
    with pytest.raises(NotExported, match=f"{APPLICATION} has ended before its model was exported{INSTEAD}"):
        export(status(), result=status(JobState.SUCCEEDED, export=exported(1)))


def test_an_export_that_cannot_be_kept_is_waited_for_no_longer() -> None:
    failed = ExportRequest(ASKED, "r", ASKED, "the export of step 50 is not on the store: it is empty")
    with pytest.raises(NotExported, match=f"not on the store: it is empty{INSTEAD}"):
        export(status(export_request=failed))


def test_it_is_waited_for_no_longer_than_was_said() -> None:
    with pytest.raises(NotExported, match=f"within 0 s.*exports nothing{INSTEAD}"):
        export(status(), seconds=0.0)


def test_a_master_that_is_gone_without_a_result_is_told() -> None:
    with pytest.raises(MasterOutOfReach):
        export(status())
