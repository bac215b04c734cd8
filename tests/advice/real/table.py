"""The table of rules and real jobs: rows of the tests here, and what is printed of them at the end."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from tests.advice.real.jobs import Ran
from tony_provider.advice.advise import RULES
from tony_provider.advice.case import Case, Rule
from tony_provider.cluster.records.summary import Advice
from tony_provider.runtime.jobspec.model import JobSpec
from tony_provider.runtime.parsing.parse import parse_job

_PROPERTY = "advice on a real job"
_APPLIED = "applied"  # in the place of a rule's name
_WIDTH = 120


@dataclass
class Verdicts:
    """What rules say of real jobs. ``note`` takes each row of the table: rule, deserves, job, place, what was said."""

    note: Callable[[tuple[str, bool, str, str, str]], None]

    def told(self, rule: Rule, what: str, of: Ran) -> Advice:
        """The advice on a job that deserves it; its change, if any, must fit the job as it was given."""
        advice = rule.advise(Case(of.history, of.former))
        assert advice is not None, f"{rule.name} says nothing\n{of.job.describe()}"
        if advice.change is not None:
            assert changed(of, advice) != changed(of, None), "the change changes nothing"
        patch = f"; overrides: {json.dumps(advice.change)}" if advice.change else ""
        self.note((rule.name, True, what, of.place, f"{advice.text} ({advice.confidence.value} confidence){patch}"))
        return advice

    def silent(self, rule: Rule, what: str, of: Ran) -> None:
        """There is nothing to be said of a job that does not deserve it."""
        advice = rule.advise(Case(of.history, of.former))
        assert advice is None, f"{advice}\n{of.job.describe()}"
        self.note((rule.name, False, what, of.place, "-"))

    def applied(self, what: str, measured: Sequence[str]) -> None:
        """A job whose advice was applied: what was measured of it before and after."""
        self.note((_APPLIED, True, what, "local", "; ".join(measured)))


def changed(of: Ran, advice: Advice | None) -> JobSpec:
    """The job with the change of an advice, as ``overrides`` would have it."""
    specification = of.history.specification
    assert specification is not None
    return parse_job(specification.job, overrides=advice.change if advice else None)


@pytest.fixture
def verdicts(record_property: Callable[[str, object], None]) -> Verdicts:
    return Verdicts(lambda row: record_property(_PROPERTY, row))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell the rows of the tests that have passed, by rule: first jobs that deserve its advice, then the others."""
    passed = terminalreporter.getreports("passed")
    rows = [
        found for each in passed if each.when == "call" for name, found in each.user_properties if name == _PROPERTY
    ]
    if len({row[0] for row in rows}) < 2:
        return  # a test or two, of all
    terminalreporter.section("advice on real jobs")
    for name in (*(rule.name for rule in RULES), _APPLIED):
        of_rule = sorted((row for row in rows if row[0] == name), key=lambda row: not row[1])
        if of_rule:
            terminalreporter.line(name)
        for _, deserves, what, place, said in of_rule:
            sign = "+" if deserves else "-"
            for line in _wrapped(f"{sign} {what} ({place})" + (f": {said}" if deserves else ": nothing is said")):
                terminalreporter.line(line)
    names = [rule.name for rule in RULES]
    left = [name for name in names if {row[1] for row in rows if row[0] == name} != {True, False}]
    judged = f"{len(names) - len(left)} of {len(names)} rules have judged a job that deserves it and one that does not"
    terminalreporter.line(judged + (f"; not {', '.join(left)}" if left else ""))


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="  ", subsequent_indent="      ")
