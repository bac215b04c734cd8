"""YARN's warnings of what it will take away: containers for other queues, and nodes that leave. No input or output."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Optional

import attrs

from tony_provider.runtime.am.resource_manager import NodeLeaving, Preempting
from tony_provider.runtime.hadoop.ids import ContainerId, node_address
from tony_provider.runtime.hadoop.proto import yarn_pb2 as yarn

_SAID_FOR = 60.0  # seconds: some schedulers repeat themselves with each heartbeat until they take the container
_GONE = (yarn.NS_LOST, yarn.NS_DECOMMISSIONED, yarn.NS_SHUTDOWN, yarn.NS_UNHEALTHY)


@attrs.define
class PreemptionMessages:
    """Turns YARN's preemption messages into events: each once, and only about containers that we hold."""

    _said: dict[str, float] = attrs.field(factory=dict)  # preempted container -> when that was passed on

    def preempting(
        self, message: yarn.PreemptionMessageProto, held: Collection[str], now: float
    ) -> Optional[Preempting]:
        """The event for a message; None where it says nothing new.

        Whether the contract can be negotiated does not matter: a gang has no container to give instead. YARN does not
        say when; it waits for yarn.resourcemanager.monitor.capacity.preemption.max_wait_before_kill, 15 s by default.
        """
        self._said = {name: at for name, at in self._said.items() if name in held and now - at < _SAID_FOR}
        marked = dict.fromkeys(_marked(message))
        new = [name for name in marked if name in held and name not in self._said]
        self._said.update((name, now) for name in new)
        return Preempting(new) if new else None


def _marked(message: yarn.PreemptionMessageProto) -> Iterator[str]:
    for container in (*message.strictContract.container, *message.contract.container):
        yield str(ContainerId.from_proto(container.id))


def leaving(nodes: Iterable[yarn.NodeReportProto], holding: Collection[str]) -> Iterator[NodeLeaving]:
    """The events for those of the reported nodes that go, and that hold containers of this application."""
    for report in nodes:
        node = str(node_address(report.nodeId))
        if node not in holding:
            continue
        if report.node_state == yarn.NS_DECOMMISSIONING:
            timeout = report.decommissioning_timeout if report.HasField("decommissioning_timeout") else 0
            yield NodeLeaving(node, float(timeout) if timeout else None)
        elif report.node_state in _GONE:
            yield NodeLeaving(node, 0.0)
