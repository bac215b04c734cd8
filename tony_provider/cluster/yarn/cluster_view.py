"""The view of a YARN cluster, read from its REST answers: queues, node labels, nodes, the largest container.

The answers differ between versions and schedulers; one element of a list may come without the list around it.
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
    state: str  # RUNNING, STOPPED, DRAINING; empty where the scheduler does not say
    is_leaf: bool
    makes_children: bool  # the scheduler makes queues below it on demand
    labels: frozenset[str] | None  # node labels that it may use; None: the scheduler does not say, or all
    maximum: dict[str, float] = attrs.field(
        factory=dict
    )  # percent of the nodes with a label, or ""; 100 where not said
    guaranteed: dict[str, float] = attrs.field(factory=dict)  # likewise, of its own; where said
    user_factor: float | None = None  # one user gets so many times that at most; None: no limit, or not said
    default_label: str = ""  # of containers that ask for none
    submitters: tuple[str, ...] | None = None  # access lists of those who may submit; None: the scheduler shows none
    administrators: tuple[str, ...] = ()  # access lists of those who may do all with what runs in it; as far as shown

    @property
    def name(self) -> str:
        return self.path.rsplit(".", 1)[-1]


@attrs.frozen
class Node:
    """A node of the cluster (a NodeManager) and what it has."""

    host: str
    labels: frozenset[str]
    resources: dict[str, int]  # in all, used or not; memory in MiB
    free: dict[str, int] = attrs.field(factory=dict)  # of these, not used now
    works: bool = True
    rack: str = ""  # as in YARN's topology
    attributes: dict[str, str] = attrs.field(factory=dict)  # by prefix/name; from Hadoop 3.2 on
    web: str = ""  # host:port of its web address
    version: str = ""  # of its Hadoop


@attrs.frozen
class ClusterView:
    """What is known of a cluster, for the checks of jobs."""

    queues: Sequence[Queue] | None  # None: the scheduler makes them as it likes
    labels: frozenset[str]
    nodes: Sequence[Node]  # that work now
    largest: dict[str, int]  # the largest container that the scheduler grants, by YARN's resource names
    shared_labels: frozenset[str] = frozenset()  # whose idle nodes also take containers that ask for no label
    units: dict[str, str] = attrs.field(factory=dict)  # of resources that are not counted one by one, such as Gi
    missing: int = 0  # nodes that the cluster knows of, and that do not work now


def queues(scheduler: dict[str, Any]) -> list[Queue] | None:
    """The queues of ``GET /ws/v1/cluster/scheduler``; None for schedulers without a fixed set (fair, fifo)."""
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
    # 3.x says autoCreationEligibility (off, legacy, flexible); before that only the kind of queue tells.
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
    """The labels of ``GET /ws/v1/cluster/get-node-labels``, in the form of any version."""
    found = as_list(answer.get("nodeLabelInfo") or answer.get("nodeLabels"))
    names = (label.get("name") if isinstance(label, dict) else label for label in found)
    return {str(name) for name in names if name}


def shared_labels(answer: dict[str, Any]) -> set[str]:
    """The node labels whose idle nodes also take containers without a label; also those of which it is not said."""
    found = [label for label in as_list(answer.get("nodeLabelInfo")) if isinstance(label, dict)]
    exclusive = {str(label.get("name")) for label in found if str(label.get("exclusivity")).lower() == "true"}
    return node_labels(answer) - exclusive


def nodes(answer: dict[str, Any]) -> list[Node]:
    """The nodes of ``GET /ws/v1/cluster/nodes``."""
    return [_node(node) for node in as_list((answer.get("nodes") or {}).get("node"))]


def _node(node: dict[str, Any]) -> Node:
    used, free = resources(node.get("usedResource") or {}), resources(node.get("availableResource") or {})
    free |= {MEMORY: int(node.get("availMemoryMB", 0)), VCORES: int(node.get("availableVirtualCores", 0))}
    if "totalResource" in node:
        total = resources(node["totalResource"])
    else:  # before 3.3
        total = {name: used.get(name, 0) + free.get(name, 0) for name in {*used, *free}}
        total[MEMORY] = int(node.get("usedMemoryMB", 0)) + free[MEMORY]
        total[VCORES] = int(node.get("usedVirtualCores", 0)) + free[VCORES]
    return Node(
        host=str(node.get("nodeHostName", "")),
        labels=frozenset(str(label) for label in as_list(node.get("nodeLabels"))),
        resources=total,
        free={name: max(0, number) for name, number in free.items()},  # less than none, where a node was made smaller
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
    """Amounts by YARN's names, of a ``ResourceInfo``."""
    found = {MEMORY: int(info.get("memory", 0)), VCORES: int(info.get("vCores", 0))}
    for entry in as_list((info.get("resourceInformations") or {}).get("resourceInformation")):
        if entry.get("name") not in found:
            found[str(entry.get("name"))] = int(entry.get("value", 0))
    return found


def units(info: dict[str, Any]) -> dict[str, str]:
    """Units of a ``ResourceInfo`` by YARN's names of resources, where they are not counted one by one."""
    listed = as_list((info.get("resourceInformations") or {}).get("resourceInformation"))
    found = {str(entry.get("name")): str(entry.get("units") or "") for entry in listed}
    return {name: unit for name, unit in found.items() if unit and name not in (MEMORY, VCORES)}


def as_list(value: Any) -> list[Any]:
    """A list in an answer, also where it came as its only element, or as nothing."""
    if value is None or value == "":
        return []
    return value if isinstance(value, list) else [value]


def find_queue(name: str, queues: Sequence[Queue]) -> Queue | None:
    """The queue with this path, with or without ``root``, or with this own name where only one has it."""
    by_path = {queue.path: queue for queue in queues}
    if (queue := by_path.get(name) or by_path.get(f"root.{name}")) is not None:
        return queue
    named = [queue for queue in queues if queue.name == name]
    return named[0] if len(named) == 1 else None


def upwards(queue: Queue, every: Sequence[Queue]) -> list[Queue]:
    """A queue and those that it lies in: who may submit to one of these, or administers it, may so in the queue."""
    return [each for each in every if queue.path == each.path or queue.path.startswith(f"{each.path}.")]


def queue_problem(name: str, queues: Sequence[Queue]) -> str | None:
    """Why this queue takes no applications, with what does; None when it takes them."""
    queue = find_queue(name, queues)
    leaves = ", ".join(sorted(queue.name for queue in queues if queue.is_leaf))
    if queue is None:
        parent = find_queue(name.rpartition(".")[0] or "root", queues)
        if parent is None or not parent.makes_children:
            return f"there is no queue {name!r}; this cluster has {leaves}"
    elif not queue.is_leaf and not queue.makes_children:
        below = ", ".join(sorted(leaf.name for leaf in queues if leaf.path.startswith(f"{queue.path}.")))
        return f"{name!r} is a parent queue, which takes no applications; below it are {below}"
    elif queue.state not in ("", "RUNNING"):
        return f"{name!r} is {queue.state} and takes no applications; others are {leaves}"
    return None


_ROOT = "root"  # whose administrators are those of every queue: all that is known where YARN chooses the queue


def queue_administrators(queue: str | None, every: Sequence[Queue]) -> list[str]:
    """The access lists of the queue's administrators, as far as the scheduler shows them.

    Lists that hold nobody are left out, and those that hold everybody: that is what YARN takes for the root queue where
    nobody has said anything, and no word that jobs' output is for all.
    """
    found = find_queue(queue or _ROOT, every) or find_queue(_ROOT, every)
    lists = [text for each in (upwards(found, every) if found else ()) for text in each.administrators]
    return [text for text in dict.fromkeys(lists) if _names_somebody(AccessList.parse(text))]


def _names_somebody(found: AccessList) -> bool:
    return not found.everybody and found != AccessList()
