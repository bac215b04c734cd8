"""What a diagnosis says of several servers together."""

from __future__ import annotations

import pytest

from tony_provider.cluster.checks.daemons import DaemonChecks, NameNodeChecks, ResourceManagerChecks
from tony_provider.cluster.findings import Severity, problem
from tony_provider.cluster.http import RequestOptions

WAY = RequestOptions()


@pytest.mark.parametrize(
    ("what", "checks"),
    [
        ("NameNodes", NameNodeChecks(WAY, standby=["http://nn1", "http://nn2"])),
        ("ResourceManagers", ResourceManagerChecks(WAY, standby=["http://rm1", "http://rm2"])),
    ],
)
def test_servers_of_which_none_is_active_are_a_problem_of_all(what: str, checks: DaemonChecks) -> None:
    [finding] = checks.together()
    assert (finding.what, finding.outcome) == (what, Severity.PROBLEM)
    assert finding.detail == "none of those that answer is active"


def test_one_that_is_active_is_enough() -> None:
    checks = ResourceManagerChecks(WAY, active=["http://rm1"], standby=["http://rm2"])
    assert list(checks.together()) == []
    missing = problem("ResourceManager http://rm3", "nothing listens there", "")
    other = problem("NameNode http://nn1", "nothing listens there", "")
    assert [each.outcome for each in checks.softened([missing, other])] == [Severity.WARNING, Severity.PROBLEM]
