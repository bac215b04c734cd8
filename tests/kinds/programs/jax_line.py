"""JAX over several processes; ``initialize`` finds the others by itself."""

from __future__ import annotations

import jax

jax.distributed.initialize()
jax.config.update("jax_enable_x64", True)
from jax.experimental import multihost_utils  # noqa: E402
from line import RATE, STEPS, gradient, leave_result, points  # noqa: E402

rank, world_size = jax.process_index(), jax.process_count()
mine = points(rank, world_size)
slope = offset = 0.0
for _ in range(STEPS):
    everybodys = multihost_utils.process_allgather(jax.numpy.array(gradient(slope, offset, mine)))
    by_slope, by_offset = everybodys.reshape(world_size, 2).mean(axis=0).tolist()
    slope, offset = slope - RATE * by_slope, offset - RATE * by_offset
leave_result(slope, offset, world_size=world_size)
