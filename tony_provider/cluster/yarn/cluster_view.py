"""Queues, node labels, nodes and the largest container of a YARN cluster, parsed from its REST answers.

The answers differ between versions and schedulers. YARN may send a list with one element as the element itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from tony_provider.runtime.common.quantities import MEMORY, VCORES
from tony_provider.runtime.hadoop.yarn_records import AccessList

_ADMINISTER = "ADMINISTER_QUEUE"


@attrs.frozen
class Queue:
    """A queue of YARN's scheduler."""

    path: str  # such as root.ml
    state: str  # RUNNING, STOPPED, DRAINING; empty if the scheduler does not report it
    is_leaf: bool
    makes_children: bool  # the scheduler creates child queues on demand
    labels: frozenset[str] | None  # node labels that the queue may use; None if unknown or unlimited
    maximum: dict[str, float] = attrs.field(
        factory=dict
    )  # maximum percent of the nodes by label ("" for nodes without a label); 100 if not reported
    guaranteed: dict[str, float] = attrs.field(factory=dict)  # guaranteed percent of the nodes by label, if reported
    user_factor: float | None = None  # a user's limit as a multiple of ``guaranteed``; None if unknown or unlimited
    default_label: str = ""  # label for containers that request none
    submitters: tuple[str, ...] | None = None  # access lists for submissions; None if they are not reported
    administrators: tuple[str, ...] = ()  # access lists for the administration of applications, as far as reported

    @property
    def name(self) -> str:
        return self.path.rsplit(".", 1)[-1]


@attrs.frozen
class Node:
    """A node of the cluster (a NodeManager) and its resources."""

    host: str
    labels: frozenset[str]
    resources: dict[str, int]  # total amounts by YARN's resource names; memory in MiB
    free: dict[str, int] = attrs.field(factory=dict)  # currently unused part of ``resources``
    works: bool = True  # whether the node is running
    rack: str = ""  # name in YARN's topology
    attributes: dict[str, str] = attrs.field(factory=dict)  # values by prefix/name; empty before Hadoop 3.2
    web: str = ""  # host:port of the NodeManager's web server
    version: str = ""  # Hadoop version of the node


@attrs.frozen
class ClusterView:
    """Properties of a cluster that the checks of jobs need."""

    queues: Sequence[Queue] | None  # None if the scheduler has no fixed set of queues
    labels: frozenset[str]
    nodes: Sequence[Node]  # running nodes only
    largest: dict[str, int]  # the largest container that the scheduler grants, by YARN's resource names
    shared_labels: frozenset[str] = frozenset()  # labels whose idle nodes also accept containers without a label
    units: dict[str, str] = attrs.field(factory=dict)  # units such as Gi, by name of a resource with a unit
    missing: int = 0  # registered nodes that are not running


def queues(scheduler: dict[str, Any]) -> list[Queue] | None:
    """Parse ``GET /ws/v1/cluster/scheduler``. Return None for schedulers without a fixed set of queues (fair, fifo)."""
    info = scheduler.get("scheduler", {}).get("schedulerInfo", {})
    if info.get("type") != "capacityScheduler":
        return None
    return list(_below(info, str(info.get("queueName", "root"))))


def _below(queue: dict[str, Any], path: str) -> Iterator[Queue]:
    children = as_list((queue.get("queues") or {}).get("queue"))
    labels = frozenset(str(label) for label in as_list(queue.get("nodeLabels")))
    yield Queue(
        path=path,
        state=str(queue.get("state", "")),
        is_leaf=not children and "leaf" in str(queue.get("type", "leaf")).lower(),
        makes_children=_makes_children(queue),
        labels=None if not labels or "*" in labels else labels,
        maximum=_by_label(queue, "absoluteMaxCapacity"),
        guaranteed=_by_label(queue, "absoluteCapacity"),
        user_factor=_user_factor(queue),
        default_label=str(queue.get("defaultNodeLabelExpression") or ""),
        submitters=_access_lists(queue, "SUBMIT_APP", _ADMINISTER) or None,
        administrators=_access_lists(queue, _ADMINISTER),
    )
    for child in children:
        yield from _below(child, f"{path}.{child.get('queueName', '')}")


def _makes_children(queue: dict[str, Any]) -> bool:
    # Hadoop 3.x reports autoCreationEligibility (off, legacy, flexible); older versions report only a flag.
    eligibility = str(queue.get("autoCreationEligibility", "off"))
    return eligibility != "off" or bool(queue.get("autoCreateChildQueueEnabled", False))


def _user_factor(queue: dict[str, Any]) -> float | None:
    factor = float(queue.get("userLimitFactor") or -1)
    return factor if factor > 0 else None


def _by_label(queue: dict[str, Any], share: str) -> dict[str, float]:
    parts = as_list((queue.get("capacities") or {}).get("queueCapacitiesByPartition"))
    found = {str(part.get("partitionName") or ""): part for part in parts}
    known = {"": queue, **found}
    return {label: float(part[share]) for label, part in known.items() if share in part}


def _access_lists(queue: dict[str, Any], *kinds: str) -> tuple[str, ...]:
    lists = as_list((queue.get("queueAcls") or {}).get("queueAcl"))
    return tuple(str(each.get("accessControlList", "")) for each in lists if each.get("accessType") in kinds)


def node_labels(answer: dict[str, Any]) -> set[str]:
    """Return the labels from ``GET /ws/v1/cluster/get-node-labels`` of any Hadoop version."""
    found = as_list(answer.get("nodeLabelInfo") or answer.get("nodeLabels"))
    names = (label.get("name") if isinstance(label, dict) else label for label in found)
    return {str(name) for name in names if name}


def shared_labels(answer: dict[str, Any]) -> set[str]:
    """Return the labels whose idle nodes also accept containers without a label (non-exclusive labels).

    Include labels of unknown exclusivity.
    """
    found = [label for label in as_list(answer.get("nodeLabelInfo")) if isinstance(label, dict)]
    exclusive = {str(label.get("name")) for label in found if str(label.get("exclusivity")).lower() == "true"}
    return node_labels(answer) - exclusive


def nodes(answer: dict[str, Any]) -> list[Node]:
    """Return the nodes from ``GET /ws/v1/cluster/nodes``."""
    return [_node(node) for node in as_list((answer.get("nodes") or {}).get("node"))]


def _node(node: dict[str, Any]) -> Node:
    used, free = resources(node.get("usedResource") or {}), resources(node.get("availableResource") or {})
    free |= {MEMORY: int(node.get("availMemoryMB", 0)), VCORES: int(node.get("availableVirtualCores", 0))}
    if "totalResource" in node:
        total = resources(node["totalResource"])
    else:  # Hadoop before 3.3
        total = {name: used.get(name, 0) + free.get(name, 0) for name in {*used, *free}}
        total[MEMORY] = int(node.get("usedMemoryMB", 0)) + free[MEMORY]
        total[VCORES] = int(node.get("usedVirtualCores", 0)) + free[VCORES]
    return Node(
        host=str(node.get("nodeHostName", "")),
        labels=frozenset(str(label) for label in as_list(node.get("nodeLabels"))),
        resources=total,
        free={name: max(0, number) for name, number in free.items()},  # negative after a node was shrunk
        works=str(node.get("state", "RUNNING")) == "RUNNING",
        rack=str(node.get("rack") or ""),
        attributes=dict(_attributes(node)),
        web=str(node.get("nodeHTTPAddress", "")),
        version=str(node.get("version", "")),
    )


def _attributes(node: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for entry in as_list((node.get("nodeAttributesInfo") or {}).get("nodeAttributeInfo")):
        yield f"{entry.get('prefix')}/{entry.get('name')}", str(entry.get("value") or "")


def resources(info: dict[str, Any]) -> dict[str, int]:
    """Return the amounts of a ``ResourceInfo`` by YARN's resource names."""
    found = {MEMORY: int(info.get("memory", 0)), VCORES: int(info.get("vCores", 0))}
    for entry in as_list((info.get("resourceInformations") or {}).get("resourceInformation")):
        if entry.get("name") not in found:
            found[str(entry.get("name"))] = int(entry.get("value", 0))
    return found


def units(info: dict[str, Any]) -> dict[str, str]:
    """Return the units of a ``ResourceInfo`` by resource name, only for resources that have a unit."""
    listed = as_list((info.get("resourceInformations") or {}).get("resourceInformation"))
    found = {str(entry.get("name")): str(entry.get("units") or "") for entry in listed}
    return {name: unit for name, unit in found.items() if unit and name not in (MEMORY, VCORES)}


def as_list(value: Any) -> list[Any]:
    """Return a part of an answer as a list. YARN may send the only element of a list, or an empty value, instead."""
    if value is None or value == "":
        return []
    return value if isinstance(value, list) else [value]


def find_queue(name: str, queues: Sequence[Queue]) -> Queue | None:
    """Return the queue with this path (``root.`` is optional) or with this name, if only one queue has the name."""
    by_path = {queue.path: queue for queue in queues}
    if (queue := by_path.get(name) or by_path.get(f"root.{name}")) is not None:
        return queue
    named = [queue for queue in queues if queue.name == name]
    return named[0] if len(named) == 1 else None


def upwards(queue: Queue, every: Sequence[Queue]) -> list[Queue]:
    """Return a queue and its ancestors. Rights to submit and administer are inherited from the ancestors."""
    return [each for each in every if queue.path == each.path or queue.path.startswith(f"{each.path}.")]


def queue_problem(name: str, queues: Sequence[Queue]) -> str | None:
    """Return why this queue accepts no applications, with alternatives. Return None if it accepts them."""
    queue = find_queue(name, queues)
    leaves = ", ".join(sorted(queue.name for queue in queues if queue.is_leaf))
    if queue is None:
        parent = find_queue(name.rpartition(".")[0] or "root", queues)
        if parent is None or not parent.makes_children:
            return f"there is no queue {name!r}; this cluster has {leaves}"
    elif not queue.is_leaf and not queue.makes_children:
        below = ", ".join(sorted(leaf.name for leaf in queues if leaf.path.startswith(f"{queue.path}.")))
        return f"{name!r} is a parent queue, which accepts no applications; below it are {below}"
    elif queue.state not in ("", "RUNNING"):
        return f"{name!r} is {queue.state} and accepts no applications; other queues are {leaves}"
    return None


_ROOT = "root"  # used if YARN chooses the queue, because administrators of root manage all queues


def queue_administrators(queue: str | None, every: Sequence[Queue]) -> list[str]:
    """Return the access lists of the queue's administrators, as far as the scheduler reports them.

    Omit empty lists. Also omit lists of all users: they are YARN's default for the root queue, so they do not mean
    that all users may read the output of jobs.
    """
    found = find_queue(queue or _ROOT, every) or find_queue(_ROOT, every)
    lists = [text for each in (upwards(found, every) if found else ()) for text in each.administrators]
    return [text for text in dict.fromkeys(lists) if _names_somebody(AccessList.parse(text))]


def _names_somebody(found: AccessList) -> bool:
    return not found.everybody and found != AccessList()
