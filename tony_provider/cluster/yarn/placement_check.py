"""Check of where a job wants its containers against the nodes, racks and settings of a YARN cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tony_provider.cluster.yarn.cluster_view import ClusterView, Node
from tony_provider.runtime.quantities import count, some
from tony_provider.runtime.spec.model import JobSpec
from tony_provider.runtime.spec.placement import (
    AttributeRule,
    Placement,
    PlacementConstraint,
    PlacementScope,
    TagTarget,
    own_tags,
)

HANDLER = "yarn.resourcemanager.placement-constraints.handler"
HIDDEN = "hidden"  # stands for the value of a setting that nobody shows
_DISABLED = "disabled"
_ATTRIBUTE_PREFIX = "rm.yarn.io"  # of attributes that are named without one (NodeAttribute.PREFIX_CENTRALIZED)
_SHOWN = 10


def handler_problems(job: JobSpec, handler: str | None) -> Iterator[str]:
    """Why rules of placement would not be heeded; ``handler`` is the value of HANDLER, None where YARN has none."""
    if handler not in (None, _DISABLED):
        return
    for name in filter(job.placed_by_rules, job.tasks):
        why = "has none" if handler is None else f"has it {_DISABLED}"
        yield (
            f"tasks.{name}.placement: rules and tags need a YARN (3.1 or newer) that places by them, and this one "
            f"{why}; its administrator sets {HANDLER} to scheduler"
        )
        return  # the others would say the same


def names_nodes(job: JobSpec) -> bool:
    """Whether a task type names nodes or racks."""
    placements = [task.placement for task in job.tasks.values() if task.placement is not None]
    return any(placement.nodes or placement.racks for placement in placements)


def racks_of(job: JobSpec, nodes: Sequence[Node]) -> dict[str, str]:
    """The racks of the nodes that a job names, and of those on racks that it names, by the nodes' names."""
    placements = [task.placement for task in job.tasks.values() if task.placement is not None]
    hosts = {host for placement in placements for host in placement.nodes}
    racks = {rack for placement in placements for rack in placement.racks}
    return {node.host: node.rack for node in nodes if node.host in hosts or node.rack in racks}


def placement_problems(job: JobSpec, view: ClusterView) -> Iterator[str]:
    """Every reason why containers would never be where the job wants them, each with what there is instead.

    Nothing is said of a cluster without a single node.
    """
    for name, task in job.tasks.items():
        if task.placement is None or not view.nodes:
            continue
        path, label = f"tasks.{name}.placement", task.node_label or job.node_label
        unknown = [*_unknown(task.placement, view.nodes, path)]
        yield from unknown or _too_few(job, name, task.placement, suitable(task.placement, label, view.nodes), path)


def _unknown(placement: Placement, nodes: Sequence[Node], path: str) -> Iterator[str]:
    hosts, racks = sorted({node.host for node in nodes}), sorted({node.rack for node in nodes})
    for node in placement.nodes:
        if node not in hosts:
            yield f"{path}.nodes: there is no node {node!r} now; this cluster has {some(hosts, _SHOWN)}"
    for rack in placement.racks:
        if rack not in racks:
            yield f"{path}.racks: no node is on a rack {rack!r}; the racks are {some(racks, _SHOWN)}"
    for text in placement.attributes:
        rule = AttributeRule.parse(text)
        if not any(_keeps(rule, node) for node in nodes):
            values = sorted({value for node in nodes if (value := node.attributes.get(_full(rule.name))) is not None})
            others = some(_names(nodes), _SHOWN) or "none"
            known = f"nodes have {some(values, _SHOWN)} for it" if values else f"nodes have {others}"
            yield f"{path}.attributes: no node has {text}; {known}"


def suitable(placement: Placement | None, label: str | None, nodes: Sequence[Node]) -> list[Node]:
    """The nodes that containers may be on."""
    rules = [AttributeRule.parse(text) for text in placement.attributes] if placement is not None else []
    found = [node for node in nodes if (label is None or label in node.labels) and all(_keeps(r, node) for r in rules)]
    if placement is not None and placement.required:
        found = [node for node in found if node.host in placement.nodes or node.rack in placement.racks]
    return found


def _too_few(job: JobSpec, task_type: str, placement: Placement, nodes: Sequence[Node], path: str) -> Iterator[str]:
    needed = job.at_once(task_type)
    if not nodes:
        yield f"{path}: no node keeps all of it"
        return
    for index, rule in enumerate(placement.constraints):
        most = _most_on_one(rule, own_tags(task_type, placement))
        if most is None:
            continue
        places = {node.host if rule.scope is PlacementScope.NODE else node.rack for node in nodes}
        if needed > most * len(places):
            there = f"{count(len(places), rule.scope.value)} that could take them"
            yield (
                f"{path}.constraints[{index}]: {needed} containers are needed at a time, at most {most} on one "
                f"{rule.scope.value}, and there are {there}"
            )


def _most_on_one(rule: PlacementConstraint, own: Sequence[str]) -> int | None:
    """How many containers of the type the rule lets on one node or rack; None: any number."""
    apart = [target for target in map(TagTarget.parse, rule.anti_affinity) if target.own and target.tag in own]
    if apart:
        return 1
    if rule.cardinality is None or rule.max is None:
        return None
    target = TagTarget.parse(rule.cardinality)
    return rule.max if target.own and target.tag in own else None


def _keeps(rule: AttributeRule, node: Node) -> bool:
    value = node.attributes.get(_full(rule.name))
    return (value == rule.value) is rule.equal


def _full(name: str) -> str:
    return name if "/" in name else f"{_ATTRIBUTE_PREFIX}/{name}"


def _names(nodes: Sequence[Node]) -> list[str]:
    return sorted({f"{name}={value}" for node in nodes for name, value in node.attributes.items()})
