"""How much the processes of the container have read from disks and written to them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Optional

import attrs


@attrs.frozen
class DiskUse:
    """Bytes since the executor began, of the executor and all processes below it, also of those that have ended."""

    read: int = 0
    written: int = 0


@attrs.define
class DiskMeter:
    """Adds up what /proc says of each process.

    What a process has done is its parent's once that has collected it, and the executor collects all orphans. So the
    executor's own number has everything of those that are gone, and nothing is counted twice as long as a parent is
    looked at before its children.
    """

    proc: Path = Path("/proc")
    _most: DiskUse = DiskUse()  # one that is collected between two looks is missed for a moment

    def measure(self, pids: Iterable[int]) -> Optional[DiskUse]:
        """``pids``: all below this process, parents first. None where the kernel does not count. Blocks shortly."""
        own = self._read("self")
        if own is None:
            return None
        found = [own, *(use for pid in pids if (use := self._read(str(pid))))]
        self._most = DiskUse(
            max(self._most.read, sum(use.read for use in found)),
            max(self._most.written, sum(use.written for use in found)),
        )
        return self._most

    def _read(self, process: str) -> Optional[DiskUse]:
        """None when it is gone, or not ours to look at; see proc_pid_io(5)."""
        try:
            lines = (self.proc / process / "io").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return None
        fields = dict(line.split(": ", 1) for line in lines)
        return DiskUse(int(fields["read_bytes"]), int(fields["write_bytes"]))
