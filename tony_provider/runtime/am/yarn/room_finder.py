"""What room YARN has for this application, by what it says of itself in each answer. No input or output, no clock.

The capacity scheduler works out an application's limit anew only while something of its queue is asked for: of room
that has come since, an application that asks for nothing never hears. So a small container is asked for now and then,
and given up again.
"""

from __future__ import annotations

from typing import Optional

import attrs

from tony_provider.runtime.am.resource_manager import ContainerRequest, Room
from tony_provider.runtime.hadoop import yarn_messages
from tony_provider.runtime.hadoop.proto import yarn_pb2 as yarn

PROBE = 1 << 40  # its key: beyond those of any job's own requests
_PRIORITY = 1000  # after every other
_ASKED_FOR = 3.0  # seconds: nodes report once a second, and the scheduler works it out when they do


@attrs.define
class RoomFinder:
    """Whether somebody wants to know what room there is, and what YARN has told. Times are in seconds."""

    counts_vcores: bool = True
    _looking: bool = False
    _until: Optional[float] = None  # the small container is asked for until then
    _told: Optional[Room] = None

    def look(self, request: ContainerRequest, now: float) -> Optional[ContainerRequest]:
        """The request by which YARN is brought to tell; None where one is under way."""
        self._looking, self._told = True, None
        if self._until is not None:
            return None
        self._until = now + _ASKED_FOR
        return ContainerRequest(PROBE, _PRIORITY, 1, 1, node_label=request.node_label)  # the least that YARN gives

    def is_over(self, now: float) -> bool:
        """Whether that request has been there for long enough, and is to be withdrawn; says so once."""
        if self._until is None or now < self._until:
            return False
        self._until = None
        return True

    def granted(self) -> None:
        """Record that the small container has come, and is given back."""
        self._until = None

    def room(self, limit: yarn.ResourceProto) -> Optional[Room]:
        """What YARN's answer says; None where that is not news, nobody looks, or the small container is asked for."""
        if not self._looking or self._until is not None:
            return None
        room = Room(
            limit.memory,
            limit.virtual_cores if self.counts_vcores else None,
            yarn_messages.other_resources(limit),
            yarn_messages.units(limit),
        )
        if room == self._told:
            return None
        self._told = room
        return room
