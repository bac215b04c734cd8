"""Jobs that the cluster has no room for, for now or for good."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.jobs.left import assert_nothing_left
from tests.jobs.places import YarnPlace
from tests.waiting import until
from tony_provider.runtime.protocol.status import FailureKind, JobState, TaskState


def gang(instances: int, memory: int, command: str, **timeouts: str) -> dict[str, Any]:
    return {
        "timeouts": {"allocation": "3s", **timeouts},
        "tasks": {"worker": {"instances": instances, "memory": memory, "command": command}},
    }


@pytest.mark.long
def test_a_gang_that_the_cluster_cannot_hold_gives_everything_back(yarn: YarnPlace) -> None:
    yarn.extra["autoscaling"] = True  # or it would be refused
    # Each fits a node and no node fits two.
    memory = yarn.most_of_a_node
    job = yarn.submit(gang(yarn.nodes + 1, memory, "echo started", queue="14s"))
    job.until(JobState.WAITING)

    # While it waits to ask again it holds its master's container only.
    until(lambda: yarn.report(job.id)["runningContainers"] > 1, job.describe)
    until(lambda: yarn.report(job.id)["runningContainers"] == 1, job.describe)

    diagnostics = job.failed()
    assert "the queue had no room for 14 s" in diagnostics
    assert f"at most {yarn.nodes} of {yarn.nodes + 1} containers were granted at the same time" in diagnostics
    assert f"x worker ({memory} MiB, 1 vcore)" in diagnostics
    failure = job.status().failure
    assert failure is not None
    assert failure.kind is FailureKind.QUEUE_TIMEOUT
    events = [event["event"] for event in job.events()]
    assert events.index("given_back") < events.index("asking_again")
    assert "started" not in events
    assert_nothing_left(yarn, job)
    until(lambda: yarn.report(job.id)["runningContainers"] <= 0, job.describe)


def test_two_gangs_that_each_need_more_than_half_of_the_cluster_both_finish(yarn: YarnPlace) -> None:
    # Two fit each node, and each gang needs three: holding two each, neither could ever begin.
    memory = yarn.cluster.settings.node_memory_mb * 4 // 10
    spec = gang(yarn.nodes + 1, memory, "sleep 1", queue="3m")

    with ThreadPoolExecutor() as pool:
        jobs = list(pool.map(lambda _: yarn.submit(spec), range(2)))

    for job in jobs:
        status = job.succeeded()
        assert [task.state for task in status.tasks] == [TaskState.SUCCEEDED] * (yarn.nodes + 1)
    for job in jobs:
        assert_nothing_left(yarn, job)
