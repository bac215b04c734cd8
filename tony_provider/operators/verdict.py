"""How an application that has ended ended: well, or with which exception."""

from __future__ import annotations

from tony_provider.cluster.base import Application, ApplicationState
from tony_provider.exceptions import TonyJobFailed, TonyKilledExternally, TonyQueueTimeout
from tony_provider.runtime.protocol.status import Failure, FailureKind, FinalStatus, JobState, JobStatus
from tony_provider.runtime.spec.model import JobSpec

_NO_SUCH_COMMAND = (126, 127)  # what a shell exits with when a command cannot be run, or found


def failure(application_id: str, application: Application | None, status: JobStatus | None) -> TonyJobFailed | None:
    """None when the job succeeded. The job's own result is the truth; the cluster's word counts where there is none."""
    if status is not None and status.state.is_final:
        return _failure_of_job(application_id, application, status)
    resumed_step = status.resumed_step if status is not None else None
    if application is None:
        return TonyJobFailed(
            f"{application_id} is not known to the cluster (any more) and left no result",
            application_id=application_id,
            resumed_step=resumed_step,
        )
    if application.state is ApplicationState.KILLED or application.final_status is FinalStatus.KILLED:
        return TonyKilledExternally(
            _killed(application_id, application.diagnostics), application_id=application_id, resumed_step=resumed_step
        )
    if application.final_status is FinalStatus.SUCCEEDED:
        return None
    said = application.diagnostics.strip() or "the cluster gives no reason"
    return TonyJobFailed(
        f"{application_id} {application.state}: {said}", application_id=application_id, resumed_step=resumed_step
    )


def is_permanent(failure: Failure | None, job: JobSpec) -> bool:
    """Whether the job says that such an exit would come again, or its command is not there to be run."""
    if failure is None or failure.exit_code is None:
        return False
    return failure.exit_code in (*job.restart.permanent_exit_codes, *_NO_SUCH_COMMAND)


def _failure_of_job(application_id: str, application: Application | None, status: JobStatus) -> TonyJobFailed | None:
    if status.state is JobState.SUCCEEDED:
        return None
    why = status.failure
    message = (why.message if why else status.message) or "no reason was given"
    if status.state is JobState.KILLED or (why is not None and why.kind is FailureKind.KILLED):
        told = (application.diagnostics if application else "") or message
        return TonyKilledExternally(
            _killed(application_id, told),
            application_id=application_id,
            failure=why,
            resumed_step=status.resumed_step,
        )
    kind = TonyQueueTimeout if why is not None and why.kind is FailureKind.QUEUE_TIMEOUT else TonyJobFailed
    return kind(
        f"{application_id} failed: {message}",
        application_id=application_id,
        failure=why,
        resumed_step=status.resumed_step,
    )


def _killed(application_id: str, diagnostics: str) -> str:
    return f"{application_id} was killed: {diagnostics.strip() or 'the cluster does not say by whom'}"
