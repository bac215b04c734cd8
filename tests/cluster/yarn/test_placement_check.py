"""Where jobs want their containers, and what a cluster has."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from tony_provider.cluster.yarn.cluster_view import ClusterView, Node, nodes
from tony_provider.cluster.yarn.job_checks import handler_problems, placement_problems, racks_of
from tony_provider.runtime.common.codec import from_plain
from tony_provider.runtime.jobspec.model import JobSpec, TaskSpec
from tony_provider.runtime.jobspec.placement import Placement

SSD = {"nm.yarn.io/disk": "ssd", "rm.yarn.io/owner": "ml"}
NODES = [
    Node("n1", frozenset(), {}, rack="/left", attributes=SSD),
    Node("n2", frozenset({"gpu"}), {}, rack="/left", attributes={"nm.yarn.io/disk": "hdd"}),
    Node("n3", frozenset({"gpu"}), {}, rack="/right", attributes=SSD),
]
VIEW = ClusterView(queues=None, labels=frozenset({"gpu"}), nodes=NODES, largest={})


def job(instances: int = 1, label: str | None = None, **placement: Any) -> JobSpec:
    where = from_plain(placement, Placement)
    return JobSpec("generic", {"worker": TaskSpec("true", instances=instances, placement=where, node_label=label)})


def apart(scope: str = "node", **more: Any) -> dict[str, Any]:
    return {"constraints": [{"anti_affinity": ["worker"], "scope": scope, **more}]}


@pytest.mark.parametrize(
    "fitting",
    [
        job(nodes=["n1"], racks=["/right"]),
        job(attributes=["nm.yarn.io/disk=ssd", "owner=ml"]),
        job(attributes=["no.such/attribute!=1"]),
        job(3, **apart()),
        job(2, **apart("rack")),
        job(6, constraints=[{"cardinality": "worker", "max": 2}]),
        job(9, constraints=[{"anti_affinity": ["not-self/worker"]}]),  # of others
        job(9, constraints=[{"affinity": ["worker"]}]),
    ],
)
def test_what_there_is(fitting: JobSpec) -> None:
    assert list(placement_problems(fitting, VIEW)) == []


def spread(needed: int, most: int, scope: str, places: int) -> str:
    return (
        f"constraints[0]: {needed} containers must run at the same time, at most {most} on one {scope}, but the "
        f"cluster has only {places} {scope}s that could run them"
    )


@pytest.mark.parametrize(
    ("wanting", "expected"),
    [
        (job(nodes=["n4"]), "nodes: there is no node 'n4' now; this cluster has n1, n2, n3"),
        (job(racks=["/up"]), "racks: no node is on a rack '/up'; the racks are /left, /right"),
        (
            job(attributes=["nm.yarn.io/disk=tape"]),
            "attributes: no node has nm.yarn.io/disk=tape; nodes have hdd, ssd for it",
        ),
        (
            job(attributes=["disk=ssd"]),  # that is the administrator's, and the nodes' own is another
            "attributes: no node has disk=ssd; nodes have nm.yarn.io/disk=hdd, nm.yarn.io/disk=ssd, "
            "rm.yarn.io/owner=ml",
        ),
        (job(attributes=["nm.yarn.io/disk=hdd", "owner=ml"]), ": no node satisfies all conditions"),
        (
            job(4, **apart()),
            spread(4, 1, "node", 3),
        ),
        (
            job(3, label="gpu", **apart()),
            spread(3, 1, "node", 2),
        ),
        (
            job(3, **apart("rack")),
            spread(3, 1, "rack", 2),
        ),
        (
            job(5, attributes=["owner=ml"], constraints=[{"cardinality": "worker", "max": 2}]),
            spread(5, 2, "node", 2),
        ),
    ],
)
def test_what_there_is_not(wanting: JobSpec, expected: str) -> None:
    assert [each.removeprefix("tasks.worker.placement.") for each in placement_problems(wanting, VIEW)] == [
        expected if not expected.startswith(":") else f"tasks.worker.placement{expected}"
    ]


def test_nothing_is_known_of_a_cluster_without_nodes() -> None:
    assert list(placement_problems(job(nodes=["n4"]), attrs.evolve(VIEW, nodes=[]))) == []


def test_a_cluster_that_does_not_place_by_rules_says_which_setting_it_lacks() -> None:
    ruled, plain = job(**apart()), job(nodes=["n1"])
    for handler, word in (("disabled", "has them disabled"), (None, "does not support them")):
        (problem,) = handler_problems(ruled, handler)
        assert word in problem
        assert "yarn.resourcemanager.placement-constraints.handler to scheduler" in problem
        assert list(handler_problems(plain, handler)) == []
    for handler in ("scheduler", "placement-processor", "hidden"):
        assert list(handler_problems(ruled, handler)) == []


def test_racks_of_what_is_named() -> None:
    assert racks_of(job(nodes=["n3"]), NODES) == {"n3": "/right"}
    assert racks_of(job(nodes=["n3"], racks=["/left"]), NODES) == {"n1": "/left", "n2": "/left", "n3": "/right"}


def test_racks_and_attributes_of_an_answer() -> None:
    """As a ResourceManager of 3.4.2 gives them."""
    node = {
        "nodeHostName": "n1",
        "rack": "/left",
        "nodeAttributesInfo": {
            "nodeAttributeInfo": [{"prefix": "nm.yarn.io", "name": "disk", "type": "STRING", "value": "ssd"}]
        },
    }
    (found,) = nodes({"nodes": {"node": [node]}})
    assert (found.rack, found.attributes) == ("/left", {"nm.yarn.io/disk": "ssd"})
    (bare,) = nodes({"nodes": {"node": {"nodeHostName": "n1"}}})
    assert (bare.rack, bare.attributes) == ("", {})
