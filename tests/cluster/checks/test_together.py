"""What a diagnosis says of several servers together."""

from __future__ import annotations

import json

import pytest
import requests

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
    assert finding.detail == f"no {what[:-1]} that answers is active"


def test_one_that_is_active_is_enough() -> None:
    checks = ResourceManagerChecks(WAY, active=["http://rm1"], standby=["http://rm2"])
    assert list(checks.together()) == []
    missing = problem("ResourceManager http://rm3", "nothing listens there", "")
    other = problem("NameNode http://nn1", "nothing listens there", "")
    assert [each.outcome for each in checks.softened([missing, other])] == [Severity.WARNING, Severity.PROBLEM]


def answer(status: int, body: object) -> requests.Response:
    response = requests.Response()
    response.status_code, response._content = status, json.dumps(body).encode()
    return response


def remote(exception: str) -> dict[str, object]:
    return {"RemoteException": {"exception": exception, "message": "Operation category READ is not supported"}}


@pytest.mark.parametrize(
    ("checks", "status", "body", "state"),
    [
        (NameNodeChecks(WAY), 200, {"FileStatus": {}}, "active"),
        (NameNodeChecks(WAY), 403, remote("StandbyException"), "standby"),
        (NameNodeChecks(WAY), 403, remote("AccessControlException"), ""),
        (NameNodeChecks(WAY), 200, {}, ""),
        (ResourceManagerChecks(WAY), 200, {"clusterInfo": {"resourceManagerVersion": "3.4.2"}}, "active, Hadoop 3.4.2"),
        (
            ResourceManagerChecks(WAY),
            200,
            {"clusterInfo": {"haState": "STANDBY"}},
            "standby, Hadoop of unknown version",
        ),
        (ResourceManagerChecks(WAY), 503, "This is standby RM", "standby"),
        (ResourceManagerChecks(WAY), 200, {}, ""),
    ],
)
def test_the_state_of_a_daemon(checks: DaemonChecks, status: int, body: object, state: str) -> None:
    assert checks._state(answer(status, body)) == state
