"""MPI by mpi4py: gradients are summed over all ranks, and rank 0 saves what all know."""

from __future__ import annotations

import os

import mpi4py
import numpy_snapshot
from line import RATE, STEPS, dawdle, gradient, leave_result, points
from mpi4py import MPI

world = MPI.COMM_WORLD
mine = points(world.rank, world.size)
begun, slope, offset = world.bcast(numpy_snapshot.load() if world.rank == 0 else None)
for step in range(begun, STEPS):
    by_slope, by_offset = (world.allreduce(each) / world.size for each in gradient(slope, offset, mine))
    slope, offset = slope - RATE * by_slope, offset - RATE * by_offset
    dawdle()
    if world.rank == 0:
        numpy_snapshot.save(step + 1, slope, offset)
places = world.gather(f"{os.environ['TONY_TASK_TYPE']}:{os.environ['TONY_TASK_INDEX']}")
if world.rank == 0:
    leave_result(slope, offset, version=mpi4py.__version__, world_size=world.size, begun=begun, places=places)
