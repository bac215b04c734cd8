"""Apply the advice rules to a finished job, and select advice for its next run.

Also formats advice for the log and reads the documentation of a rule from the packaged ``advice.md``.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs

from tony_provider.advice.case import Case, Rule
from tony_provider.advice.rules.flat_curve import FlatCurve
from tony_provider.advice.rules.idle_processors import GpusIdle, VcoresIdle
from tony_provider.advice.rules.memory_requests import MemoryTooLittle, MemoryTooMuch
from tony_provider.advice.rules.missing_reports import EvaluationMissing, NothingReported
from tony_provider.advice.rules.pace import InputWait, Straggler
from tony_provider.advice.rules.restart_costs import CheckpointInterval, FailingNode, RestartCost
from tony_provider.advice.rules.start_delay import QueueWait, SlowStart
from tony_provider.cluster.records.history import JobHistory, SpecificationRecord
from tony_provider.cluster.records.summary import Advice, JobSummary
from tony_provider.runtime.common.codec import CodecError, to_plain
from tony_provider.runtime.jobspec.container_content import without_tensorboard_task
from tony_provider.runtime.jobspec.model import JobSpec
from tony_provider.runtime.jobspec.problems import SpecError
from tony_provider.runtime.parsing.parse import merge, parse_job
from tony_provider.runtime.protocol.status import Failure, FailureKind, FinalStatus, JobState, JobStatus

log = logging.getLogger(__name__)

# If two gains are equal, the advice of the earlier rule comes first.
RULES: tuple[Rule, ...] = (
    MemoryTooLittle(),
    FailingNode(),
    GpusIdle(),
    InputWait(),
    Straggler(),
    RestartCost(),
    CheckpointInterval(),
    QueueWait(),
    SlowStart(),
    FlatCurve(),
    MemoryTooMuch(),
    VcoresIdle(),
    EvaluationMissing(),
    NothingReported(),
)


_PAGES = (  # places of advice.md: in an installed package, and in the repository
    Path(__file__).with_name("advice.md"),
    Path(__file__).parents[2] / "docs" / "advice.md",
)


def rule_documentation(rule: str) -> str:
    """Return the section of a rule without its title, or "" if there is none.

    Raises FileNotFoundError if ``advice.md`` is missing.
    """
    page = next((each for each in _PAGES if each.exists()), _PAGES[0]).read_text(encoding="utf-8")
    _, _, section = page.partition(f"\n## {rule}\n")
    return section.partition("\n## ")[0].strip()


def advice_lines(advice: Sequence[Advice], application_id: str) -> list[str]:
    """Return a log line for each piece of advice, and a last line with the command that explains the advice."""
    lines = [f"Advice: {each.text} ({each.confidence.value} confidence)" for each in advice]
    return [*lines, f"Details of the advice: airflow tony advise {application_id} --explain"] if lines else []


MOST = 3  # maximum pieces of advice, because users ignore longer lists


def advise(job: JobHistory, former: Sequence[JobSummary] = (), rules: Iterable[Rule] = RULES) -> list[Advice]:
    """Return advice for the next application, the greatest gain first, at most MOST pieces.

    :param former: summaries of earlier applications of the same task of the DAG, oldest first.

    A rule that fails because of damaged or missing data is skipped and logged, and raises no error.
    """
    case = Case(job, [each for each in former if each.application_id != job.application_id])
    found = sorted(_asked(case, rules), key=lambda each: -each.gain)[:MOST]
    return [_checked(case, each) for each in found]


def merged_change(advice: Iterable[Advice]) -> dict[str, Any]:
    """Return one merge patch for ``overrides`` from all changes. If two changes conflict, the first one applies."""
    changes = [each.change for each in advice if each.change]
    return functools.reduce(merge, reversed(changes), {})


def _asked(case: Case, rules: Iterable[Rule]) -> Iterator[Advice]:
    for rule in rules:
        try:
            said = rule.advise(case)
        except Exception as error:  # noqa: BLE001 - a failing rule must not stop the others
            log.warning("Skipping the advice rule %s for %s: %r", rule.name, case.job.application_id, error)
        else:
            if said is not None:
                yield said


def _checked(case: Case, advice: Advice) -> Advice:
    """Return the advice without its change if the job would be invalid with the change."""
    if advice.change is None:
        return advice
    try:
        if (spec := case.spec) is not None:
            parse_job(spec, overrides=advice.change)
    except (SpecError, CodecError) as error:
        log.warning(
            "The change that the rule %s recommends is invalid for %s: %s", advice.rule, case.job.application_id, error
        )
        return attrs.evolve(advice, change=None)
    return advice


APPLIED_RULES = (MemoryTooLittle(), MemoryTooMuch(), VcoresIdle())


@attrs.frozen
class NextRun:
    """Advice for the next run, and the ID of the application on whose figures the advice is based."""

    application_id: str
    advice: Sequence[Advice]


def advise_next(job: JobSpec, former: Sequence[JobSummary]) -> NextRun | None:
    """Return advice on the resources of the job, or None if no former application is suitable.

    The advice is based on the last application that succeeded or was killed for its memory. The rules compare the
    resources that this application used with the resources that ``job`` requests.
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
    """Return the history of ``run`` as if it had requested the resources of ``job``, for comparison with its use."""
    failed = _is_out_of_memory(run)
    status = JobStatus(
        run.application_id,
        run.name,
        JobState.FAILED if failed else JobState.SUCCEEDED,
        failure=Failure(FailureKind.OUT_OF_MEMORY, run.reason, task=run.failed_task) if failed else None,
        times=run.times,
        use=run.use,
    )
    specification = SpecificationRecord(job=to_plain(without_tensorboard_task(job)))
    return JobHistory(application_id=run.application_id, specification=specification, status=status)
