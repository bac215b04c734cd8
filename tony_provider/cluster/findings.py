"""Findings of a connection diagnosis, and the code that runs its checks.

A Report lists one Finding for each item that was checked. ``run_checks`` runs the checks in parallel within a time
limit.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum

import attrs

from tony_provider.cluster.errors import ClusterError
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
    advice: str = ""  # how to fix it

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


def softened(finding: Finding) -> Finding:
    """Return the finding with a problem reduced to a warning, because it does not prevent jobs from running."""
    return attrs.evolve(finding, outcome=Severity.WARNING) if finding.outcome is Severity.PROBLEM else finding


@attrs.frozen
class Report:
    """All findings of one diagnosis, with the host and user that made it."""

    host: str  # that ran the checks
    user: str  # user of the jobs; empty if it is unknown
    cluster: str  # its kind, such as yarn
    findings: list[Finding]

    @property
    def problems(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.outcome is Severity.PROBLEM]

    @property
    def is_good(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        """Format the report in a few lines: the problems, or all findings if there are no problems.

        Several problems are numbered, because Airflow's pages show all lines in one line.
        """
        shown = [each for each in self.findings if each.outcome is not Severity.SKIPPED]
        head = f"Looked at the {self.cluster} cluster from host {self.host}"
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


_NAME = "tony-check"  # name of the threads


@attrs.frozen
class Check:
    """One check of a diagnosis: the item it checks, and the function that does it."""

    what: str
    run: Callable[[], Iterable[Finding]]


def run_checks(checks: Sequence[Check], seconds: float) -> list[Finding]:
    """Run all checks in parallel; return their findings in the order of the checks, after at most ``seconds``.

    Libraries that resolve names and read tickets have no deadline, so each check has a daemon thread that may outlive
    the call.
    """
    found: dict[int, list[Finding]] = {}

    def act(index: int, check: Check) -> None:
        found[index] = _findings(check)

    threads = [
        threading.Thread(target=act, args=(index, check), name=_NAME, daemon=True) for index, check in enumerate(checks)
    ]
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return [
        finding
        for index, check in enumerate(checks)
        for finding in found.get(index, [_unfinished(check.what, seconds)])
    ]


def await_late_checks(seconds: float) -> None:
    """Wait up to ``seconds`` for checks that were cut off, so that they clean up before the process ends."""
    deadline = time.monotonic() + seconds
    for thread in threading.enumerate():
        if thread.name == _NAME:
            thread.join(max(0.0, deadline - time.monotonic()))


def _findings(check: Check) -> list[Finding]:
    try:
        return list(check.run())
    except (ClusterError, StorageError) as error:
        return [problem(check.what, str(error), "")]
    except Exception as error:  # noqa: BLE001 - a check that fails must not hide what the others found
        return [problem(check.what, f"the check itself failed: {error!r}", "please report this")]


def _unfinished(what: str, seconds: float) -> Finding:
    return problem(
        what,
        f"no answer within {seconds:.2g} s",
        "something on the way is silent (a firewall, a name server, a KDC), or the cluster is overloaded",
    )
