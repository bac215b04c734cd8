"""What YARN is asked for one container: by resource requests, or by a scheduling request where rules place it.

YARN has two kinds of requests. Resource requests name nodes and racks, and nothing else; scheduling requests (from
Hadoop 3.1 on) have placement constraints and allocation tags, and no nodes or racks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from tony_provider.runtime.am.resource_manager import ContainerRequest
from tony_provider.runtime.hadoop import placement_constraints, yarn_messages
from tony_provider.runtime.hadoop.proto import yarn_pb2 as yarn
from tony_provider.runtime.spec.placement import (
    AttributeRule,
    Placement,
    PlacementConstraint,
    TagTarget,
)

_UNKNOWN_RACK = "/default-rack"  # NetworkTopology.DEFAULT_RACK


@attrs.frozen
class Ask:
    """One request as the ResourceManager is to know it from now on."""

    request: ContainerRequest
    count: int = 1  # 0: it is withdrawn
    anywhere: bool = False  # wanted nodes were waited for long enough
    leads: bool = False  # the first of those that are together: beside none of them

    @property
    def key(self) -> int:
        return self.request.key

    @property
    def by_rules(self) -> bool:
        return bool(self.request.tags)

    @property
    def waits_for_nodes(self) -> bool:
        """Whether it is for some nodes only, and later for any."""
        placement = self.request.placement
        return placement is not None and bool(placement.nodes or placement.racks) and not placement.required

    @property
    def beside_its_own(self) -> frozenset[str]:
        """The tags of its own that others must have on its node or rack: somebody has to be the first."""
        placement = self.request.placement or Placement()
        beside = (TagTarget.parse(tag) for rule in placement.constraints for tag in rule.affinity)
        return frozenset(target.tag for target in beside if target.own) & frozenset(self.request.tags)

    # ---- for YARN ----------------------------------------------------------------------------------------------

    def resource_requests(self, racks: Mapping[str, str]) -> list[yarn.ResourceRequestProto]:
        """One for anywhere, and one for each node and rack that is named. ``racks`` of the nodes, by their names.

        YARN takes a node only when its rack is asked for, too, and leaves nodes and racks only where that has not been
        forbidden for the rack, or for anywhere. A rack is asked for by its nodes: the capacity scheduler never gives a
        container to a rack that it may not leave (it counts chances missed at nodes, and there are none).
        """
        placement = self.request.placement or Placement()
        nodes = dict.fromkeys([*placement.nodes, *(node for node, rack in racks.items() if rack in placement.racks)])
        leave = self.anywhere or not nodes
        found = [self._resource_request(yarn_messages.ANYWHERE, leave, self.request.node_label)]
        found += [
            self._resource_request(rack, leave)
            for rack in dict.fromkeys(racks.get(node, _UNKNOWN_RACK) for node in nodes)
        ]
        return found + [self._resource_request(node, True) for node in nodes]

    def _resource_request(self, where: str, relax: bool, node_label: str | None = None) -> yarn.ResourceRequestProto:
        return yarn_messages.resource_request(
            self._capability,
            self.count,
            priority=self.request.priority,
            allocation_request_id=self.key,
            node_label=node_label,  # YARN takes it with anywhere alone
            where=where,
            relax_locality=relax,
        )

    def scheduling_request(self) -> yarn.SchedulingRequestProto:
        placement = self.request.placement or Placement()
        rules = [simple for rule in placement.constraints for simple in self._simple(rule)]
        rules += [_of_attribute(AttributeRule.parse(text)) for text in placement.attributes]
        return placement_constraints.scheduling_request(
            self._capability,
            self.count,
            priority=self.request.priority,
            allocation_request_id=self.key,
            tags=self.request.tags,
            constraint=placement_constraints.every(rules, self.request.node_label),
        )

    def _simple(self, rule: PlacementConstraint) -> Iterator[yarn.SimplePlacementConstraintProto]:
        """The rule as YARN's constraints.

        Of several tags in one constraint YARN wants any to be there, or all to be missing: the latter get one each.
        """
        scope = rule.scope.value
        beside = [target for target in map(TagTarget.parse, rule.affinity) if not (self.leads and self._has(target))]
        for namespace in dict.fromkeys(target.namespace for target in beside):
            names = [target.tag for target in beside if target.namespace == namespace]
            yield placement_constraints.by_tags(scope, namespace, names, least=1)
        for target in map(TagTarget.parse, rule.anti_affinity):
            yield placement_constraints.by_tags(scope, target.namespace, [target.tag], most=0)
        if rule.cardinality is not None:
            target = TagTarget.parse(rule.cardinality)
            most = rule.max
            if most is not None and self._has(target):
                most -= 1  # YARN counts those that are there before
            yield placement_constraints.by_tags(scope, target.namespace, [target.tag], least=rule.min, most=most)

    def _has(self, target: TagTarget) -> bool:
        return target.own and target.tag in self.request.tags

    @property
    def _capability(self) -> yarn.ResourceProto:
        request = self.request
        return yarn_messages.resource(request.memory, request.vcores, request.resources, request.units)


def _of_attribute(rule: AttributeRule) -> yarn.SimplePlacementConstraintProto:
    return placement_constraints.by_attribute(rule.name, rule.value, equal=rule.equal)
