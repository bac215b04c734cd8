"""The findings of a diagnosis: one line for each thing that was looked at."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum

import attrs

from tony_provider.cluster.errors import ClusterError
from tony_provider.runtime.storage.errors import StorageError


class Severity(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"  # jobs run all the same; somebody should know of it
    PROBLEM = "problem"  # jobs do not run
    SKIPPED = "skipped"  # it could not be looked at, because of something else that was found


@attrs.frozen
class Finding:
    """What one check has found out about one thing."""

    what: str  # was looked at, such as "NameNode http://nn1:9870"
    outcome: Severity
    detail: str
    advice: str = ""  # what to do about it

    def __str__(self) -> str:
        return f"{self.what}: {self.detail}" + (f"; {self.advice}" if self.advice else "")


def ok(what: str, detail: str) -> Finding:
    """A finding that all is well."""
    return Finding(what, Severity.OK, detail)


def warning(what: str, detail: str, advice: str) -> Finding:
    """A finding that somebody should know of, though jobs run."""
    return Finding(what, Severity.WARNING, detail, advice)


def problem(what: str, detail: str, advice: str) -> Finding:
    """A finding that keeps jobs from running."""
    return Finding(what, Severity.PROBLEM, detail, advice)


def skipped(what: str, detail: str) -> Finding:
    """A finding that could not be made, because of another one."""
    return Finding(what, Severity.SKIPPED, detail)


def softened(finding: Finding) -> Finding:
    """The finding with a problem made a warning, since it does not keep jobs from running."""
    return attrs.evolve(finding, outcome=Severity.WARNING) if finding.outcome is Severity.PROBLEM else finding


@attrs.frozen
class Report:
    """All findings of one diagnosis, and from where it was made."""

    host: str  # that it was looked from
    user: str  # whom jobs would run as; empty when that cannot be known
    cluster: str  # what kind of one
    findings: list[Finding]

    @property
    def problems(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.outcome is Severity.PROBLEM]

    @property
    def is_good(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        """A few lines for people: the problems, else what is there.

        Several problems are numbered, since Airflow's pages show all lines as one.
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


_NAME = "tony-check"  # of their threads


@attrs.frozen
class Check:
    """One check of a diagnosis: what it looks at, and the function that does it."""

    what: str
    run: Callable[[], Iterable[Finding]]


def run_checks(checks: Sequence[Check], seconds: float) -> list[Finding]:
    """Run all checks at once; returns their findings, in the checks' order, after ``seconds`` at most.

    Names and tickets are looked up by libraries that know no deadline: hence threads that nobody waits for.
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
    """Give checks that were cut off so long to tidy up, before the process ends and they with it."""
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
