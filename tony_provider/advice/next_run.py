"""Advice for a job that is about to run: memory and vcores, by what former applications of its task have used."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from tony_provider.advice.advise import advise
from tony_provider.advice.rules.memory_too_little import MemoryTooLittle
from tony_provider.advice.rules.memory_too_much import MemoryTooMuch
from tony_provider.advice.rules.vcores_idle import VcoresIdle
from tony_provider.cluster.history.advice import Advice
from tony_provider.cluster.history.job_history import JobHistory
from tony_provider.cluster.history.job_specification import JobSpecification
from tony_provider.cluster.history.job_summary import JobSummary
from tony_provider.runtime.codec import to_plain
from tony_provider.runtime.protocol.status import Failure, FailureKind, FinalStatus, JobState, JobStatus
from tony_provider.runtime.spec.model import JobSpec
from tony_provider.runtime.spec.tensorboard import without_its_task

APPLIED_RULES = (MemoryTooLittle(), MemoryTooMuch(), VcoresIdle())


@attrs.frozen
class NextRun:
    """Advice for the next run, and the application whose figures it is by."""

    application_id: str
    advice: Sequence[Advice]


def advise_next(job: JobSpec, former: Sequence[JobSummary]) -> NextRun | None:
    """What the job should ask for; None: nothing is known of an application that tells.

    That is the last one that has succeeded, or one since then that was killed for its memory. It is judged as if it had
    asked for what ``job`` does.
    """
    at = next((n for n in reversed(range(len(former))) if _tells(former[n])), None)
    if at is None:
        return None
    return NextRun(former[at].application_id, advise(_as_if(job, former[at]), former[:at], APPLIED_RULES))


def _is_out_of_memory(run: JobSummary) -> bool:
    return run.failure_kind == FailureKind.OUT_OF_MEMORY.value


def _tells(run: JobSummary) -> bool:
    return run.verdict is FinalStatus.SUCCEEDED or _is_out_of_memory(run)


def _as_if(job: JobSpec, run: JobSummary) -> JobHistory:
    """The history of ``run``, as one of ``job``: rules compare with what that asks for."""
    failed = _is_out_of_memory(run)
    status = JobStatus(
        run.application_id,
        run.name,
        JobState.FAILED if failed else JobState.SUCCEEDED,
        failure=Failure(FailureKind.OUT_OF_MEMORY, run.reason, task=run.failed_task) if failed else None,
        times=run.times,
        use=run.use,
    )
    specification = JobSpecification(job=to_plain(without_its_task(job)))
    return JobHistory(application_id=run.application_id, specification=specification, status=status)
