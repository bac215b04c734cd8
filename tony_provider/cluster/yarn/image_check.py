"""Check of a job's images against what NodeManagers say of themselves: whether they start any, and how.

A NodeManager that starts no images passes over all that asks for one: the job would run on the node itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import attrs

from tony_provider.cluster.yarn.cluster_view import Node
from tony_provider.cluster.yarn.placement_check import suitable
from tony_provider.runtime.hadoop.access_list import AccessList
from tony_provider.runtime.spec.images import HOST_NETWORK, MASTERS_OWN, NO_MASTER_THERE, images, is_dockers
from tony_provider.runtime.spec.model import Docker, JobSpec, PidNamespace
from tony_provider.runtime.spec.placement import Placement

_EXECUTOR = "yarn.nodemanager.container-executor.class"
_RUNTIMES = "yarn.nodemanager.runtime.linux.allowed-runtimes"
_DEFAULT_NETWORK = "yarn.nodemanager.runtime.linux.docker.default-container-network"
_ALL_SINCE = (3, 1)  # of Hadoop, whose NodeManagers take mounts, and credentials of registries


@attrs.frozen
class NodeSettings:
    """What one NodeManager says of itself."""

    host: str
    version: str  # of its Hadoop
    properties: Mapping[str, str]  # its whole configuration, defaults included

    def allows(self, name: str, value: str, default: str) -> bool:
        """Whether a property, a list, has the value in it."""
        return value in {each.strip() for each in self.properties.get(name, default).split(",")}


def nodes_for_images(job: JobSpec, nodes: Sequence[Node]) -> list[Node]:
    """Those that may have some of a job's containers in images, by label and placement."""
    own: dict[str, tuple[str | None, Placement | None]] = {
        f"tasks.{name}.docker": (task.node_label, task.placement) for name, task in job.tasks.items()
    }
    own[MASTERS_OWN] = (job.am.node_label, None)
    if job.tensorboard:
        own["tensorboard.docker"] = (job.tensorboard.node_label, None)
    hosts: set[str] = set()
    for path, image in images(job).items():
        if image is not None:
            label, placement = own[path]
            hosts.update(node.host for node in suitable(placement, label or job.node_label, nodes))
    return [node for node in nodes if node.host in hosts]


def image_problems(job: JobSpec, user: str, node: NodeSettings) -> list[str]:
    """Why this node would not start the job's containers as it says; empty when it would, as far as can be known.

    Which images, and which mounts, a node takes is in its container-executor.cfg, which nobody shows.
    """
    every = images(job)
    found = [problem for image in every.values() if image for problem in _problems(image, user, node)]
    master, network = every[MASTERS_OWN], node.properties.get(_DEFAULT_NETWORK, HOST_NETWORK)
    if master is not None and is_dockers(master) and master.network is None and network != HOST_NETWORK:
        found.append(f"{MASTERS_OWN}: its network would be {network}, the default of {node.host}; {NO_MASTER_THERE}")
    if _version(node.version) < _ALL_SINCE:
        given = {"mounts": any(image and image.mounts for image in every.values())}
        given["client_config"] = bool(job.docker and job.docker.client_config)
        since = ".".join(map(str, _ALL_SINCE))
        found += [
            f"docker.{key}: the NodeManager of {node.host} is of Hadoop {node.version}, which does not know it; it is "
            f"taken from {since} on"
            for key, is_given in given.items()
            if is_given
        ]
    return list(dict.fromkeys(found))


def _problems(image: Docker, user: str, node: NodeSettings) -> Iterator[str]:
    runtime = image.runtime.value if image.runtime else "docker"
    said = f"the NodeManager of {node.host}"
    executor = node.properties.get(_EXECUTOR, "DefaultContainerExecutor").rpartition(".")[2]
    if executor == "DefaultContainerExecutor":
        yield f"docker: {said} starts plain processes only, and no images ({_EXECUTOR} is {executor})"
        return
    if not node.allows(_RUNTIMES, runtime, "default"):
        allowed = node.properties.get(_RUNTIMES, "default")
        yield f"docker: {said} starts nothing by {runtime} ({_RUNTIMES} is {allowed})"
        return
    yield from _unknown(image, node, f"yarn.nodemanager.runtime.linux.{runtime}.", said)
    yield from _not_allowed(image, user, node, f"yarn.nodemanager.runtime.linux.{runtime}.", said)


def _unknown(image: Docker, node: NodeSettings, prefix: str, said: str) -> Iterator[str]:
    """Keys that this NodeManager is too old for, by the settings that came with them: it passes over them."""
    came_with = {
        "tmpfs": "default-tmpfs-mounts",
        "pid_namespace": "host-pid-namespace.allowed",
        "oci_runtime": "allowed-container-runtimes",
        "delayed_removal": "delayed-removal.allowed",
    }
    for key, setting in came_with.items():
        if getattr(image, key) and f"{prefix}{setting}" not in node.properties:
            yield f"docker.{key}: {said} is of Hadoop {node.version}, which does not know it; leave it out"


def _not_allowed(image: Docker, user: str, node: NodeSettings, prefix: str, said: str) -> Iterator[str]:
    lists = (
        ("network", f"{prefix}allowed-container-networks", "host,none,bridge"),
        ("oci_runtime", f"{prefix}allowed-container-runtimes", "runc"),
    )
    for key, setting, default in lists:
        wanted = getattr(image, key)
        if wanted and not node.allows(setting, wanted, default):
            yield f"docker.{key}: {said} does not allow {wanted} ({setting} is {node.properties.get(setting, default)})"
    switches = (
        ("privileged", image.privileged, f"{prefix}privileged-containers.allowed"),
        ("pid_namespace", image.pid_namespace is PidNamespace.HOST, f"{prefix}host-pid-namespace.allowed"),
        ("delayed_removal", image.delayed_removal, f"{prefix}delayed-removal.allowed"),
    )
    for key, wanted, setting in switches:
        if wanted and node.properties.get(setting) == "false":
            yield f"docker.{key}: {said} does not allow it ({setting} is false)"
    setting = f"{prefix}privileged-containers.acl"
    who = AccessList.parse(node.properties.get(setting, ""))
    if image.privileged and not (who.everybody or who.groups or user in who.users):
        yield f"docker.privileged: {said} does not let {user} ({setting} is {who.text.strip() or 'empty'})"


def _version(text: str) -> tuple[int, ...]:
    """Its first two numbers; of what has none, those of the newest."""
    found = re.match(r"(\d+)\.(\d+)", text)
    return tuple(map(int, found.groups())) if found else _ALL_SINCE
