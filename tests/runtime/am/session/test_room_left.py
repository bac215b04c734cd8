"""How many containers fit into what the cluster has left."""

from __future__ import annotations

import pytest

from tony_provider.runtime.am.resource_manager import Room
from tony_provider.runtime.am.session.containers.room_left import fitting
from tony_provider.runtime.spec.model import Memory, TaskSpec
from tony_provider.runtime.spec.resource_amount import ResourceAmount

GPU = "yarn.io/gpu"
PLAIN = TaskSpec(memory=Memory(1000), vcores=2)
WITH_GPUS = TaskSpec(memory=Memory(1000), gpus=2)
WITH_RATE = TaskSpec(memory=Memory(1), resources={"rate": ResourceAmount(1536, "Mi")})


@pytest.mark.parametrize(
    ("spec", "room", "number"),
    [
        (PLAIN, Room(2999, 100), 2),
        (PLAIN, Room(9000, 3), 1),
        (PLAIN, Room(9000, 0), 0),
        (PLAIN, Room(9000, None), 9),
        (PLAIN, Room(-5, 100), 0),
        (WITH_GPUS, Room(9000, 100, {GPU: 5}), 2),
        (WITH_GPUS, Room(9000, 100), 0),
        (WITH_RATE, Room(100, 100, {"rate": 5}, {"rate": "Gi"}), 2),  # each counts as 2 Gi there
        (WITH_RATE, Room(100, 100, {"rate": 4000}, {"rate": "Mi"}), 2),
    ],
)
def test_the_least_over_all_that_is_counted(spec: TaskSpec, room: Room, number: int) -> None:
    assert fitting(spec, room) == number
