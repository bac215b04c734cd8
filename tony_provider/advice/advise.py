"""All rules, asked about one application."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import attrs

from tony_provider.advice.case import Case
from tony_provider.advice.rule import Rule
from tony_provider.advice.rules import RULES
from tony_provider.cluster.history.advice import Advice
from tony_provider.cluster.history.job_history import JobHistory
from tony_provider.cluster.history.job_summary import JobSummary
from tony_provider.runtime.codec import CodecError
from tony_provider.runtime.parsing.parse import parse_job
from tony_provider.runtime.spec.merge import merge
from tony_provider.runtime.spec.problems import SpecError

log = logging.getLogger(__name__)

MOST = 3  # pieces of advice: who is told more does nothing


def advise(job: JobHistory, former: Sequence[JobSummary] = (), rules: Iterable[Rule] = RULES) -> list[Advice]:
    """What should be changed for the next application, the greatest gain first; at most MOST pieces of advice.

    :param former: what is known of earlier applications of the same task of the DAG, oldest first.

    Raises nothing for what is damaged or missing: a rule that cannot do with it is left out, and the log says so.
    """
    case = Case(job, [each for each in former if each.application_id != job.application_id])
    found = sorted(_asked(case, rules), key=lambda each: -each.gain)[:MOST]
    return [_checked(case, each) for each in found]


def merged_change(advice: Iterable[Advice]) -> dict[str, Any]:
    """The changes of all as one merge patch, as ``overrides`` takes it; where two differ, the first one's counts."""
    changes = [each.change for each in advice if each.change]
    return functools.reduce(merge, reversed(changes), {})


def _asked(case: Case, rules: Iterable[Rule]) -> Iterator[Advice]:
    for rule in rules:
        try:
            said = rule.advise(case)
        except Exception as error:  # noqa: BLE001 - one rule's trouble with a damaged history is not the others'
            log.warning("The rule %s cannot judge %s: %r", rule.name, case.job.application_id, error)
        else:
            if said is not None:
                yield said


def _checked(case: Case, advice: Advice) -> Advice:
    """Without its change where the job would be refused with it."""
    if advice.change is None:
        return advice
    try:
        if (spec := case.spec) is not None:
            parse_job(spec, overrides=advice.change)
    except (SpecError, CodecError) as error:
        log.warning("The change of %s does not fit %s: %s", advice.rule, case.job.application_id, error)
        return attrs.evolve(advice, change=None)
    return advice
