"""How checks are run in order, and which error their findings become."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

import pytest

from tony_provider.cluster.errors import (
    ClusterError,
    ClusterUnreachable,
    JobNotAllowed,
    JobRejected,
    JobTooLarge,
    SourceMissing,
)
from tony_provider.cluster.findings import (
    Check,
    Finding,
    JobProblem,
    Need,
    Severity,
    raise_problems,
    run_in_order,
    run_in_parallel,
    warning,
)


def raises(error: Exception) -> Check:
    def run() -> NoReturn:
        raise error

    return Check("raises", run)


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ([JobNotAllowed], JobNotAllowed),
        ([JobTooLarge, JobTooLarge], JobTooLarge),
        ([SourceMissing], SourceMissing),
        ([JobTooLarge, JobRejected], JobRejected),
        ([SourceMissing, JobNotAllowed], JobRejected),
    ],
)
def test_problems_of_one_class_raise_it_and_others_a_rejection(
    errors: list[type[ClusterError]], expected: type[ClusterError]
) -> None:
    found = [JobProblem("x", Severity.PROBLEM, f"problem {index}", error=error) for index, error in enumerate(errors)]
    with pytest.raises(expected) as raised:
        raise_problems([warning("x", "beware", ""), *found])
    assert type(raised.value) is expected
    assert all(f"problem {index}" in str(raised.value) for index in range(len(errors)))
    assert "beware" not in str(raised.value)


def test_warnings_raise_nothing() -> None:
    raise_problems([warning("x", "beware", "")])


def test_errors_about_the_job_are_findings_and_the_next_check_runs() -> None:
    checks = [raises(JobNotAllowed(["a", "b"])), raises(SourceMissing("c")), Check("late", lambda: None)]
    found = run_in_order(checks)
    assert [each.detail for each in found] == ["a", "b", "c"]


def test_an_error_of_the_cluster_does_not_hide_problems_that_were_found_before() -> None:
    unreachable = raises(ClusterUnreachable("nobody answers"))
    with pytest.raises(ClusterUnreachable):
        run_in_order([Check("one", lambda: [warning("one", "beware", "")]), unreachable])
    rejected = Check("one", lambda: ["no"])
    assert run_in_order([rejected, unreachable]) == [JobProblem("one", Severity.PROBLEM, "no", error=JobRejected)]


def test_a_check_without_what_it_needs_is_skipped() -> None:
    available = [False]

    def run() -> Iterator[Finding]:
        yield warning("two", "it ran", "")

    check = Check("two", run, [Need("one has failed", lambda: available[0])])
    [finding] = run_in_order([check])
    assert (finding.what, finding.outcome, finding.detail) == ("two", Severity.SKIPPED, "one has failed")
    available[0] = True
    assert [each.detail for each in run_in_order([check])] == ["it ran"]


def test_checks_that_need_others_run_after_them_and_stay_in_order() -> None:
    answered: list[str] = []

    def first() -> Iterator[Finding]:
        answered.append("server")
        yield warning("one", "first", "")

    need = Need("no server has answered", lambda: bool(answered))
    checks = [
        Check("three", lambda: [warning("three", "third", "")], [need]),
        Check("one", first),
        Check("four", lambda: [warning("four", "later", "")], [Need("no store", lambda: False)]),
    ]
    assert [(each.what, each.detail) for each in run_in_parallel(checks, 30.0)] == [
        ("three", "third"),
        ("one", "first"),
        ("four", "no store"),
    ]
