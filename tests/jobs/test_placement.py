"""Jobs that say where their containers are to be, on a cluster that places by rules and on one that does not."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.fixtures import StartHadoop
from tests.hadoop.placing import HANDLER, LEFT, PLACING
from tests.importers.jobs import imported_text, xml
from tests.jobs.job import Job
from tests.jobs.places import YarnPlace
from tony_provider.cluster.errors import JobRejected

TASK = {"memory": "128MiB", "command": "true"}


@pytest.fixture(scope="module")
def cluster(start_hadoop: StartHadoop) -> Iterator[HadoopCluster]:
    cluster = start_hadoop(PLACING)
    yield cluster
    cluster.stop()


@pytest.fixture
def placing(cluster: HadoopCluster) -> Iterator[YarnPlace]:
    place = YarnPlace(cluster=cluster)
    yield place
    place.close()


def hosts(job: Job, task_type: str) -> list[str]:
    """Where the tasks of a type were, by their indices."""
    tasks = [task for task in job.succeeded().tasks if task.type == task_type]
    return [str(task.node).partition(":")[0] for task in tasks]


def rules(*several: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"placement": {"constraints": list(several), **more}}


def test_servers_apart_workers_together_and_a_reader_on_its_node(placing: YarnPlace) -> None:
    nodes = [node.host for node in placing.cluster.state.addresses.nodemanagers]
    rack_of = dict(zip(nodes, PLACING.racks, strict=True))
    tasks = {
        "ps": {**TASK, "instances": 3, **rules({"anti_affinity": ["ps"]})},
        "worker": {**TASK, "instances": 4, **rules({"affinity": ["worker"], "scope": "rack"})},
        "pair": {**TASK, "instances": 4, **rules({"cardinality": "pair", "max": 1})},
        "fast": {**TASK, "instances": 2, "placement": {"attributes": ["nm.yarn.io/disk=ssd"]}},
        "reader": {**TASK, "placement": {"nodes": nodes[2:3], "required": True}},
        "near": {**TASK, "instances": 2, "placement": {"racks": [LEFT]}},
    }
    for task in tasks.values():
        task["role"] = "worker"

    job = placing.run({"tasks": tasks})

    assert len(set(hosts(job, "ps"))) == 3
    assert len({rack_of[host] for host in hosts(job, "worker")}) == 1
    assert set(Counter(hosts(job, "pair")).values()) == {1}
    assert set(hosts(job, "fast")) <= {nodes[0], nodes[2]}
    assert hosts(job, "reader") == [nodes[2]]
    assert {rack_of[host] for host in hosts(job, "near")} == {LEFT}


@pytest.mark.long
def test_what_waits_for_a_place_is_told_in_words(placing: YarnPlace) -> None:
    """A gang of which a rule leaves room for a part gives it back, and says what it waits for."""
    node = placing.cluster.state.addresses.nodemanagers[3].host
    large = {**TASK, "memory": "1536MiB", "instances": 2, "placement": {"nodes": [node], "required": True}}
    job = placing.submit({"tasks": {"worker": large}, "timeouts": {"allocation": "3s", "queue": "10s"}})
    assert f" x worker (1536 MiB, 1 vcore, only on {node})" in job.failed()  # of two or one, as it comes
    assert "given_back" in {event["event"] for event in job.events()}


@pytest.mark.parametrize(
    ("placement", "says"),
    [
        ({"racks": ["/up"], "required": True}, "no node is on a rack '/up'; the racks are /left, /right"),
        ({"nodes": ["127.0.1.77"]}, "there is no node '127.0.1.77' now"),
        ({"attributes": ["nm.yarn.io/disk=tape"]}, "nodes have hdd, ssd for it"),
        ({"constraints": [{"anti_affinity": ["worker"], "scope": "rack"}]}, "but the cluster has only 2 racks"),
    ],
)
def test_what_no_node_could_keep_is_refused(placing: YarnPlace, placement: dict[str, Any], says: str) -> None:
    with pytest.raises(JobRejected, match=r"tasks\.worker\.placement") as caught:
        placing.submit({"tasks": {"worker": {**TASK, "instances": 3, "placement": placement}}})
    assert says in str(caught.value)


def test_a_cluster_that_does_not_place_by_rules_is_told_of_before_the_submission(yarn: YarnPlace) -> None:
    with pytest.raises(JobRejected, match=f"its administrator must set {HANDLER} to scheduler"):
        yarn.submit({"tasks": {"worker": {**TASK, **rules({"anti_affinity": ["worker"]})}}})
    # Nodes and racks every YARN knows.
    nodes = [node.host for node in yarn.cluster.state.addresses.nodemanagers]
    for node in nodes:
        job = yarn.run({"tasks": {"worker": {**TASK, "placement": {"nodes": [node]}}}})
        assert hosts(job, "worker") == [node]


# -- jobs of other systems, imported -----------------------------------------------------------------------------------


def of_others(folder: Path, name: str, text: str) -> dict[str, Any]:
    return dict(imported_text(folder, name, text).job)


@pytest.mark.long  # what imports make of placement is as any other
def test_a_placement_specification_of_tonys(placing: YarnPlace, tmp_path: Path) -> None:
    """At most two workers on a node, to YARN one beside it; servers on others than each other, of one kind of disk."""
    given = {"tony.worker.instances": 4, "tony.ps.instances": 2, "tony.containers.command": "true"}
    given |= {f"tony.{each}.memory": "128m" for each in ("worker", "ps")}
    given |= {"tony.worker.placement-spec": "cardinality,node,w,0,1", "tony.worker.allocation-tags": "w"}
    given |= {"tony.ps.placement-spec": "and(notin,node,p:nm.yarn.io/disk=ssd)", "tony.ps.allocation-tags": "p"}
    given |= {"tony.application.framework": "standalone"}
    nodes = [node.host for node in placing.cluster.state.addresses.nodemanagers]
    job = placing.run(of_others(tmp_path, "tony.xml", xml(**given)))
    assert max(Counter(hosts(job, "worker")).values()) <= 2
    assert set(hosts(job, "ps")) == {nodes[0], nodes[2]}


@pytest.mark.long
def test_nodes_of_skeins(placing: YarnPlace, tmp_path: Path) -> None:
    node = placing.cluster.state.addresses.nodemanagers[3].host
    small = {"instances": 2, "script": "true", "resources": {"memory": 128, "vcores": 1}}
    text = json.dumps({"services": {"strict": {**small, "nodes": [node]}, "near": {**small, "racks": [LEFT]}}})
    nodes = [each.host for each in placing.cluster.state.addresses.nodemanagers]
    rack_of = dict(zip(nodes, PLACING.racks, strict=True))
    job = placing.run(of_others(tmp_path, "spec.json", text))
    assert set(hosts(job, "strict")) == {node}
    assert {rack_of[host] for host in hosts(job, "near")} == {LEFT}


@pytest.mark.long
def test_a_placement_policy_of_yarns_services(placing: YarnPlace, tmp_path: Path) -> None:
    apart = {"type": "ANTI_AFFINITY", "scope": "NODE", "target_tags": ["db-server"]}
    fast = {"type": "AFFINITY", "scope": "NODE", "node_attributes": {"nm.yarn.io/disk": ["ssd"]}}
    small = {"launch_command": "true", "resource": {"cpus": 1, "memory": "128"}}
    components = [
        {"name": "db-server", "number_of_containers": 2, **small, "placement_policy": {"constraints": [apart, fast]}},
        {"name": "client", "number_of_containers": 2, **small, "placement_policy": {"constraints": [apart]}},
    ]
    found = of_others(tmp_path, "service.json", json.dumps({"name": "x", "components": components}))
    nodes = [node.host for node in placing.cluster.state.addresses.nodemanagers]
    job = placing.run(found)
    assert set(hosts(job, "db_server")) == {nodes[0], nodes[2]}
