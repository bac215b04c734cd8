"""A program of nobody's framework: ranks that meet at TONY_RENDEZVOUS, and add up over plain sockets."""

from __future__ import annotations

import json
import os
import platform
import socket
import time

from line import RATE, STEPS, gradient, leave_result, points

RANK, WORLD_SIZE = int(os.environ["TONY_RANK"]), int(os.environ["TONY_WORLD_SIZE"])
host, _, number = os.environ["TONY_RENDEZVOUS"].rpartition(":")


def meet() -> list[socket.socket]:
    """Rank 0's connections to all others; of the others the one to rank 0."""
    if RANK == 0:
        server = socket.create_server((host, int(number)))
        return [server.accept()[0] for _ in range(WORLD_SIZE - 1)]
    for _ in range(300):
        try:
            return [socket.create_connection((host, int(number)))]
        except ConnectionRefusedError:
            time.sleep(0.1)
    raise SystemExit("rank 0 does not listen")


others = [connection.makefile("rw") for connection in meet()]


def mean(values: tuple[float, float]) -> tuple[float, float]:
    """Over all ranks."""
    if RANK:
        print(json.dumps(values), file=others[0], flush=True)
        line = others[0].readline()
        if not line:
            raise SystemExit("rank 0 is gone")
        first, second = json.loads(line)
        return first, second
    told = [values, *(json.loads(other.readline()) for other in others)]
    first, second = (sum(each) / WORLD_SIZE for each in zip(*told, strict=True))
    for other in others:
        print(json.dumps([first, second]), file=other, flush=True)
    return first, second


mine = points(RANK, WORLD_SIZE)
slope = offset = 0.0
for _ in range(STEPS):
    by_slope, by_offset = mean(gradient(slope, offset, mine))
    slope, offset = slope - RATE * by_slope, offset - RATE * by_offset
leave_result(slope, offset, version=platform.python_version(), world_size=WORLD_SIZE)
