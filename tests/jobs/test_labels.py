"""Jobs that ask for nodes with a label."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hadoop.config import NODE_LABEL
from tests.hadoop.settings import NodeManager
from tests.jobs.places import YarnPlace
from tests.waiting import until

WORKER = {"instances": 2, "memory": "128MiB", "command": "true"}


@pytest.fixture
def labelled(yarn: YarnPlace) -> Iterator[NodeManager]:
    """The one node that has the label while a test runs."""
    node = yarn.cluster.state.addresses.nodemanagers[0]
    services = yarn.cluster.services

    def label(name: str) -> None:
        services.label_node(node.rpc, name)
        wanted = [name] if name else []
        until(
            lambda: [each.get("nodeLabels", []) for each in services.nodes() if each["id"] == node.rpc] == [wanted],
            f"{node.rpc} to have the label {name!r}",
        )

    label(NODE_LABEL)
    try:
        yield node
    finally:
        label("")


def test_tasks_go_to_nodes_with_their_label(yarn: YarnPlace, labelled: NodeManager) -> None:
    job = yarn.run({"tasks": {"worker": {**WORKER, "node_label": NODE_LABEL}, "other": {**WORKER, "instances": 1}}})

    nodes = {task.name: (task.node or "").partition(":")[0] for task in job.succeeded().tasks}
    assert nodes["worker:0"] == nodes["worker:1"] == labelled.host
    assert nodes["other:0"] != labelled.host
    assert yarn.report(job.id)["amHostHttpAddress"] != labelled.web


def test_a_whole_job_goes_to_nodes_with_its_label(yarn: YarnPlace, labelled: NodeManager) -> None:
    job = yarn.run({"node_label": NODE_LABEL, "tasks": {"worker": WORKER}})

    assert {(task.node or "").partition(":")[0] for task in job.succeeded().tasks} == {labelled.host}
    assert yarn.report(job.id)["amHostHttpAddress"] == labelled.web
