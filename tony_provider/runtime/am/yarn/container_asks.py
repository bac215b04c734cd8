"""The book of what the ResourceManager was asked for and has to be told: no input or output."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Optional

import attrs

from tony_provider.runtime.am.resource_manager import ContainerRequest
from tony_provider.runtime.hadoop import yarn_messages
from tony_provider.runtime.hadoop.ids import ContainerId
from tony_provider.runtime.hadoop.proto import yarn_pb2 as yarn

MOST_ASKS = 1000  # in one call


@attrs.frozen
class Saying:
    """What one allocate call has to say: requests, releases, nodes to avoid."""

    asks: list[yarn.ResourceRequestProto] = attrs.field(factory=list)
    releases: list[yarn.ContainerIdProto] = attrs.field(factory=list)
    avoided: frozenset[str] = frozenset()  # names of nodes, from now on
    allowed: frozenset[str] = frozenset()  # again

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

    Each request has an allocation_request_id of its own (its key), so that an answer belongs to exactly one.
    """

    _outstanding: dict[int, ContainerRequest] = attrs.field(factory=dict)
    _to_say: dict[int, tuple[ContainerRequest, int]] = attrs.field(factory=dict)  # by key, with how many are wanted
    _releases: set[ContainerId] = attrs.field(factory=set)  # to say
    _releasing: set[ContainerId] = attrs.field(factory=set)  # until they have ended
    _avoided: frozenset[str] = frozenset()
    _nodes_to_say: dict[str, bool] = attrs.field(factory=dict)  # whether to avoid it, by its name
    _moved: set[int] = attrs.field(factory=set)  # keys that were granted on an avoided node once, and asked for again

    @property
    def more(self) -> bool:
        """Whether something is left to be asked for."""
        return bool(self._to_say)

    @property
    def outstanding(self) -> bool:
        """Whether something is waited for."""
        return bool(self._outstanding)

    def request(self, requests: Iterable[ContainerRequest]) -> None:
        for request in requests:
            self._outstanding[request.key] = request
            self._to_say[request.key] = (request, 1)

    def cancel(self, keys: Iterable[int]) -> None:
        for key in keys:
            request = self._outstanding.pop(key, None)
            if request:
                self._to_say[key] = (request, 0)

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
        request = self._outstanding.get(key)
        if request is None:
            return None
        if node in self._avoided and key not in self._moved:
            self._moved.add(key)
            self._to_say[key] = (request, 1)
            return None
        self._to_say.pop(key, None)
        self._moved.discard(key)
        return self._outstanding.pop(key)

    def next(self) -> Saying:
        """What the next allocate call has to say. Call ``said`` once it was answered; else it is said again."""
        return Saying(
            asks=[_ask(request, count) for request, count in islice(self._to_say.values(), MOST_ASKS)],
            releases=[container.to_proto() for container in self._releases],
            avoided=frozenset(name for name, avoid in self._nodes_to_say.items() if avoid),
            allowed=frozenset(name for name, avoid in self._nodes_to_say.items() if not avoid),
        )

    def said(self, saying: Saying) -> None:
        """Record that the ResourceManager has heard this. What was changed meanwhile stays to be said."""
        for ask in saying.asks:
            now = self._to_say.get(ask.allocation_request_id)
            if now and now[1] == ask.num_containers:
                del self._to_say[ask.allocation_request_id]
        self._releases.difference_update(map(ContainerId.from_proto, saying.releases))
        for name in saying.avoided | saying.allowed:
            if self._nodes_to_say.get(name) is (name in saying.avoided):
                del self._nodes_to_say[name]

    def refused(self, saying: Saying) -> None:
        """Drop these requests: the ResourceManager will never grant them."""
        for ask in saying.asks:
            self._to_say.pop(ask.allocation_request_id, None)
            self._outstanding.pop(ask.allocation_request_id, None)

    def start_again(self) -> None:
        """Say everything again: the ResourceManager has forgotten what it did not grant or take back."""
        self._releases |= self._releasing
        self._to_say = {key: (request, 1) for key, request in self._outstanding.items()}
        self._nodes_to_say = dict.fromkeys(self._avoided, True)


def _ask(request: ContainerRequest, count: int) -> yarn.ResourceRequestProto:
    return yarn_messages.resource_request(
        yarn_messages.resource(request.memory, request.vcores, request.resources, request.units),
        count,
        priority=request.priority,
        allocation_request_id=request.key,
        node_label=request.node_label,
    )
