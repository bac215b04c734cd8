"""How much memory a container should be given for what its tasks have used."""

from __future__ import annotations

from collections.abc import Iterable

from tony_provider.advice.case import TypeRuns
from tony_provider.runtime.quantities import size

MIB = 1 << 20
HEAD_ROOM = 1.25  # times the most that was used: samples miss short peaks, and data grows
EXECUTOR = 64  # MiB, of our own process in each container
STEP = 256  # MiB: what is advised is a multiple of it
LEAST = 512  # MiB


def needed(most_rss_bytes: int) -> int:
    """The memory in MiB to ask for when tasks have used so many bytes at most."""
    wanted = most_rss_bytes * HEAD_ROOM / MIB + EXECUTOR
    return max(LEAST, -int(-wanted // STEP) * STEP)


def most_used(runs: TypeRuns) -> int | None:
    """The most bytes that a task of the type has used in any run that is known; None: nobody says."""
    known = [each.most_rss_bytes for each in (runs.now, *runs.former) if each.most_rss_bytes]
    return max(known, default=None)


def asked(runs: TypeRuns) -> int:
    """The memory in MiB that this run asked for."""
    return runs.now.memory_bytes // MIB


def written(mebibytes: int) -> str:
    """As the specification takes it: ``2GiB``, ``1536MiB``."""
    return f"{mebibytes}MiB" if mebibytes % 1024 else f"{mebibytes // 1024}GiB"


def said(mebibytes: float) -> str:
    """For people: ``1.5 GiB``; what can be asked for is told exactly, such as ``1.25 GiB``."""
    if mebibytes >= 1024 and mebibytes % STEP == 0:
        return f"{mebibytes / 1024:g} GiB"
    return size(mebibytes * MIB)


def change(wanted: Iterable[tuple[str, int]]) -> dict[str, dict[str, dict[str, str]]]:
    """The merge patch for the memory, in MiB, of task types."""
    return {"tasks": {task_type: {"memory": written(memory)} for task_type, memory in wanted}}
