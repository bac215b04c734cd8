"""A watch for kills by the kernel for want of memory, as far as its counters tell.

They count kills, not victims: the container's own (a memory cgroup's, kernel documentation cgroup-v2.rst and
cgroup-v1/memory.rst) where it can be read, else the whole node's (/proc/vmstat). YARN's own memory monitor is no
kernel; what it kills is the whole container, which the application master hears of from YARN.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Optional

_MOUNT = Path("/sys/fs/cgroup")


class OutOfMemoryWatch:
    """Tells whether the kernel has killed for want of memory lately.

    ``look`` regularly: what was killed before the last look but one was somebody else.
    """

    def __init__(self) -> None:
        self._source = next((path for path in _sources() if _kills(path) is not None), None)
        self._seen: deque[int] = deque([self._count()], maxlen=2)

    def look(self) -> None:
        """Read the counters. Blocks shortly."""
        self._seen.append(self._count())

    def killed_recently(self) -> bool:
        """Whether the kernel has killed since the last look but one. Blocks shortly."""
        return self._count() > self._seen[0]

    def _count(self) -> int:
        return (_kills(self._source) or 0) if self._source else 0


def _sources() -> Iterator[Path]:
    """Files with an ``oom_kill`` line, the most telling first."""
    for group in _own_groups():
        number, controllers, path = group.split(":", 2)
        if number == "0" and not controllers:
            yield _MOUNT / path.lstrip("/") / "memory.events"
            yield _MOUNT / "unified" / path.lstrip("/") / "memory.events"
        elif "memory" in controllers.split(","):
            yield _MOUNT / "memory" / path.lstrip("/") / "memory.oom_control"
    yield Path("/proc/vmstat")


def _own_groups() -> list[str]:
    try:
        return Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []  # a kernel without control groups


def _kills(path: Path) -> Optional[int]:
    try:
        text = path.read_text()
    except OSError:
        return None  # not this kernel's way of counting
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill" and value.strip().isdigit():
            return int(value)
    return None
