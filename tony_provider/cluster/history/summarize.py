"""A job summed up: made of what Airflow, the cluster and the job itself say, and cut until it is small enough."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from tony_provider.cluster.application_state import ApplicationState
from tony_provider.cluster.base import Application
from tony_provider.cluster.history.advice import Advice
from tony_provider.cluster.history.curves import LONGEST_NAME, curves, thinner
from tony_provider.cluster.history.job_history import JobHistory
from tony_provider.cluster.history.job_summary import JobSummary
from tony_provider.runtime.codec import to_plain
from tony_provider.runtime.protocol.job_figures import TimeUse
from tony_provider.runtime.protocol.status import FailureKind, FinalStatus, JobState, JobStatus
from tony_provider.runtime.text import replaced

MOST_BYTES = 60 << 10  # as JSON in ASCII, both parts: each stays below what Airflow warns of
_METRICS = 50  # of those reported last
_WARNINGS, _HASHES, _TYPES = 10, 200, 20
_LAST_WORDS = 3  # lines of what a program had printed
_LINE = 1000  # bytes, as JSON in ASCII, of a reason or a warning


@attrs.frozen(kw_only=True)
class RunFacts:
    """What Airflow knows of an application: the run, the task and the try that wait for it. Fields as JobSummary's."""

    application_id: str
    application_dir: str
    dag_id: str
    run_id: str
    task_id: str
    map_index: int = -1
    try_number: int = 1
    watched: bool = True
    run_date: str | None = None
    tony_conn_id: str = "tony_default"
    proxy_user: str | None = None
    name: str = ""
    framework: str = ""
    submitted_ms: int = 0  # as far as the try knows; the cluster knows better
    fingerprint: Mapping[str, str] = attrs.field(factory=dict)
    links: Mapping[str, str] = attrs.field(factory=dict)


def summarize(
    facts: RunFacts,
    history: JobHistory,
    application: Application | None = None,
    advice: Sequence[Advice] = (),
    *,
    most_bytes: int = MOST_BYTES,
) -> JobSummary:
    """The summary of an application, at most ``most_bytes`` long.

    ``history`` may be as empty as that of a job that never started; ``application``: None when the cluster does not
    know it (any more).
    """
    status = history.status
    job = history.specification.job if history.specification else {}
    submitted_ms = (application and application.started_ms) or (status and status.started_ms) or facts.submitted_ms
    known = attrs.asdict(facts, recurse=False)
    known |= {
        "framework": facts.framework or _text(job.get("framework")),
        "name": facts.name or (application and application.name) or (status and status.name) or "",
        "user": application.user if application else "",
        "queue": application.queue if application else _text(job.get("queue")),
        "verdict": verdict(application, status),
        "reason": reason(application, status),
        "submitted_ms": submitted_ms,
        "finished_ms": (status and status.finished_ms) or (application and application.finished_ms) or None,
        "fingerprint": dict(sorted(facts.fingerprint.items())[:_HASHES]),
        "links": dict(facts.links),
        "advice": list(advice),
        **(_of_status(status) if status else {}),
    }
    leading = [sample for sample in history.samples if status and sample.task == status.leader]
    return _bounded(JobSummary(**known, curves=curves(leading, submitted_ms)), most_bytes)


def verdict(application: Application | None, status: JobStatus | None) -> FinalStatus | None:
    """How the application ended: the job's own result is the truth, the cluster's word counts where there is none."""
    if status is not None and status.state.is_final:
        killed = status.failure is not None and status.failure.kind is FailureKind.KILLED
        return FinalStatus.KILLED if killed and status.state is JobState.FAILED else FinalStatus(status.state.value)
    if application is None or not application.is_final:
        return None
    if application.state is ApplicationState.KILLED:
        return FinalStatus.KILLED
    return application.final_status or FinalStatus.FAILED


def reason(application: Application | None, status: JobStatus | None) -> str:
    """Of a failure: a line, and in a second one the end of what the program had printed, if anything.

    Empty for a success, or while it runs. Who has killed it, only the cluster knows.
    """
    ended = verdict(application, status)
    if ended in (None, FinalStatus.SUCCEEDED):
        return ""
    of_cluster = application.diagnostics if application else ""
    of_job = (
        [status.failure.message if status.failure else "", status.message] if status and status.state.is_final else []
    )
    told = [of_cluster, *of_job] if ended is FinalStatus.KILLED else [*of_job, of_cluster]
    why, _, printed = next((each for each in told if each.strip()), "").strip().partition("\n")
    return "\n".join(line for line in (_line(why), _last_words(printed)) if line)


def _of_status(status: JobStatus) -> dict[str, Any]:
    failure = status.failure
    task = failure.task if failure else None
    node = next((each.node for each in status.tasks if each.name == task), None)
    metrics = {name: value for name, value in status.metrics.items() if len(name) <= LONGEST_NAME}
    return {
        "failure_kind": failure.kind.value if failure else None,
        "failed_task": task,
        "failed_node": node,
        "times": status.times or TimeUse(),
        "use": status.use[:_TYPES],
        "step": status.step,
        "total_steps": status.total_steps,
        "steps_per_second": to_plain(status.steps_per_second),
        "restarts": status.restarts,
        "resumed_step": status.resumed_step,
        "checkpoint_step": status.checkpoint_step,
        "metrics": {name: to_plain(value) for name, value in list(metrics.items())[:_METRICS]},
        "warnings": [_line(each) for each in status.warnings[:_WARNINGS]],
    }


def _bounded(summary: JobSummary, most_bytes: int) -> JobSummary:
    """The first of ever smaller ones that fits; the last one, should none."""
    for smaller in _ever_smaller(summary):
        summary = smaller
        if _length(summary) <= most_bytes:
            break
    return summary


def _ever_smaller(summary: JobSummary) -> Iterator[JobSummary]:
    yield summary
    for points in (100, 50, 25):
        yield attrs.evolve(summary, curves=[thinner(curve, points) for curve in summary.curves])
    short = [thinner(curve, 25) for curve in summary.curves]
    for some in (10, 5, 0):
        yield attrs.evolve(summary, curves=short[:some])
    yield attrs.evolve(
        summary,
        curves=[],
        warnings=[each[:100] for each in summary.warnings[:5]],
        metrics=dict(list(summary.metrics.items())[:10]),
        fingerprint={},
        use=summary.use[:10],
    )


def _length(summary: JobSummary) -> int:
    return len(json.dumps(to_plain(summary)))


def _last_words(printed: str) -> str:
    """The end of what was printed, in one line: of a traceback what stands below its frames."""
    lines = [each.rstrip() for each in printed.splitlines() if each.strip()][-_LAST_WORDS:]
    frames = [at for at, each in enumerate(lines[:-1]) if each[0].isspace()]
    text = "\n".join(lines[frames[-1] + 1 if frames else 0 :])
    return _line(f"…{text[-_LINE // 2 :]}" if len(text) > _LINE // 2 else text)


def _line(text: str) -> str:
    """The text in one line, with nothing that a database or JSON cannot hold."""
    line = " ".join(replaced(text[: 2 * _LINE]).replace("\x00", "?").split())
    while (excess := len(json.dumps(line)) - _LINE) > 0:
        line = f"{line[: -max(2, excess // 6)].rstrip('…')}…"  # a character is 6 bytes at most, or 12 for two
    return line


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
