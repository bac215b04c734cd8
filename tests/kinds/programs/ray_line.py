"""Ray: the driver sends each step's points to the nodes."""

from __future__ import annotations

import ray
from line import RATE, STEPS, gradient, leave_result, points

ray.init()
wanted = 3
while (nodes := sum(node["Alive"] for node in ray.nodes())) < wanted:
    pass
share = ray.remote(scheduling_strategy="SPREAD")(
    lambda slope, offset, part: gradient(slope, offset, points(part, wanted))
)
where = ray.remote(scheduling_strategy="SPREAD", num_cpus=1)(lambda: ray.get_runtime_context().get_node_id())
slope = offset = 0.0
for _ in range(STEPS):
    parts = ray.get([share.remote(slope, offset, part) for part in range(wanted)])
    slope -= RATE * sum(part[0] for part in parts) / wanted
    offset -= RATE * sum(part[1] for part in parts) / wanted
leave_result(slope, offset, world_size=nodes, used=len(set(ray.get([where.remote() for _ in range(12)]))))
