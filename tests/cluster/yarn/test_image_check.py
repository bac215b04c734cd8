"""What NodeManagers say of themselves, held against the images of a job."""

from __future__ import annotations

from typing import Any

import pytest

from tony_provider.cluster.yarn.cluster_view import Node
from tony_provider.cluster.yarn.job_checks import NodeSettings, image_problems, nodes_for_images
from tony_provider.runtime.jobspec.model import JobSpec
from tony_provider.runtime.parsing.parse import parse_job

EXECUTOR = "yarn.nodemanager.container-executor.class"
PACKAGE = "org.apache.hadoop.yarn.server.nodemanager"
RUNTIMES = "yarn.nodemanager.runtime.linux.allowed-runtimes"
DOCKER = "yarn.nodemanager.runtime.linux.docker"
# As Hadoop 3.4 has them where nothing is set but that Docker is allowed.
DEFAULTS = {
    EXECUTOR: f"{PACKAGE}.LinuxContainerExecutor",
    RUNTIMES: "default,docker",
    f"{DOCKER}.allowed-container-networks": "host,none,bridge",
    f"{DOCKER}.allowed-container-runtimes": "runc",
    f"{DOCKER}.privileged-containers.allowed": "false",
    f"{DOCKER}.privileged-containers.acl": "",
    f"{DOCKER}.host-pid-namespace.allowed": "false",
    f"{DOCKER}.delayed-removal.allowed": "false",
    f"{DOCKER}.default-tmpfs-mounts": "",
}
OPEN = {
    f"{DOCKER}.allowed-container-networks": "host, ml",
    f"{DOCKER}.allowed-container-runtimes": "runc,nvidia",
    f"{DOCKER}.privileged-containers.allowed": "true",
    f"{DOCKER}.privileged-containers.acl": "bob,alice",
    f"{DOCKER}.host-pid-namespace.allowed": "true",
    f"{DOCKER}.delayed-removal.allowed": "true",
}
EVERYTHING = {
    "image": "tf:2",
    "tmpfs": ["/dev/shm"],
    "network": "ml",
    "privileged": True,
    "pid_namespace": "host",
    "oci_runtime": "nvidia",
    "delayed_removal": True,
    "client_config": "hdfs:///config.json",
}


def job(docker: Any, **more: Any) -> JobSpec:
    plain = {"framework": "standalone", "docker": docker, "tasks": {"worker": {"command": "x"}}}
    return parse_job({**plain, "am": {"docker": {"network": "host"} if docker else None}, **more})


def problems(docker: Any, settings: dict[str, str], version: str = "3.4.2", user: str = "alice") -> list[str]:
    return image_problems(job(docker), user, NodeSettings("node1", version, settings))


def test_a_node_that_allows_it_all() -> None:
    assert problems(EVERYTHING, {**DEFAULTS, **OPEN}) == []
    assert problems({"image": "tf:2"}, DEFAULTS) == []
    assert problems({"image": "tf:2", "network": "host"}, DEFAULTS) == []


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({EXECUTOR: f"{PACKAGE}.DefaultContainerExecutor"}, "starts only plain processes, not images"),
        ({EXECUTOR: f"{PACKAGE}.LinuxContainerExecutor"}, f"does not allow the runtime docker ({RUNTIMES} is default)"),
        ({**DEFAULTS, RUNTIMES: "default,runc"}, f"does not allow the runtime docker ({RUNTIMES} is default,runc)"),
    ],
)
def test_a_node_that_starts_none_is_told_once(settings: dict[str, str], words: str) -> None:
    (problem,) = problems(EVERYTHING, settings)
    assert problem.startswith("docker: the NodeManager of node1 ")
    assert words in problem


def test_what_a_node_does_not_allow() -> None:
    found = problems(EVERYTHING, DEFAULTS)
    assert sorted(each.partition(": ")[0] for each in found) == [
        "docker.delayed_removal",
        "docker.network",
        "docker.oci_runtime",
        "docker.pid_namespace",
        "docker.privileged",
        "docker.privileged",
    ]
    told = "\n".join(found)
    assert f"does not allow ml ({DOCKER}.allowed-container-networks is host,none,bridge)" in told
    assert f"does not allow it for alice ({DOCKER}.privileged-containers.acl is empty)" in told
    assert problems({"image": "a", "privileged": True}, {**DEFAULTS, **OPEN}, user="mallory") != []


def test_a_default_network_in_which_nobody_reaches_the_master() -> None:
    settings = {**DEFAULTS, f"{DOCKER}.default-container-network": "ml"}
    node = NodeSettings("node1", "3.4.2", settings)
    (problem,) = image_problems(job({"image": "a"}, am=None), "alice", node)
    assert problem.startswith("am.docker: its network would be ml, the default of node1; tasks and YARN's proxy reach")
    assert image_problems(job({"image": "a"}), "alice", node) == []
    assert image_problems(job({"image": "a"}, am={"docker": False}), "alice", node) == []


def test_what_a_node_is_too_old_for() -> None:
    """It would pass over it in silence."""
    old = {name: value for name, value in DEFAULTS.items() if name in (EXECUTOR, RUNTIMES)}
    image = {"image": "a", "mounts": ["/a:/a:ro"], "tmpfs": ["/dev/shm"], "client_config": "/c.json"}
    found = problems(image, old, version="2.10.2")
    assert [each.partition(": ")[0] for each in found] == ["docker.tmpfs", "docker.mounts", "docker.client_config"]
    assert all("2.10.2" in each for each in found)


NODES = [Node(f"node{number}", frozenset({"gpu"} if number < 3 else ()), {}) for number in range(1, 6)]


def asked(docker: Any, **more: Any) -> list[str]:
    return [node.host for node in nodes_for_images(job(docker, **more), NODES)]


def test_nodes_by_the_labels_of_those_that_run_in_an_image() -> None:
    assert asked(None) == []
    assert asked({"image": "a"}) == ["node1", "node2", "node3", "node4", "node5"]
    assert asked({"image": "a"}, node_label="gpu") == ["node1", "node2"]
    mixed = {"am": {"docker": False, "node_label": "cheap"}, "node_label": "gpu", "tensorboard": True}
    assert asked({"image": "a"}, **mixed) == ["node1", "node2"]


def test_nodes_by_where_those_that_run_in_an_image_have_to_be() -> None:
    """Others may start no images at all."""
    placement = {"nodes": ["node4"], "required": True}
    tasks = {"worker": {"command": "true", "placement": placement}}
    assert asked({"image": "a"}, tasks=tasks, am={"docker": False}) == ["node4"]
    assert len(asked({"image": "a"}, tasks=tasks)) == 5  # the master may be anywhere
