"""How many containers of a task type there is room for, as far as the cluster tells."""

from __future__ import annotations

from collections.abc import Iterator

from tony_provider.runtime.am.resource_manager import Room
from tony_provider.runtime.resource_names import GPU
from tony_provider.runtime.spec.model import TaskSpec


def fitting(spec: TaskSpec, room: Room) -> int:
    """At most so many: whether a single node has the room for one of them, no cluster tells."""
    return max(0, min(there // one for one, there in _amounts(spec, room) if one))


def _amounts(spec: TaskSpec, room: Room) -> Iterator[tuple[int, int]]:
    """What one container needs of each resource, and what there is of it."""
    yield spec.memory, room.memory
    if room.vcores is not None:
        yield spec.vcores, room.vcores
    yield spec.gpus, room.resources.get(GPU, 0)
    for name, amount in spec.resources.items():
        yield amount.counted_in(room.units.get(name, "")), room.resources.get(name, 0)
