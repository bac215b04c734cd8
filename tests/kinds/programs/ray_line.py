"""Ray: the driver sends each step's points to the nodes, and saves what it has made of their answers."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import numpy_snapshot
import ray
from line import RATE, STEPS, dawdle, gradient, leave_result, points

WANTED = 3


def wait_for_nodes() -> int:
    """Wait until as many as wanted are there. For some seconds, a node that has died and its successor both are."""
    while (alive := sum(node["Alive"] for node in ray.nodes())) != WANTED:
        time.sleep(0.1)
    return alive


@ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=-1)  # on another node, once one is known to be dead
class Place:
    """All that a node has room for."""

    def node(self) -> str:
        return str(ray.get_runtime_context().get_node_id())


def is_refused(token: str) -> bool:
    """Whether the cluster turns away who comes with this token."""
    stranger = {**os.environ, "RAY_AUTH_TOKEN": token}
    come = [sys.executable, "-c", "import ray; ray.init()"]
    return subprocess.run(come, env=stranger, capture_output=True, timeout=120, check=False).returncode != 0


ray.init()
wait_for_nodes()
share = ray.remote(scheduling_strategy="SPREAD")(
    lambda slope, offset, part: gradient(slope, offset, points(part, WANTED))
)
begun, slope, offset = numpy_snapshot.load()
for step in range(begun, STEPS):
    parts = ray.get([share.remote(slope, offset, part) for part in range(WANTED)])
    slope -= RATE * sum(part[0] for part in parts) / WANTED
    offset -= RATE * sum(part[1] for part in parts) / WANTED
    dawdle()
    numpy_snapshot.save(step + 1, slope, offset)
nodes = wait_for_nodes()
places = [Place.remote() for _ in range(WANTED)]
used = len(set(ray.get([place.node.remote() for place in places])))
leave_result(
    slope, offset, version=ray.__version__, world_size=nodes, begun=begun, used=used, safe=is_refused("guessed")
)
