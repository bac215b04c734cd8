"""The book of what the ResourceManager was asked for and has to be told: no input or output, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from itertools import islice
from typing import Optional

import attrs

from tony_provider.runtime.am.resource_manager import ContainerRequest
from tony_provider.runtime.am.yarn.ask import Ask
from tony_provider.runtime.hadoop.ids import ContainerId
from tony_provider.runtime.hadoop.proto import yarn_pb2 as yarn
from tony_provider.runtime.spec.placement import NODE_WAIT

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
