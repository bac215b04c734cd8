"""What every program here trains: a line through points that are dealt to the ranks, by gradient descent.

Each step uses the mean gradient over all points, so that the result is the same however many ranks share them.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

STEPS = 60
POINTS = 24  # divisible by every world size in use
RATE = 0.4


def points(rank: int, world_size: int) -> list[tuple[float, float]]:
    """Those of one rank."""
    every = [(index / POINTS, 3.0 * index / POINTS - 1.0) for index in range(POINTS)]
    return every[rank::world_size]


def gradient(slope: float, offset: float, mine: list[tuple[float, float]]) -> tuple[float, float]:
    """The mean over some points."""
    errors = [(slope * x + offset - y, x) for x, y in mine]
    return 2 * sum(error * x for error, x in errors) / len(mine), 2 * sum(error for error, _ in errors) / len(mine)


def expected() -> tuple[float, float]:
    """Slope and offset after all steps, by one process."""
    slope = offset = 0.0
    for _ in range(STEPS):
        by_slope, by_offset = gradient(slope, offset, points(0, 1))
        slope, offset = slope - RATE * by_slope, offset - RATE * by_offset
    return slope, offset


def dawdle() -> None:
    """Take the seconds for a step that the test wants just now: they are in the file that PACE names."""
    if pace := os.environ.get("PACE"):
        time.sleep(float(Path(pace).read_text() or 0))


def leave_result(slope: float, offset: float, **more: object) -> None:
    """The job's result; of rank 0 it counts. ``version``, among the others, is the framework's."""
    Path(os.environ["TONY_RESULT_FILE"]).write_text(json.dumps({"slope": slope, "offset": offset, **more}))
