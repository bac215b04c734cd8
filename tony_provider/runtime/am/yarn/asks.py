"""What the ResourceManager was asked for and has to be told: pure bookkeeping, no input or output."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Optional

import attrs

from tony_provider.runtime.am.resource_manager import ContainerRequest
from tony_provider.runtime.hadoop import messages
from tony_provider.runtime.hadoop.ids import ContainerId
from tony_provider.runtime.hadoop.proto import yarn_pb2 as yarn


@attrs.define
class Asks:
    """Each request has an allocation_request_id of its own (its key), so that an answer belongs to exactly one."""

    _outstanding: dict[int, ContainerRequest] = attrs.field(factory=dict)
    _to_say: dict[int, tuple[ContainerRequest, int]] = attrs.field(factory=dict)  # by key, with how many are wanted
    _releases: set[ContainerId] = attrs.field(factory=set)  # to say
    _releasing: set[ContainerId] = attrs.field(factory=set)  # until they have ended

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

    def granted(self, key: int) -> Optional[ContainerRequest]:
        """The request that an allocation answers; None when nobody wants it any more."""
        self._to_say.pop(key, None)
        return self._outstanding.pop(key, None)

    def next(self) -> tuple[list[yarn.ResourceRequestProto], list[yarn.ContainerIdProto]]:
        """What the next allocate call has to say. ``said`` once it was answered, else it is said again."""
        asks = [_ask(request, count) for request, count in self._to_say.values()]
        return asks, [container.to_proto() for container in self._releases]

    def said(self, asks: Iterable[yarn.ResourceRequestProto], releases: Iterable[yarn.ContainerIdProto]) -> None:
        """The ResourceManager has taken these. What was changed meanwhile stays to be said."""
        for ask in asks:
            now = self._to_say.get(ask.allocation_request_id)
            if now and now[1] == ask.num_containers:
                del self._to_say[ask.allocation_request_id]
        self._releases.difference_update(map(ContainerId.from_proto, releases))

    def refused(self, asks: Iterable[yarn.ResourceRequestProto]) -> None:
        """The ResourceManager will never grant these: do not repeat them."""
        for ask in asks:
            self._to_say.pop(ask.allocation_request_id, None)
            self._outstanding.pop(ask.allocation_request_id, None)

    def start_again(self) -> None:
        """The ResourceManager has forgotten everything that it did not grant or take back."""
        self._releases |= self._releasing
        self._to_say = {key: (request, 1) for key, request in self._outstanding.items()}


def _ask(request: ContainerRequest, count: int) -> yarn.ResourceRequestProto:
    return messages.resource_request(
        messages.resource(request.memory, request.vcores, request.resources),
        count,
        priority=request.priority,
        allocation_request_id=request.key,
        node_label=request.node_label,
    )
