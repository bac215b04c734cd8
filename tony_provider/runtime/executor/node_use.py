"""How busy the processors of the node are, whoever keeps them so."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import attrs

_COUNTED = 8  # columns of /proc/stat's first line, see proc_stat(5): what guests used is in those before
_IDLE = slice(3, 5)  # those two in which nobody computed; time that a hypervisor took away counts as busy


@attrs.define
class NodeMeter:
    """Tells which part of all its processors' time the node was busy since the last look."""

    counters: Path = Path("/proc/stat")
    _before: Optional[list[int]] = None

    def measure(self) -> Optional[float]:
        """In percent, 100: none of them was idle. None the first time, and where it cannot be told. Blocks shortly."""
        try:
            with self.counters.open() as file:
                name, *numbers = file.readline().split()
        except (FileNotFoundError, PermissionError):
            return None
        now = [int(each) for each in numbers[:_COUNTED]]
        before, self._before = self._before, now
        if name != "cpu" or before is None:
            return None
        spent = [max(0, new - old) for new, old in zip(now, before)]
        return 100.0 * (1 - sum(spent[_IDLE]) / sum(spent)) if sum(spent) else None
