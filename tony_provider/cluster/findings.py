"""Run the checks of a job or of a connection, and represent their findings.

A submission and ``airflow tony check`` run the checks of a job in order, and ``raise_problems`` raises one error with
all problems. The diagnosis of a connection runs its checks in parallel, and lists the findings in a Report.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum

import attrs

from tony_provider.cluster.errors import ClusterError, JobRejected, SourceMissing
from tony_provider.runtime.common.concurrency import run_in_threads
from tony_provider.runtime.storage.errors import StorageError


class Severity(StrEnum):
    """Severity of a finding."""

    OK = "ok"
    WARNING = "warning"  # jobs run, but users should know about it
    PROBLEM = "problem"  # jobs cannot run
    SKIPPED = "skipped"  # the item could not be checked because of another finding


@attrs.frozen
class Finding:
    """Result of one check of one item."""

    what: str  # the item that was checked, such as "NameNode http://nn1:9870"
    outcome: Severity
    detail: str
    advice: str = ""  # how to fix the problem; may be empty

    def __str__(self) -> str:
        return f"{self.what}: {self.detail}" + (f"; {self.advice}" if self.advice else "")


def ok(what: str, detail: str) -> Finding:
    """Return a finding without a problem."""
    return Finding(what, Severity.OK, detail)


def warning(what: str, detail: str, advice: str) -> Finding:
    """Return a finding that users should know about, though jobs run."""
    return Finding(what, Severity.WARNING, detail, advice)


def problem(what: str, detail: str, advice: str) -> Finding:
    """Return a finding that prevents jobs from running."""
    return Finding(what, Severity.PROBLEM, detail, advice)


def skipped(what: str, detail: str) -> Finding:
    """Return a finding for an item that could not be checked because of another finding."""
    return Finding(what, Severity.SKIPPED, detail)


@attrs.frozen
class JobProblem(Finding):
    """A finding that prevents a job from running, with the class of the error to raise."""

    error: type[ClusterError] = JobRejected


def raise_problems(findings: Iterable[Finding]) -> None:
    """Raise one error with all problems of a job, if there are any.

    The error has the class of the problems, or JobRejected if the problems have several classes.
    """
    problems = [each for each in findings if isinstance(each, JobProblem)]
    if not problems:
        return
    details = list(dict.fromkeys(each.detail for each in problems))
    error = problems[0].error if len({each.error for each in problems}) == 1 else JobRejected
    if issubclass(error, JobRejected):
        raise error(details)
    raise error("; ".join(details))


def softened(finding: Finding) -> Finding:
    """Return the finding with a problem reduced to a warning, because it does not prevent jobs from running."""
    return attrs.evolve(finding, outcome=Severity.WARNING) if finding.outcome is Severity.PROBLEM else finding


@attrs.frozen
class Report:
    """All findings of one diagnosis, with the host and user that made it."""

    host: str  # machine that ran the checks
    user: str  # user that jobs run as; empty if unknown
    cluster: str  # kind of the cluster, such as yarn
    findings: list[Finding]

    @property
    def problems(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.outcome is Severity.PROBLEM]

    @property
    def is_good(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        """Format the report: one line for each problem, or for each finding if there are no problems.

        Several problems are numbered, because Airflow's web pages join all lines.
        """
        shown = [each for each in self.findings if each.outcome is not Severity.SKIPPED]
        head = f"Checked the {self.cluster} cluster from host {self.host}"
        if self.user:
            head += f" as {self.user}"
        if self.problems:
            head += ", and found " + ("a problem" if len(self.problems) == 1 else f"{len(self.problems)} problems")
        lines = _numbered(self.problems) if self.problems else map(_line, shown)
        return "\n".join([f"{head}:", *lines])


def _numbered(problems: Sequence[Finding]) -> list[str]:
    if len(problems) == 1:
        return [f"{problems[0]}."]
    return [f"({number}) {each}." for number, each in enumerate(problems, 1)]


def _line(finding: Finding) -> str:
    return f"- {'warning: ' if finding.outcome is Severity.WARNING else ''}{finding}."


@attrs.frozen
class Need:
    """A condition on the results of earlier checks. If it is not met, a check that needs it is skipped."""

    missing: str  # why the check is skipped if the condition is not met
    is_met: Callable[[], bool]


LATER = Need("", lambda: True)  # always met; delays a check until all checks without needs have run


@attrs.frozen
class Check:
    """A check of one item: the function that runs it, and the conditions that it needs.

    If the function yields a text instead of a Finding, the text is a problem of a job. ``error`` is the class of the
    error that reports this problem.
    """

    what: str
    run: Callable[[], Iterable[Finding | str] | None]
    needs: Sequence[Need] = ()
    error: type[ClusterError] = JobRejected

    def findings(self) -> list[Finding]:
        """Run the check, or skip it because a need is not met. Raises the errors of ``run``."""
        missing = next((need.missing for need in self.needs if not need.is_met()), None)
        if missing is not None:
            return [skipped(self.what, missing)]
        return [each if isinstance(each, Finding) else self.problem(each, self.error) for each in self.run() or ()]

    def problem(self, detail: str, error: type[ClusterError]) -> Finding:
        return JobProblem(self.what, Severity.PROBLEM, detail, error=error)

    def safe_findings(self) -> list[Finding]:
        """Run the check like ``findings``, but report an error as a problem."""
        try:
            return self.findings()
        except (ClusterError, StorageError) as error:
            return [problem(self.what, str(error), "")]
        except Exception as error:  # noqa: BLE001 - a failed check must not hide the findings of other checks
            return [problem(self.what, f"the check itself failed: {error!r}", "please report this")]


def run_in_order(checks: Sequence[Check]) -> list[Finding]:
    """Run the checks of a job one after the other; return their findings.

    JobRejected and SourceMissing of a check are converted to problems. Any other ClusterError or StorageError ends the
    run: it is raised, unless an earlier check has found a problem.
    """
    found: list[Finding] = []
    for check in checks:
        try:
            found += check.findings()
        except JobRejected as error:
            found += [check.problem(each, type(error)) for each in error.problems]
        except SourceMissing as error:
            found.append(check.problem(str(error), SourceMissing))
        except (ClusterError, StorageError):
            if not any(isinstance(each, JobProblem) for each in found):
                raise
            return found
    return found


_NAME = "tony-check"  # name of the threads


def run_in_parallel(checks: Sequence[Check], seconds: float, first_seconds: float | None = None) -> list[Finding]:
    """Run the checks in parallel; return their findings in the order of the checks, after at most ``seconds``.

    Checks without needs run first, for at most ``first_seconds``; then the others run. Each check runs in a daemon
    thread, which may outlive the call, because libraries that resolve names or read tickets have no deadline.
    """
    begun = time.monotonic()
    first = [check for check in checks if not check.needs]
    found = _run_round(first, seconds if first_seconds is None else first_seconds)
    if later := [check for check in checks if check.needs]:
        found |= _run_round(later, seconds - (time.monotonic() - begun))
    return [finding for check in checks for finding in found[id(check)]]


def _run_round(checks: Sequence[Check], seconds: float) -> dict[int, list[Finding]]:
    """Run checks in parallel; return their findings by the ``id`` of the check object."""
    calls = run_in_threads([check.safe_findings for check in checks], seconds, _NAME)
    return {
        id(check): call.result() if call.done() else [_unfinished(check.what, seconds)]
        for check, call in zip(checks, calls, strict=True)
    }


def await_late_checks(seconds: float) -> None:
    """Wait up to ``seconds`` for checks that exceeded their time, so that they clean up before the process ends."""
    deadline = time.monotonic() + seconds
    for thread in threading.enumerate():
        if thread.name == _NAME:
            thread.join(max(0.0, deadline - time.monotonic()))


def _unfinished(what: str, seconds: float) -> Finding:
    return problem(
        what,
        f"no answer within {seconds:.2g} s",
        "a firewall, a name server or a KDC may not respond, or the cluster may be overloaded",
    )
