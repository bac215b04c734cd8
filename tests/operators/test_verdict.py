from __future__ import annotations

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from tests.operators.statuses import ID, application, status
from tony_provider.cluster.interface import Application
from tony_provider.exceptions import TonyJobFailed, TonyKilledExternally, TonyQueueTimeout
from tony_provider.operators.outcome import failure
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.protocol.status import Failure, FailureKind, FinalStatus, JobStatus

SUCCEEDED, FAILED, KILLED = FinalStatus.SUCCEEDED, FinalStatus.FAILED, FinalStatus.KILLED


@pytest.mark.parametrize(
    ("cluster", "job"),
    [
        (application("FINISHED", final_status=SUCCEEDED), status("SUCCEEDED")),
        (None, status("SUCCEEDED")),  # forgotten by the ResourceManager
        (application("FAILED", final_status=FAILED), status("SUCCEEDED")),  # died after its last act
        (application("FINISHED", final_status=SUCCEEDED), None),
    ],
)
def test_success(cluster: Application | None, job: JobStatus | None) -> None:
    assert failure(ID, cluster, job) is None


@pytest.mark.parametrize(
    ("cluster", "job", "kind", "words"),
    [
        (
            application("FINISHED", final_status=FAILED),
            status(
                "FAILED",
                failure=Failure(FailureKind.USER, "worker:0 exited with 3", "worker:0", 3, cause="ValueError: no data"),
                resumed=ResumePoint(120, "hdfs://n/c"),
            ),
            TonyJobFailed,
            f"{ID} failed: ValueError: no data; worker:0 exited with 3",
        ),
        (
            application("FINISHED", final_status=FAILED),
            status("FAILED", failure=Failure(FailureKind.QUEUE_TIMEOUT, "1 of 2 containers were missing")),
            TonyQueueTimeout,
            "1 of 2 containers",
        ),
        (
            application("FAILED", final_status=FAILED, diagnostics="AM Container exited with 1"),
            status("RUNNING", resumed=ResumePoint(7, "hdfs://n/c")),
            TonyJobFailed,
            "AM Container exited with 1",
        ),
        (
            application("KILLED", final_status=KILLED, diagnostics="killed by user carol"),
            status("RUNNING"),
            TonyKilledExternally,
            "killed by user carol",
        ),
        (
            application("KILLED", final_status=KILLED, diagnostics="killed by user carol"),
            status("KILLED", message="stopped"),
            TonyKilledExternally,
            "killed by user carol",
        ),
        (None, status("RUNNING"), TonyJobFailed, "left no result"),
        (None, None, TonyJobFailed, "left no result"),
    ],
)
def test_failures(cluster: Application | None, job: JobStatus | None, kind: type[TonyJobFailed], words: str) -> None:
    error = failure(ID, cluster, job)
    assert type(error) is kind
    assert words in str(error)
    assert ID in str(error)
    assert error.application_id == ID
    assert error.failure is (job.failure if job else None)
    assert error.resumed_step == (job.resumed_step if job else None)


@pytest.mark.parametrize("permanent", [False, True])
def test_whether_it_is_permanent_is_the_masters_word(permanent: bool) -> None:
    why = Failure(FailureKind.USER, "failed", exit_code=3, permanent=permanent)
    error = failure(ID, application("FINISHED", final_status=FAILED), status("FAILED", failure=why))
    assert error is not None
    assert error.permanent is permanent
    assert isinstance(error, AirflowFailException) is permanent


def test_without_the_masters_word_nothing_is_permanent() -> None:
    error = failure(ID, None, None)
    assert error is not None
    assert not error.permanent
