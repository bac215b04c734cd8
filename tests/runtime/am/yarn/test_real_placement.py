"""Where YARN really puts containers: nodes, racks, rules and attributes, on four nodes of two racks."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.fixtures import StartHadoop
from tests.hadoop.placing import PLACING, RIGHT
from tests.runtime.am.yarn.leading import Led, racks_of
from tests.waiting import until

pytestmark = pytest.mark.long  # whole jobs are placed in tests/jobs/test_placement.py


@pytest.fixture(scope="module", params=["3.4.2", "3.3.6"])
def cluster(start_hadoop: StartHadoop, request: pytest.FixtureRequest) -> Iterator[HadoopCluster]:
    cluster = start_hadoop(replace(PLACING, version=request.param))
    yield cluster
    cluster.stop()


@pytest.fixture
def lead(cluster: HadoopCluster, tmp_path: Path) -> Iterator[Led]:
    led = Led.submit(cluster, tmp_path)
    yield led
    led.kill()


def hosts(containers: list[dict[str, Any]]) -> list[str]:
    return [str(container["node"]).rpartition(":")[0] for container in containers]


def racks(cluster: HadoopCluster, containers: list[dict[str, Any]]) -> list[str]:
    return [racks_of(cluster)[host] for host in hosts(containers)]


def nodes_of(cluster: HadoopCluster) -> list[str]:
    return [node.host for node in cluster.state.addresses.nodemanagers]


def test_required_and_wanted_nodes(cluster: HadoopCluster, lead: Led) -> None:
    nodes = nodes_of(cluster)
    placed = lead.ask([1, 2, 3], 256, placement={"nodes": nodes[1:3], "required": True})
    assert set(hosts(placed)) <= set(nodes[1:3])
    wanted = lead.ask([4, 5], 256, placement={"nodes": [nodes[3]]})
    assert hosts(wanted) == [nodes[3]] * 2


def test_a_required_rack(cluster: HadoopCluster, lead: Led) -> None:
    placed = lead.ask([1, 2, 3, 4, 5], 512, placement={"racks": [RIGHT], "required": True})
    assert racks(cluster, placed) == [RIGHT] * 5


def test_required_nodes_that_are_full_are_waited_for(cluster: HadoopCluster, lead: Led) -> None:
    """And those that come after them get what they want elsewhere meanwhile."""
    node = nodes_of(cluster)[2]
    held = lead.ask([1], 2048 - 256, placement={"nodes": [node], "required": True})
    lead.tell("request", keys=[2], memory=1024, placement={"nodes": [node], "required": True})
    lead.ask([3], 1024, placement={"nodes": [nodes_of(cluster)[3]], "required": True})
    assert {event["key"] for event in lead.events("Allocated")} == {1, 3}
    lead.tell("release", containers=[held[0]["id"]])
    until(lambda: {event["key"] for event in lead.events("Allocated")} == {1, 2, 3}, lead.logs)
    assert hosts([event["container"] for event in lead.events("Allocated") if event["key"] == 2]) == [node]


def test_apart_from_each_other(cluster: HadoopCluster, lead: Led) -> None:
    apart = {"constraints": [{"anti_affinity": ["ps"]}]}
    placed = lead.ask([1, 2, 3, 4], 256, placement=apart, tags=["ps"])
    assert sorted(hosts(placed)) == sorted(nodes_of(cluster))
    # A fifth one waits, until one of them has gone.
    lead.tell("request", keys=[5], memory=256, placement=apart, tags=["ps"])
    lead.ask([6], 256)
    assert 5 not in {event["key"] for event in lead.events("Allocated")}
    lead.tell("release", containers=[placed[0]["id"]])
    until(lambda: 5 in {event["key"] for event in lead.events("Allocated")}, lead.logs)
    (fifth,) = [event["container"] for event in lead.events("Allocated") if event["key"] == 5]
    assert hosts([fifth]) == hosts(placed[:1])


def test_together_on_a_node_and_on_a_rack(cluster: HadoopCluster, lead: Led) -> None:
    together = {"constraints": [{"affinity": ["worker"]}]}
    assert len(set(hosts(lead.ask([1, 2, 3], 256, placement=together, tags=["worker"])))) == 1
    by_rack = {"constraints": [{"affinity": ["reader"], "scope": "rack"}, {"anti_affinity": ["reader"]}]}
    readers = lead.ask([4, 5], 256, placement=by_rack, tags=["reader"])
    assert len(set(hosts(readers))) == 2
    assert len(set(racks(cluster, readers))) == 1
    beside = {"constraints": [{"affinity": ["reader"]}]}
    assert hosts(lead.ask([6], 256, placement=beside, tags=["helper"]))[0] in hosts(readers)


def test_at_most_two_on_a_node(cluster: HadoopCluster, lead: Led) -> None:
    placed = lead.ask(
        list(range(1, 9)), 128, placement={"constraints": [{"cardinality": "worker", "max": 2}]}, tags=["worker"]
    )
    assert set(Counter(hosts(placed)).values()) == {2}


def test_nodes_by_their_attributes(cluster: HadoopCluster, lead: Led) -> None:
    nodes = nodes_of(cluster)
    fast = lead.ask([1, 2, 3], 256, placement={"attributes": ["nm.yarn.io/disk=ssd"]}, tags=["fast"])
    assert set(hosts(fast)) <= {nodes[0], nodes[2]}
    # Where there is no such attribute, it is not this either.
    others = lead.ask([4, 5], 256, placement={"attributes": ["nm.yarn.io/disk!=ssd"]}, tags=["slow"])
    assert set(hosts(others)) <= {nodes[1], nodes[3]}
    both = {"attributes": ["nm.yarn.io/disk=ssd"], "constraints": [{"anti_affinity": ["lone"]}]}
    assert sorted(hosts(lead.ask([6, 7], 128, placement=both, tags=["lone"]))) == sorted([nodes[0], nodes[2]])


def test_apart_from_another_application(cluster: HadoopCluster, lead: Led, tmp_path: Path) -> None:
    serving = lead.ask([1, 2], 256, placement={"constraints": [{"anti_affinity": ["serving"]}]}, tags=["serving"])
    other = Led.submit(cluster, tmp_path)
    try:
        away = {"constraints": [{"anti_affinity": ["not-self/serving"]}]}
        assert set(hosts(other.ask([1, 2, 3], 256, placement=away, tags=["worker"]))).isdisjoint(hosts(serving))
    finally:
        other.kill()


def test_what_was_withdrawn_is_not_granted_any_more(cluster: HadoopCluster, lead: Led) -> None:
    apart = {"constraints": [{"anti_affinity": ["ps"]}]}
    placed = lead.ask([1, 2, 3, 4], 256, placement=apart, tags=["ps"])
    lead.tell("request", keys=[5, 6], memory=256, placement=apart, tags=["ps"])
    lead.tell("request", keys=[7], memory=2048, placement={"nodes": nodes_of(cluster)[:1], "required": True})
    lead.tell("cancel", keys=[5, 7])
    lead.tell("release", containers=[each["id"] for each in placed])
    lead.event("Completed", 4)
    until(lambda: 6 in {event["key"] for event in lead.events("Allocated")}, lead.logs)
    lead.ask([8, 9, 10], 256, placement=apart, tags=["ps"])
    assert {event["key"] for event in lead.events("Allocated")} == {1, 2, 3, 4, 6, 8, 9, 10}


def test_what_waits_is_asked_for_again_of_another_resource_manager(cluster: HadoopCluster, lead: Led) -> None:
    apart = {"constraints": [{"anti_affinity": ["ps"]}]}
    placed = lead.ask([1, 2, 3, 4], 256, placement=apart, tags=["ps"])
    lead.tell("request", keys=[5], memory=256, placement=apart, tags=["ps"])
    lead.tell("request", keys=[6], memory=256, placement={"nodes": nodes_of(cluster)[:1], "required": True})
    cluster.kill("resourcemanager-1")
    cluster.restart("resourcemanager-1")
    lead.tell("request", keys=[7], memory=256)
    until(lambda: {event["key"] for event in lead.events("Allocated")} >= {6, 7}, lead.logs)
    assert 5 not in {event["key"] for event in lead.events("Allocated")}
    lead.tell("release", containers=[placed[2]["id"]])
    until(lambda: 5 in {event["key"] for event in lead.events("Allocated")}, lead.logs)
    (fifth,) = [event["container"] for event in lead.events("Allocated") if event["key"] == 5]
    assert hosts([fifth]) == hosts(placed[2:3])


def test_the_next_master_knows_beside_whom_to_be(cluster: HadoopCluster, lead: Led) -> None:
    together = {"constraints": [{"affinity": ["worker"]}]}
    (first,) = lead.ask([1], 256, placement=together, tags=["worker"])
    _, process = lead.master()
    process.signal(signal.SIGKILL)
    lead.next_attempt()
    assert hosts(lead.ask([1, 2], 256, placement=together, tags=["worker"])) == hosts([first]) * 2
