"""How an application that has ended ended: well, or with which exception."""

from __future__ import annotations

from tony_provider.cluster.base import Application, ApplicationState
from tony_provider.exceptions import TonyJobFailed, TonyKilledExternally, TonyQueueTimeout
from tony_provider.operators.killing import KILLED_BY_AIRFLOW
from tony_provider.runtime.protocol.status import FailureKind, FinalStatus, JobState, JobStatus


def killed_by_airflow(application: Application | None) -> bool:
    return application is not None and KILLED_BY_AIRFLOW in application.diagnostics


def failure(application_id: str, application: Application | None, status: JobStatus | None) -> TonyJobFailed | None:
    """None when the job succeeded. The job's own result is the truth; the cluster's word counts where there is none."""
    if status is not None and status.state.is_final:
        return _failure_of_job(application_id, application, status)
    if application is None:
        return TonyJobFailed(
            f"{application_id} is not known to the cluster (any more) and left no result", application_id=application_id
        )
    if application.state is ApplicationState.KILLED or application.final_status is FinalStatus.KILLED:
        return TonyKilledExternally(_killed(application_id, application.diagnostics), application_id=application_id)
    if application.final_status is FinalStatus.SUCCEEDED:
        return None
    said = application.diagnostics.strip() or "the cluster gives no reason"
    return TonyJobFailed(f"{application_id} {application.state}: {said}", application_id=application_id)


def _failure_of_job(application_id: str, application: Application | None, status: JobStatus) -> TonyJobFailed | None:
    if status.state is JobState.SUCCEEDED:
        return None
    why = status.failure
    message = (why.message if why else status.message) or "no reason was given"
    if status.state is JobState.KILLED or (why is not None and why.kind is FailureKind.KILLED):
        told = (application.diagnostics if application else "") or message
        return TonyKilledExternally(_killed(application_id, told), application_id=application_id, failure=why)
    kind = TonyQueueTimeout if why is not None and why.kind is FailureKind.QUEUE_TIMEOUT else TonyJobFailed
    return kind(f"{application_id} failed: {message}", application_id=application_id, failure=why)


def _killed(application_id: str, diagnostics: str) -> str:
    return f"{application_id} was killed: {diagnostics.strip() or 'the cluster does not say by whom'}"
