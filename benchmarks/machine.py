"""What a figure without a ratio depends on: the machine."""

from __future__ import annotations

import os
from pathlib import Path

import attrs


@attrs.frozen
class Machine:
    processors: int
    model: str  # of the processor
    memory_gib: int
    kernel: str

    @classmethod
    def this(cls) -> Machine:
        """The one that this runs on."""
        return cls(
            processors=os.cpu_count() or 1,
            model=_value(Path("/proc/cpuinfo"), "model name"),
            memory_gib=round(int(_value(Path("/proc/meminfo"), "MemTotal").split()[0]) / (1 << 20)),
            kernel=os.uname().release.partition("-")[0],
        )

    def like(self, other: Machine) -> bool:
        """Seconds and sizes that were measured on the one may be held to those of the other."""
        return (self.processors, self.model, self.memory_gib) == (other.processors, other.model, other.memory_gib)

    def __str__(self) -> str:
        return f"{self.processors} processors ({self.model or 'unknown'}), {self.memory_gib} GiB, Linux {self.kernel}"


def _value(path: Path, key: str) -> str:
    """Of the first line of this key; "" where there is none, as on processors that have no name."""
    lines = (line.partition(":") for line in path.read_text().splitlines())
    return next((value.strip() for name, _, value in lines if name.strip() == key), "")
