"""The book of what the ResourceManager was asked for and has to be told: no input or output, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from itertools import islice
from typing import Optional

import attrs

from tony_provider.runtime.am.resource_manager import ContainerRequest, Room
from tony_provider.runtime.hadoop import yarn_records
from tony_provider.runtime.hadoop.proto import yarn_pb2 as yarn
from tony_provider.runtime.hadoop.yarn_records import ContainerId
from tony_provider.runtime.jobspec.placement import NODE_WAIT, AttributeRule, Placement, PlacementConstraint, TagTarget

MOST_ASKS = 1000  # in one call
_PLACE_AGAIN = 5.0  # seconds after YARN has found no place for a container


@attrs.frozen
class Saying:
    """What one allocate call has to say: requests, releases, nodes to avoid."""

    asks: list[Ask] = attrs.field(factory=list)
    releases: list[yarn.ContainerIdProto] = attrs.field(factory=list)
    avoided: frozenset[str] = frozenset()  # names of nodes, from now on
    allowed: frozenset[str] = frozenset()  # again

    def resource_requests(self, racks: Mapping[str, str]) -> list[yarn.ResourceRequestProto]:
        """Of those that no rules place; ``racks`` of the nodes that they may name."""
        return [each for ask in self.asks if not ask.by_rules for each in ask.resource_requests(racks)]

    @property
    def scheduling_requests(self) -> list[yarn.SchedulingRequestProto]:
        """Of those that rules place."""
        return [ask.scheduling_request() for ask in self.asks if ask.by_rules]

    @property
    def blacklist(self) -> Optional[yarn.ResourceBlacklistRequestProto]:
        if not self.avoided and not self.allowed:
            return None
        return yarn.ResourceBlacklistRequestProto(
            blacklist_additions=sorted(self.avoided), blacklist_removals=sorted(self.allowed)
        )


@attrs.define
class ContainerAsks:
    """The open requests and releases of containers, and the nodes to avoid.

    Each request has an allocation_request_id of its own (its key), so that an answer belongs to exactly one. Times are
    the caller's, in seconds.
    """

    _outstanding: dict[int, Ask] = attrs.field(factory=dict)
    _to_say: dict[int, Ask] = attrs.field(factory=dict)
    _later: dict[int, tuple[float, Ask]] = attrs.field(factory=dict)  # what an outstanding one is to be, from when on
    _releases: set[ContainerId] = attrs.field(factory=set)  # to say
    _releasing: set[ContainerId] = attrs.field(factory=set)  # until they have ended
    _avoided: frozenset[str] = frozenset()
    _nodes_to_say: dict[str, bool] = attrs.field(factory=dict)  # whether to avoid it, by its name
    _moved: set[int] = attrs.field(factory=set)  # keys that were granted on an avoided node once, and asked for again
    _not_placed: set[int] = attrs.field(factory=set)  # keys that YARN has found no place for before

    @property
    def more(self) -> bool:
        """Whether something is left to be asked for."""
        return bool(self._to_say)

    @property
    def outstanding(self) -> bool:
        """Whether something is waited for."""
        return bool(self._outstanding)

    def request(self, requests: Iterable[ContainerRequest], now: float, held: Set[str] = frozenset()) -> None:
        """Ask for containers. ``held``: the tags of those that the application has."""
        for request in requests:
            ask = Ask(request)
            if own := ask.beside_its_own:
                ask = attrs.evolve(ask, leads=not (own & held) and not self._is_led(own))
            self._ask(ask)
            if ask.waits_for_nodes:
                self._later[ask.key] = (now + NODE_WAIT, attrs.evolve(ask, anywhere=True))

    def _is_led(self, tags: frozenset[str]) -> bool:
        return any(ask.leads and tags.intersection(ask.request.tags) for ask in self._outstanding.values())

    def _ask(self, ask: Ask) -> None:
        self._outstanding[ask.key] = self._to_say[ask.key] = ask

    def cancel(self, keys: Iterable[int]) -> None:
        for key in keys:
            ask = self._outstanding.get(key)
            if ask:
                self._forget(key)
                self._to_say[key] = attrs.evolve(ask, count=0)

    def _forget(self, key: int) -> None:
        for known in (self._outstanding, self._to_say, self._later):
            known.pop(key, None)
        self._moved.discard(key)
        self._not_placed.discard(key)

    def release(self, containers: Iterable[ContainerId]) -> None:
        releases = set(containers)
        self._releases |= releases
        self._releasing |= releases

    def completed(self, container: ContainerId) -> None:
        self._releasing.discard(container)

    def avoid(self, nodes: Iterable[str]) -> None:
        """Avoid these nodes (host:port) from now on; they replace the former ones.

        YARN goes by the host's name, or with the port where several NodeManagers share a host: it is told both.
        """
        avoided = frozenset(name for node in nodes for name in (node, node.rpartition(":")[0]))
        self._nodes_to_say.update((name, name in avoided) for name in self._avoided ^ avoided)
        self._avoided = avoided

    def granted(self, key: int, node: str) -> Optional[ContainerRequest]:
        """The request that an allocation on ``node`` (host:port) answers; None: give it back.

        Nobody wants it any more, or it was on its way when its node came to be avoided: then it is asked for again,
        once, since a cluster that does not heed the wish would give the same again.
        """
        ask = self._outstanding.get(key)
        if ask is None:
            return None
        if node in self._avoided and key not in self._moved:
            self._moved.add(key)
            self._to_say[key] = ask
            return None
        self._forget(key)
        return ask.request

    def not_placed(self, key: int, now: float) -> bool:
        """Record that the ResourceManager found no place for a request: it is asked for again.

        Whether that is news: the request is wanted, and it is the first time.
        """
        ask = self._outstanding.get(key)
        if ask is None:
            return False
        self._later[key] = (now + _PLACE_AGAIN, ask)
        news = key not in self._not_placed
        self._not_placed.add(key)
        return news

    def next(self, now: float) -> Saying:
        """What the next allocate call has to say. Call ``said`` once it was answered; else it is said again."""
        for key, (when, ask) in list(self._later.items()):
            if when <= now:
                del self._later[key]
                self._ask(ask)
        # One kind at a time: the capacity scheduler looks at no scheduling request of a call with resource requests.
        by_rules = next((ask.by_rules for ask in self._to_say.values()), False)
        of_a_kind = (ask for ask in self._to_say.values() if ask.by_rules is by_rules)
        return Saying(
            asks=list(islice(of_a_kind, MOST_ASKS)),
            releases=[container.to_proto() for container in self._releases],
            avoided=frozenset(name for name, avoid in self._nodes_to_say.items() if avoid),
            allowed=frozenset(name for name, avoid in self._nodes_to_say.items() if not avoid),
        )

    def said(self, saying: Saying) -> None:
        """Record that the ResourceManager has heard this. What was changed meanwhile stays to be said."""
        for ask in saying.asks:
            if self._to_say.get(ask.key) == ask:
                del self._to_say[ask.key]
        self._releases.difference_update(map(ContainerId.from_proto, saying.releases))
        for name in saying.avoided | saying.allowed:
            if self._nodes_to_say.get(name) is (name in saying.avoided):
                del self._nodes_to_say[name]

    def refused(self, saying: Saying) -> None:
        """Drop these requests: the ResourceManager will never grant them."""
        for ask in saying.asks:
            self._forget(ask.key)

    def start_again(self) -> None:
        """Say everything again: the ResourceManager has forgotten what it did not grant or take back."""
        self._releases |= self._releasing
        self._to_say = dict(self._outstanding)
        self._nodes_to_say = dict.fromkeys(self._avoided, True)


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
        found = [self._resource_request(yarn_records.ANYWHERE, leave, self.request.node_label)]
        found += [
            self._resource_request(rack, leave)
            for rack in dict.fromkeys(racks.get(node, _UNKNOWN_RACK) for node in nodes)
        ]
        return found + [self._resource_request(node, True) for node in nodes]

    def _resource_request(self, where: str, relax: bool, node_label: str | None = None) -> yarn.ResourceRequestProto:
        return yarn_records.resource_request(
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
        return yarn_records.scheduling_request(
            self._capability,
            self.count,
            priority=self.request.priority,
            allocation_request_id=self.key,
            tags=self.request.tags,
            constraint=yarn_records.combined_constraint(rules, self.request.node_label),
        )

    def _simple(self, rule: PlacementConstraint) -> Iterator[yarn.SimplePlacementConstraintProto]:
        """The rule as YARN's constraints.

        Of several tags in one constraint YARN wants any to be there, or all to be missing: the latter get one each.
        """
        scope = rule.scope.value
        beside = [target for target in map(TagTarget.parse, rule.affinity) if not (self.leads and self._has(target))]
        for namespace in dict.fromkeys(target.namespace for target in beside):
            names = [target.tag for target in beside if target.namespace == namespace]
            yield yarn_records.tag_constraint(scope, namespace, names, least=1)
        for target in map(TagTarget.parse, rule.anti_affinity):
            yield yarn_records.tag_constraint(scope, target.namespace, [target.tag], most=0)
        if rule.cardinality is not None:
            target = TagTarget.parse(rule.cardinality)
            most = rule.max
            if most is not None and self._has(target):
                most -= 1  # YARN counts those that are there before
            yield yarn_records.tag_constraint(scope, target.namespace, [target.tag], least=rule.min, most=most)

    def _has(self, target: TagTarget) -> bool:
        return target.own and target.tag in self.request.tags

    @property
    def _capability(self) -> yarn.ResourceProto:
        request = self.request
        return yarn_records.resource(request.memory, request.vcores, request.resources, request.units)


def _of_attribute(rule: AttributeRule) -> yarn.SimplePlacementConstraintProto:
    return yarn_records.attribute_constraint(rule.name, rule.value, equal=rule.equal)


FIRST_KEY = 1 << 40  # beyond those of any job's own requests
_QUIET = 3.0  # seconds without another container, after which there is no room: nodes report once a second
_LONGEST = 30.0


@attrs.frozen
class Found:
    """What is to be done once it is known."""

    room: Room
    keys: list[int]  # to be withdrawn
    containers: list[ContainerId]  # to be given back


@attrs.define
class _Look:
    request: ContainerRequest
    most: int
    began: float = 0.0
    moved: float = 0.0  # when the newest container came
    came: list[ContainerId] = attrs.field(factory=list)


@attrs.define
class RoomFinder:
    """The look for room that is under way, and the one after it. Times are in seconds."""

    _now: Optional[_Look] = None
    _next: Optional[_Look] = None

    def look(self, request: ContainerRequest, most: int) -> None:
        """Look for at most so many, once no other look is under way."""
        self._next = _Look(request, most)

    def begin(self, now: float) -> list[ContainerRequest]:
        """What is to be asked for now."""
        if self._now is not None or self._next is None:
            return []
        self._now, self._next = self._next, None
        self._now.began = self._now.moved = now
        return [attrs.evolve(self._now.request, key=FIRST_KEY + number) for number in range(self._now.most)]

    def came(self, key: int, container: ContainerId, now: float) -> bool:
        """Whether a container that was granted is one of these; it is kept until ``end``: others may have room, too."""
        if self._now is None or key < FIRST_KEY:
            return False
        self._now.moved = now
        self._now.came.append(container)
        return True

    def end(self, now: float) -> Optional[Found]:
        """What was found, once no more is to be expected; None before."""
        look = self._now
        if look is None:
            return None
        waits = now - look.moved < _QUIET and now - look.began < _LONGEST
        if waits and len(look.came) < look.most:
            return None
        self._now = None
        keys = [FIRST_KEY + number for number in range(look.most)]
        return Found(Room(look.request.key, len(look.came)), keys, look.came)
