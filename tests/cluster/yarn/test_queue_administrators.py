"""Who administers a queue, by what schedulers show of their access lists."""

from __future__ import annotations

from typing import Any

import pytest

from tony_provider.cluster.yarn.cluster_view import queue_administrators, queues


def scheduler(**administrators: str) -> dict[str, Any]:
    """Each queue in the one before it."""
    tree: dict[str, Any] = {}
    for name, text in reversed(administrators.items()):
        acl = [{"accessType": "SUBMIT_APP", "accessControlList": "sue"}]
        acl.append({"accessType": "ADMINISTER_QUEUE", "accessControlList": text})
        below = {"queues": {"queue": [tree]}} if tree else {}
        tree = {"queueName": name, "state": "RUNNING", "queueAcls": {"queueAcl": acl}, **below}
    return {"scheduler": {"schedulerInfo": {"type": "capacityScheduler", **tree}}}


@pytest.mark.parametrize(
    ("shown", "queue", "known"),
    [
        ({"root": "ada ", "team": " ", "leaf": "bob ops"}, "leaf", ["ada ", "bob ops"]),
        ({"root": "ada ", "team": " ", "leaf": "bob ops"}, "root.team", ["ada "]),
        ({"root": "ada ", "team": "x"}, None, ["ada "]),  # YARN will choose the queue
        ({"root": "ada ", "team": "x"}, "made-on-demand", ["ada "]),
        ({"root": "*", "team": "bob"}, "team", ["bob"]),  # YARN's default of the root
    ],
)
def test_of_a_queue_and_those_that_it_lies_in(shown: dict[str, str], queue: str | None, known: list[str]) -> None:
    every = queues(scheduler(**shown))
    assert every is not None
    assert queue_administrators(queue, every) == known


def test_where_the_scheduler_shows_no_queues() -> None:
    assert queue_administrators("leaf", ()) == []
