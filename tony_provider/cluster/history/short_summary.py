"""The summary of an application by its history alone: what rules need of a former one."""

from __future__ import annotations

from collections.abc import Sequence

from tony_provider.cluster.history.advice import Advice
from tony_provider.cluster.history.job_history import JobHistory
from tony_provider.cluster.history.job_summary import JobSummary
from tony_provider.runtime.codec import to_plain
from tony_provider.runtime.protocol.job_figures import TimeUse
from tony_provider.runtime.protocol.status import FinalStatus, JobStatus


def short_summary(job: JobHistory, status: JobStatus, application_dir: str, advice: Sequence[Advice]) -> JobSummary:
    """Without curves and links. ``status`` is the history's own, which has ended."""
    failure, labels = status.failure, job.labels
    failed = next((each for each in status.tasks if failure is not None and each.name == failure.task), None)
    return JobSummary(
        application_id=job.application_id,
        application_dir=application_dir,
        dag_id=labels.get("dag_id", ""),
        run_id=labels.get("run_id", ""),
        task_id=labels.get("task_id", ""),
        map_index=int(labels.get("map_index", -1)),
        name=status.name,
        verdict=FinalStatus(status.state.value) if status.state.is_final else None,
        reason=failure.message.partition("\n")[0] if failure is not None else "",
        failure_kind=failure.kind.value if failure is not None else None,
        failed_task=failure.task if failure is not None else None,
        failed_node=failed.node if failed is not None else None,
        submitted_ms=status.started_ms,
        finished_ms=status.finished_ms,
        times=status.times or TimeUse(),
        use=status.use,
        step=status.step,
        total_steps=status.total_steps,
        restarts=status.restarts,
        metrics=to_plain(status.metrics),
        advice=list(advice),
    )
