"""For how many containers YARN has room: it is asked for them for a moment, and they go back. No input or output.

What YARN tells an application of its limit does not say it. The capacity scheduler's figure ends, but for one container
of the least size, where the queue's own share ends, though the queue may have more; it is worked out only while
something of the queue is asked for; and no scheduler tells of single nodes. The fair scheduler leaves GPUs out.
"""

from __future__ import annotations

from typing import Optional

import attrs

from tony_provider.runtime.am.resource_manager import ContainerRequest, Room
from tony_provider.runtime.hadoop.ids import ContainerId

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
