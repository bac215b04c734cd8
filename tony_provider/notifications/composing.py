"""The news of a training, put together from what Airflow, the store and the cluster say."""

from __future__ import annotations

from collections.abc import Mapping

from airflow.providers.common.compat.sdk import redact

from tony_provider.advice.metric_names import ranked
from tony_provider.exceptions import TonyJobFailed, TonyKilledExternally
from tony_provider.links.tony import portal_page
from tony_provider.notifications.job_news import (
    MOST_METRICS,
    MOST_WARNINGS,
    JobNews,
    Metrics,
    last_lines,
    line,
)
from tony_provider.notifications.occasion import Occasion
from tony_provider.notifications.training_look import TrainingLook
from tony_provider.runtime.codec import to_plain
from tony_provider.runtime.protocol.status import Failure, JobState, JobStatus
from tony_provider.runtime.text import first_line

MOST_MISSING = 5
_VERDICTS = {JobState.SUCCEEDED: "succeeded", JobState.FAILED: "failed", JobState.KILLED: "killed"}


def composed(occasion: Occasion, look: TrainingLook | None, lines: int, missing: list[str]) -> JobNews:
    """The news, bounded in length, secrets masked as in Airflow's logs."""
    status = look.status if look is not None else None
    failure = _failure(occasion, status)
    verdict = _verdict(occasion, status)
    has_failed = verdict in ("failed", "killed")
    tail = (look.log_tail if look is not None else "") or _below_first_line(failure)
    return JobNews(
        title=_line(_title(occasion, verdict)),
        verdict=verdict,
        cause=_line(_cause(occasion, look, failure)) if has_failed else "",
        tail=last_lines(_masked(tail), lines) if has_failed and lines > 0 else "",
        tail_of=failure.task or "" if failure is not None else "",
        metrics=_metrics(status.metrics) if status is not None else {},
        former_metrics=_metrics(look.former_metrics) if look is not None and look.former_metrics is not None else None,
        former_run=look.former_run if look is not None else "",
        step=status.step if status is not None else None,
        total_steps=status.total_steps if status is not None else None,
        warnings=[_line(each) for each in status.warnings[:MOST_WARNINGS]] if status is not None else [],
        links=_links(occasion, look),
        missing=[_line(each) for each in [*missing, *(look.missing if look is not None else [])][:MOST_MISSING]],
        dag_id=occasion.dag_id,
        run_id=occasion.run_id,
        task_id=look.task_id if look is not None else occasion.task_id or "",
        map_index=occasion.map_index,
        try_number=occasion.try_number,
        application_id=look.application_id if look is not None else None,
    )


def _masked(text: str) -> str:
    """Before it is cut: half of a secret is known to no masker."""
    return str(redact(text))


def _line(text: str) -> str:
    return line(_masked(text))


def _metrics(metrics: Mapping[str, float | str]) -> Metrics:
    """The first few, in the order of interest."""
    plain = to_plain(metrics)
    return {_line(name): plain[name] for name in ranked(plain)[:MOST_METRICS]}


def _verdict(occasion: Occasion, status: JobStatus | None) -> str:
    """Of what the occasion is about: Airflow's word, and where it has none the job's."""
    if occasion.has_succeeded:
        return "succeeded"
    if occasion.has_failed:
        return "killed" if isinstance(occasion.exception, TonyKilledExternally) else "failed"
    if status is None:
        return "unknown"
    return _VERDICTS.get(status.state, "running")


def _title(occasion: Occasion, verdict: str) -> str:
    if occasion.state is None:
        return f"{occasion.name} has missed a deadline; its training: {verdict}"
    said = f"{occasion.name} {'was killed' if verdict == 'killed' else verdict}"
    if occasion.has_failed and occasion.tries is not None and occasion.tries > 1:
        again = "; it is tried again" if occasion.is_tried_again else ""
        return f"{said} (try {occasion.try_number} of {occasion.tries}{again})"
    return said


def _failure(occasion: Occasion, status: JobStatus | None) -> Failure | None:
    error = occasion.exception
    if isinstance(error, TonyJobFailed) and error.failure is not None:
        return error.failure
    return status.failure if status is not None else None


def _cause(occasion: Occasion, look: TrainingLook | None, failure: Failure | None) -> str:
    """The first cause that is known, without the lines that come with it."""
    error = occasion.exception
    if error is not None and not isinstance(error, TonyJobFailed):
        return f"{type(error).__name__}: {first_line(_said(error))}"
    if failure is not None:
        return first_line(failure.message.strip())
    if error is not None:
        return first_line(_said(error))
    if look is not None and look.application is not None and look.application.diagnostics:
        return first_line(look.application.diagnostics.strip())
    return occasion.reason


def _said(error: BaseException) -> str:
    try:
        return str(error).strip()
    except Exception as problem:  # noqa: BLE001 - the program's own class may raise anything, and the message is sent
        return f"(its message cannot be had: {type(problem).__name__})"


def _below_first_line(failure: Failure | None) -> str:
    return failure.message.strip().partition("\n")[2] if failure is not None else ""


def _links(occasion: Occasion, look: TrainingLook | None) -> dict[str, str]:
    pages = look.pages if look is not None else None
    links = {
        "Task in Airflow" if occasion.task_id else "Run in Airflow": occasion.address,
        "Training job": _portal(look),
        "YARN application": pages.application if pages is not None else None,
        "Logs and files": pages.files if pages is not None else None,
    }
    return {name: address for name, address in links.items() if address}


def _portal(look: TrainingLook | None) -> str | None:
    """None where Airflow does not know its own address: a path alone leads nowhere from a mail."""
    page = portal_page(look.application_id) if look is not None and look.application_id else ""
    return page if "://" in page else None
