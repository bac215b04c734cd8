"""The ResourceManager interface on a real YARN that takes, moves, fails over and starts masters again."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.fixtures import StartHadoop
from tests.hadoop.settings import Settings
from tests.runtime.am.yarn.leading import MASTER_MB, Led
from tests.waiting import until
from tony_provider.runtime.am.resource_manager import ExitReason

pytestmark = pytest.mark.long

NODES, NODE_MB = 3, 1024
SETTINGS = Settings(
    resourcemanagers=2,
    nodemanagers=NODES,
    node_memory_mb=NODE_MB,
    node_vcores=16,
    preemption=True,
    expiry_seconds=10,
    # The ResourceManager accepts only intervals of more than three times its expiry of masters.
    properties={"yarn-site": {"yarn.resourcemanager.am-rm-tokens.master-key-rolling-interval-secs": "31"}},
)


@pytest.fixture(scope="module")
def cluster(start_hadoop: StartHadoop) -> Iterator[HadoopCluster]:
    """A pair of ResourceManagers over three nodes, to break."""
    cluster = start_hadoop(SETTINGS)
    yield cluster
    cluster.stop()


@pytest.fixture
def lead(cluster: HadoopCluster, tmp_path: Path) -> Iterator[list[Led]]:
    """Applications to end."""
    led: list[Led] = []
    yield led
    for each in led:
        each.kill()


def submit(lead: list[Led], cluster: HadoopCluster, folder: Path, queue: str = "default") -> Led:
    lead.append(Led.submit(cluster, folder, queue=queue))
    return lead[-1]


def test_what_another_queue_is_due_is_announced_before_it_is_taken(
    lead: list[Led], cluster: HadoopCluster, tmp_path: Path
) -> None:
    first = submit(lead, cluster, tmp_path)
    held = first.ask(list(range(1, 6)), 512)
    second = submit(lead, cluster, tmp_path, queue="ml")
    second.tell("request", keys=[1, 2], memory=512)
    announced = first.event("Preempting")[0]
    assert announced["container_ids"]
    assert set(announced["container_ids"]) <= {container["id"] for container in held}
    taken = first.event("Completed")[0]
    assert taken["exit"]["reason"] == ExitReason.PREEMPTED
    assert taken["container_id"] in announced["container_ids"]
    second.event("Launched")


def test_what_room_there_is_is_found_as_it_is(lead: list[Led], cluster: HadoopCluster, tmp_path: Path) -> None:
    """Beyond the share of its queue, and though nothing is asked for: YARN's own figure says neither."""
    first = submit(lead, cluster, tmp_path)
    second = submit(lead, cluster, tmp_path, queue="ml")
    # A node has room for one, or for two where there is no master.
    assert look(first, 3, 512) == 3
    held = second.ask([1, 2, 3], 512)
    there = look(first, 9, 512)
    assert 1 <= there < 3
    first.ask([1], 512)
    assert look(first, 9, 512) == there - 1
    second.tell("release", containers=[container["id"] for container in held])
    second.event("Completed", 3)
    assert look(first, 9, 512) == there + 2
    assert look(first, 9, NODE_MB) <= 1  # where all of a node is free
    # Nothing of it is kept, nor heard of.
    assert {event["key"] for event in first.events("Allocated")} == {1}
    assert not first.events("Completed")
    until(lambda: len(running(cluster, first)) == 2, first.logs)


def look(led: Led, most: int, memory: int) -> int:
    """For how many containers it finds room."""
    key = len(led.events("Room"))
    led.tell("look", key=key, memory=memory, most=most)
    found = led.event("Room", key + 1)[-1]
    assert found["key"] == key
    return int(found["containers"])


def running(cluster: HadoopCluster, led: Led) -> range:
    """As many as the ResourceManager counts."""
    base = cluster.services.active_resourcemanager()
    app = cluster.client("alice").get_json(f"{base}/ws/v1/cluster/apps/{led.id}")["app"]
    return range(int(app["runningContainers"]))


def test_a_node_that_is_told_to_leave_says_so_in_time(lead: list[Led], cluster: HadoopCluster, tmp_path: Path) -> None:
    led = submit(lead, cluster, tmp_path)
    held = led.ask(list(range(1, NODES + 1)), 768)  # one on each node
    master, _ = led.master()
    leaving = next(each for each in held if number_of(cluster, each["node"]) != node_of(cluster, master))
    cluster.decommission(number_of(cluster, leaving["node"]), seconds=5)
    try:
        (said,) = led.event("NodeLeaving")
        assert (said["node"], said["seconds"]) == (leaving["node"], 5.0)
        (ended,) = led.event("Completed")
        assert (ended["container_id"], ended["exit"]["reason"]) == (leaving["id"], ExitReason.LOST)
    finally:
        cluster.decommission(seconds=1)
        cluster.restart(f"nodemanager-{number_of(cluster, leaving['node'])}")


def test_nodes_that_are_avoided_give_nothing(lead: list[Led], cluster: HadoopCluster, tmp_path: Path) -> None:
    led = submit(lead, cluster, tmp_path)
    addresses = [node.rpc for node in cluster.state.addresses.nodemanagers]
    led.tell("avoid", nodes=addresses[:2])
    held = led.ask([1, 2, 3], 128)
    assert {container["node"] for container in held} == {addresses[2]}
    # Nor from a ResourceManager that has just taken over.
    fail_over(cluster)
    assert {container["node"] for container in led.ask([4, 5], 128)} == {addresses[2]}
    led.tell("avoid", nodes=[])
    led.tell("release", containers=[container["id"] for container in held])
    led.event("Completed", 3)
    # Larger than what is left of that node.
    assert len({container["node"] for container in led.ask([6, 7, 8], 640)}) == NODES


def test_the_next_attempt_has_the_containers_of_the_first(
    lead: list[Led], cluster: HadoopCluster, tmp_path: Path
) -> None:
    led = submit(lead, cluster, tmp_path)
    first, second, third = led.ask([1, 2, 3], 128)
    led.tell("request", keys=[4], memory=NODE_MB)  # which nobody has; nobody is asked for it again either
    # YARN ends those of which it does not know yet that they run. A shell starts a container's program.
    held = {each["id"] for each in (first, second, third)}
    until(lambda: held <= led.running() & led.processes().keys(), led.logs)
    before = led.processes()
    container, process = led.master()
    process.signal(signal.SIGKILL)
    registered = led.next_attempt()
    assert sorted(registered["containers"], key=str) == sorted((first, second, third), key=str)
    assert led.processes().items() >= {each: at for each, at in before.items() if each != container}.items()
    led.tell("release", containers=[first["id"]])
    (ended,) = led.event("Completed")
    assert ended["container_id"] == first["id"]
    # The keys may begin anew: each answer still belongs to one request.
    led.ask([1, 2], 128)
    assert {event["key"] for event in led.events("Allocated")} == {1, 2}
    # What ends while there is no master, the next one never hears of.
    _, process = led.master()
    process.signal(signal.SIGSTOP)
    led.processes()[second["id"]].signal(signal.SIGKILL)
    until(lambda: second["id"] not in led.processes(), led.logs)
    process.signal(signal.SIGKILL)
    assert second["id"] not in {each["id"] for each in led.next_attempt()["containers"]}


def test_every_request_is_granted_once_though_the_resource_managers_change(
    lead: list[Led], cluster: HadoopCluster, tmp_path: Path
) -> None:
    """Asked of one that dies at once; waiting for room, with a token that was rolled, when the next one dies."""
    led = submit(lead, cluster, tmp_path)
    room = (NODES * NODE_MB - MASTER_MB) // 256
    keys = list(range(1, room + 6))
    led.tell("request", keys=keys[:6], memory=256)
    fail_over(cluster)
    led.tell("request", keys=keys[6:], memory=256)
    until(lambda: len(led.processes()) == 1 + room, led.logs)
    until(lambda: "received a new token from the ResourceManager" in led.logs(), led.logs)
    fail_over(cluster)
    released = led.launched_first(5)
    led.tell("release", containers=released)
    until(lambda: {event["key"] for event in led.events("Allocated")} >= set(keys), led.logs)
    granted = [event["key"] for event in led.events("Allocated")]
    assert len(granted) == len(set(granted))
    # A node refuses what a ResourceManager granted that is no more: the master is told, and asks for another one.
    refused = {event["container_id"] for event in led.events("LaunchFailed")}
    alive = {event["container"]["id"] for event in led.events("Allocated")} - {*released, *refused}
    master, _ = led.master()
    until(lambda: set(led.processes()) == alive | {master}, lambda: f"{alive}\n{led.processes()}\n{led.logs()}")


def test_a_master_whose_node_is_given_up_is_told_that_it_is_over(
    lead: list[Led], cluster: HadoopCluster, tmp_path: Path
) -> None:
    """Its node has lost its NodeManager: it lives on, beside the next one."""
    led = submit(lead, cluster, tmp_path)
    held = led.ask(list(range(1, NODES + 1)), 512)
    container, process = led.master()
    number = node_of(cluster, container)
    cluster.kill(f"nodemanager-{number}")
    try:
        gone = [each for each in held if number_of(cluster, each["node"]) == number]
        registered = led.next_attempt()
        assert {each["id"] for each in registered["containers"]} == {each["id"] for each in held if each not in gone}
        assert process.alive()
        former = Led(cluster, led.id, led.folder, attempt=1)
        former.event("AttemptOver")
        led.ask([11], 128)
    finally:
        for left in led.processes().values():
            left.signal(signal.SIGKILL)
        cluster.restart(f"nodemanager-{number}")


def fail_over(cluster: HadoopCluster) -> None:
    """The active ResourceManager dies, the other one takes over, and the dead one comes back as the standby."""
    active = cluster.services.active_resourcemanager()
    number = [*cluster.rm_webapp].index(str(active)) + 1
    cluster.kill(f"resourcemanager-{number}")
    cluster.activate(3 - number)
    cluster.restart(f"resourcemanager-{number}")


def number_of(cluster: HadoopCluster, node: str) -> int:
    return 1 + [each.rpc for each in cluster.state.addresses.nodemanagers].index(node)


def node_of(cluster: HadoopCluster, container_id: str) -> int:
    """The number of the NodeManager that a container runs on."""
    [folder] = cluster.layout.logs.glob(f"containers-*/*/{container_id}")
    return int(folder.parent.parent.name.rpartition("-")[2])
