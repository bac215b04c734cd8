"""YARN's placement constraints and scheduling requests, made from plain values; from Hadoop 3.1 on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from tony_provider.runtime.hadoop.proto import yarn_pb2 as yarn

_NODE = "node"
_NODE_PARTITION = "yarn_node_partition/"  # a node label, as a target (PlacementConstraints.NODE_PARTITION)
_ANY_NUMBER = 2**31 - 1  # Java's Integer.MAX_VALUE

Target = yarn.PlacementConstraintTargetProto
Simple = yarn.SimplePlacementConstraintProto


def by_tags(
    scope: str, namespace: str, tags: Sequence[str], *, least: int = 0, most: Optional[int] = None
) -> yarn.SimplePlacementConstraintProto:
    """From ``least`` to ``most`` containers with these tags on the node or rack, before this one is there.

    Of several tags the largest number counts for ``least``, and the smallest for ``most``.
    """
    target = Target(targetType=Target.ALLOCATION_TAG, targetKey=namespace, targetValues=tags)
    return Simple(
        scope=scope,
        targetExpressions=[target],
        minCardinality=least,
        maxCardinality=_ANY_NUMBER if most is None else most,
    )


def by_attribute(name: str, value: str, *, equal: bool) -> yarn.SimplePlacementConstraintProto:
    """An attribute of the node is this, or is not this, which it also is where the node has none of that name."""
    target = Target(targetType=Target.NODE_ATTRIBUTE, targetKey=name, targetValues=[value])
    return Simple(
        scope=_NODE,
        targetExpressions=[target],
        minCardinality=1,
        maxCardinality=_ANY_NUMBER,
        attributeOpCode=yarn.EQ if equal else yarn.NE,
    )


def every(
    rules: Sequence[yarn.SimplePlacementConstraintProto], node_label: Optional[str]
) -> Optional[yarn.PlacementConstraintProto]:
    """All the rules, on nodes with the label; None where nothing is said.

    YARN heeds a label in a constraint of one rule only: with several it goes by the queue's own label.
    """
    if len(rules) > 1:
        composite = yarn.CompositePlacementConstraintProto(
            compositeType=yarn.CompositePlacementConstraintProto.AND,
            childConstraints=[yarn.PlacementConstraintProto(simpleConstraint=rule) for rule in rules],
        )
        return yarn.PlacementConstraintProto(compositeConstraint=composite)
    label = [Target(targetType=Target.NODE_ATTRIBUTE, targetKey=_NODE_PARTITION, targetValues=[node_label or ""])]
    if rules:
        rule = Simple()
        rule.CopyFrom(rules[0])
        rule.targetExpressions.extend(label if node_label else [])
        return yarn.PlacementConstraintProto(simpleConstraint=rule)
    if node_label:
        anywhere = Simple(scope=_NODE, targetExpressions=label, minCardinality=1, maxCardinality=_ANY_NUMBER)
        return yarn.PlacementConstraintProto(simpleConstraint=anywhere)
    return None


def scheduling_request(
    capability: yarn.ResourceProto,
    count: int,
    *,
    priority: int,
    allocation_request_id: int,
    tags: Sequence[str],
    constraint: Optional[yarn.PlacementConstraintProto],
) -> yarn.SchedulingRequestProto:
    """A request for ``count`` containers where the constraint holds; 0 withdraws them.

    It counts for this (priority, allocation_request_id) in all. YARN refuses it when anything else has changed since it
    was made.
    """
    return yarn.SchedulingRequestProto(
        allocationRequestId=allocation_request_id,
        priority=yarn.PriorityProto(priority=priority),
        executionType=yarn.ExecutionTypeRequestProto(execution_type=yarn.GUARANTEED, enforce_execution_type=True),
        allocationTags=tags,
        resourceSizing=yarn.ResourceSizingProto(numAllocations=count, resources=capability),
        placementConstraint=constraint,
    )
