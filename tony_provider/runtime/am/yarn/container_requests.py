"""The application master's open requests to YARN's ResourceManager, without I/O and without a clock.

YARN has two kinds of requests. Resource requests can name nodes and racks. Scheduling requests (Hadoop 3.1 and later)
have placement constraints and allocation tags, but no nodes or racks.
"""

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

MOST_ASKS = 1000  # per call
_PLACE_AGAIN = 5.0  # seconds until a request is repeated after YARN has found no node for it


@attrs.frozen
class Saying:
    """The content of one allocate call: requests, releases, nodes to avoid."""

    asks: list[Ask] = attrs.field(factory=list)
    releases: list[yarn.ContainerIdProto] = attrs.field(factory=list)
    avoided: frozenset[str] = frozenset()  # names of nodes to avoid from now on
    allowed: frozenset[str] = frozenset()  # names of nodes to avoid no longer

    def resource_requests(self, racks: Mapping[str, str]) -> list[yarn.ResourceRequestProto]:
        """Return the requests without placement rules.

        ``racks``: rack by node name, for nodes that requests may name.
        """
        return [each for ask in self.asks if not ask.by_rules for each in ask.resource_requests(racks)]

    @property
    def scheduling_requests(self) -> list[yarn.SchedulingRequestProto]:
        """Requests with placement rules."""
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

    Each request has its own allocation_request_id (its key), so that an allocation answers exactly one request. Times
    are the caller's, in seconds.
    """

    _outstanding: dict[int, Ask] = attrs.field(factory=dict)  # requests without an allocation, by key
    _to_say: dict[int, Ask] = attrs.field(factory=dict)  # requests to send, by key
    _later: dict[int, tuple[float, Ask]] = attrs.field(factory=dict)  # when to send a request again, and what to send
    _releases: set[ContainerId] = attrs.field(factory=set)  # releases to send
    _releasing: set[ContainerId] = attrs.field(factory=set)  # released containers that have not ended
    _avoided: frozenset[str] = frozenset()
    _nodes_to_say: dict[str, bool] = attrs.field(factory=dict)  # changes to send: whether to avoid a node, by its name
    _moved: set[int] = attrs.field(factory=set)  # keys of requests repeated after a grant on an avoided node
    _not_placed: set[int] = attrs.field(factory=set)  # keys of requests for which YARN has found no node before

    @property
    def more(self) -> bool:
        """Whether requests remain to be sent."""
        return bool(self._to_say)

    @property
    def outstanding(self) -> bool:
        """Whether requests are waiting for an allocation."""
        return bool(self._outstanding)

    def request(self, requests: Iterable[ContainerRequest], now: float, held: Set[str] = frozenset()) -> None:
        """Request containers. ``held``: the tags of containers that the application has."""
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
            if ask := self._outstanding.get(key):
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
        """Avoid these nodes (host:port) from now on. The list replaces the former list.

        YARN compares host names, or names with ports if several NodeManagers share a host, so both forms are sent.
        """
        avoided = frozenset(name for node in nodes for name in (node, node.rpartition(":")[0]))
        self._nodes_to_say.update((name, name in avoided) for name in self._avoided ^ avoided)
        self._avoided = avoided

    def granted(self, key: int, node: str) -> Optional[ContainerRequest]:
        """Return the request that an allocation on ``node`` (host:port) answers, or None to release the container.

        A container is released if the request was cancelled, or if its node must be avoided. In the second case the
        request is repeated, but only once. A cluster that ignores the blacklist would grant the same node again.
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
        """Record that the ResourceManager found no node for a request. The request is repeated later.

        Returns whether the caller should report this: only the first time, and only if the request is still open.
        """
        ask = self._outstanding.get(key)
        if ask is None:
            return False
        self._later[key] = (now + _PLACE_AGAIN, ask)
        news = key not in self._not_placed
        self._not_placed.add(key)
        return news

    def next(self, now: float) -> Saying:
        """Return the content of the next allocate call.

        After a successful call, call ``said``. Otherwise the same content is sent again.
        """
        for key, (when, ask) in list(self._later.items()):
            if when <= now:
                del self._later[key]
                self._ask(ask)
        # One kind per call: the capacity scheduler ignores scheduling requests in a call with resource requests.
        by_rules = next((ask.by_rules for ask in self._to_say.values()), False)
        of_a_kind = (ask for ask in self._to_say.values() if ask.by_rules is by_rules)
        return Saying(
            asks=list(islice(of_a_kind, MOST_ASKS)),
            releases=[container.to_proto() for container in self._releases],
            avoided=frozenset(name for name, avoid in self._nodes_to_say.items() if avoid),
            allowed=frozenset(name for name, avoid in self._nodes_to_say.items() if not avoid),
        )

    def said(self, saying: Saying) -> None:
        """Record that the ResourceManager has received this call. Changes made since ``next`` remain to be sent."""
        for ask in saying.asks:
            if self._to_say.get(ask.key) == ask:
                del self._to_say[ask.key]
        self._releases.difference_update(map(ContainerId.from_proto, saying.releases))
        for name in saying.avoided | saying.allowed:
            if self._nodes_to_say.get(name) is (name in saying.avoided):
                del self._nodes_to_say[name]

    def refused(self, saying: Saying) -> None:
        """Drop these requests, because the ResourceManager will never grant them."""
        for ask in saying.asks:
            self._forget(ask.key)

    def start_again(self) -> None:
        """Send everything again, because the ResourceManager has forgotten its open requests and releases."""
        self._releases |= self._releasing
        self._to_say = dict(self._outstanding)
        self._nodes_to_say = dict.fromkeys(self._avoided, True)


_UNKNOWN_RACK = "/default-rack"  # NetworkTopology.DEFAULT_RACK


@attrs.frozen
class Ask:
    """The current state of one request, as the ResourceManager must know it."""

    request: ContainerRequest
    count: int = 1  # number of containers; 0 cancels the request
    anywhere: bool = False  # any node is acceptable, because the wait for the wanted nodes is over
    leads: bool = False  # the first container of an affinity group, which is exempt from the affinity

    @property
    def key(self) -> int:
        return self.request.key

    @property
    def by_rules(self) -> bool:
        return bool(self.request.tags)

    @property
    def waits_for_nodes(self) -> bool:
        """Whether the request first accepts only certain nodes, and later any node."""
        return bool(self._placement.nodes or self._placement.racks) and not self._placement.required

    @property
    def beside_its_own(self) -> frozenset[str]:
        """Tags of this request that its affinity rules also require from another container on the same node or rack.

        The first container is exempt, because there is no other container yet.
        """
        beside = (TagTarget.parse(tag) for rule in self._placement.constraints for tag in rule.affinity)
        return frozenset(target.tag for target in beside if target.own) & frozenset(self.request.tags)

    # ---- for YARN ----------------------------------------------------------------------------------------------

    def resource_requests(self, racks: Mapping[str, str]) -> list[yarn.ResourceRequestProto]:
        """Return a request for any node, and one for each named node and its rack. ``racks``: rack by node name.

        YARN allocates on a node only if its rack is also requested. YARN uses other nodes of the rack only if the
        rack's request has relax_locality, and other racks only if the request for any node has it. With strict
        locality, the capacity scheduler never allocates on a rack without named nodes, because it counts missed
        opportunities only at these. So a request for a rack names all its nodes.
        """
        placement = self._placement
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
            node_label=node_label,  # YARN accepts a label only in the request for any node
            where=where,
            relax_locality=relax,
        )

    def scheduling_request(self) -> yarn.SchedulingRequestProto:
        rules = [simple for rule in self._placement.constraints for simple in self._simple(rule)]
        for rule in map(AttributeRule.parse, self._placement.attributes):
            rules.append(yarn_records.attribute_constraint(rule.name, rule.value, equal=rule.equal))
        return yarn_records.scheduling_request(
            self._capability,
            self.count,
            priority=self.request.priority,
            allocation_request_id=self.key,
            tags=self.request.tags,
            constraint=yarn_records.combined_constraint(rules, self.request.node_label),
        )

    def _simple(self, rule: PlacementConstraint) -> Iterator[yarn.SimplePlacementConstraintProto]:
        """Convert a rule to YARN's constraints.

        Tags that must be present share one constraint per namespace, and any of them suffices. Tags that must be absent
        get one constraint each.
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
                most -= 1  # YARN does not count the requested container itself
            yield yarn_records.tag_constraint(scope, target.namespace, [target.tag], least=rule.min, most=most)

    def _has(self, target: TagTarget) -> bool:
        return target.own and target.tag in self.request.tags

    @property
    def _placement(self) -> Placement:
        return self.request.placement or Placement()

    @property
    def _capability(self) -> yarn.ResourceProto:
        request = self.request
        return yarn_records.resource(request.memory, request.vcores, request.resources, request.units)


FIRST_KEY = 1 << 40  # above the keys of a job's own requests
_QUIET = 3.0  # seconds without another container until the search ends: nodes report once per second
_LONGEST = 30.0  # seconds until a search ends in any case


@attrs.frozen
class Found:
    """The result of a search for room, with the requests and containers to give up."""

    room: Room
    keys: list[int]  # requests to cancel
    containers: list[ContainerId]  # containers to release


@attrs.define
class _Look:
    request: ContainerRequest
    most: int
    keys: range = range(0)  # keys of its requests
    began: float = 0.0
    moved: float = 0.0  # time when the newest container was granted
    came: list[ContainerId] = attrs.field(factory=list)


@attrs.define
class RoomFinder:
    """Determines for how many containers YARN has room: requests containers, counts them, and releases them.

    YARN reports no usable limit. The capacity scheduler's headroom ends at the queue's own share, except for one
    minimum allocation, even if the queue may use more. The headroom is also computed only while the queue has pending
    requests. No scheduler reports single nodes, and the fair scheduler omits GPUs.

    The object keeps the current search and the next one. Times are in seconds.
    """

    _now: Optional[_Look] = None
    _next: Optional[_Look] = None
    _next_key: int = FIRST_KEY  # each search has its own keys: YARN may still grant what an ended search requested

    def look(self, request: ContainerRequest, most: int) -> None:
        """Search for at most ``most`` containers, after the current search."""
        self._next = _Look(request, most)

    def begin(self, now: float) -> list[ContainerRequest]:
        """Return the requests to send now."""
        if self._now is not None or self._next is None:
            return []
        self._now, self._next = self._next, None
        self._now.began = self._now.moved = now
        self._now.keys = range(self._next_key, self._next_key + self._now.most)
        self._next_key = self._now.keys.stop
        return [attrs.evolve(self._now.request, key=key) for key in self._now.keys]

    def came(self, key: int, container: ContainerId, now: float) -> bool:
        """Return whether a container belongs to the search.

        The search keeps the container until ``end``, so that its room is not counted twice.
        """
        if self._now is None or key not in self._now.keys:
            return False
        self._now.moved = now
        self._now.came.append(container)
        return True

    def end(self, now: float) -> Optional[Found]:
        """Return the result once no more containers are expected, otherwise None."""
        look = self._now
        if look is None:
            return None
        waits = now - look.moved < _QUIET and now - look.began < _LONGEST
        if waits and len(look.came) < look.most:
            return None
        self._now = None
        return Found(Room(look.request.key, len(look.came)), list(look.keys), look.came)
