"""Who may submit where, by what schedulers show of their access lists."""

from __future__ import annotations

from typing import Any

import pytest

from tony_provider.cluster.checks.daemons import queue_access
from tony_provider.cluster.findings import Severity
from tony_provider.cluster.yarn.cluster_view import queues


def scheduler(root: str | None, team: str | None, leaf: str | None) -> dict[str, Any]:
    def queue(name: str, submit: str | None, children: list[dict[str, Any]]) -> dict[str, Any]:
        acl = {"queueAcl": [{"accessType": "SUBMIT_APP", "accessControlList": submit}]}
        shown = {"queueAcls": acl} if submit is not None else {}
        below = {"queues": {"queue": children}} if children else {}
        return {"queueName": name, "state": "RUNNING", **shown, **below}

    tree = queue("root", root, [queue("team", team, [queue("leaf", leaf, [])])])
    return {"scheduler": {"schedulerInfo": {"type": "capacityScheduler", **tree}}}


@pytest.mark.parametrize(
    ("root", "team", "leaf", "known"),
    [
        ("*", " ", " ", True),
        (" ", "alice", " ", True),  # of a queue that it lies in
        (" ", " ", "bob,alice ops", True),
        (" ", " ", "bob", False),
        (" ", " ", " ", False),
        (" ", " ", "bob ops", None),  # she may be in that group
        (None, None, None, None),
    ],
)
def test_access_is_inherited(root: str | None, team: str | None, leaf: str | None, known: bool | None) -> None:
    every = queues(scheduler(root, team, leaf))
    assert every is not None
    outcomes = {True: Severity.OK, False: Severity.PROBLEM, None: Severity.WARNING}
    assert queue_access("alice", "leaf", every).outcome is outcomes[known]
