"""What processes hold in memory, and which of an application's processes are whose."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import attrs

from benchmarks.launchers.base import SCRIPT
from tests.jobs.processes import Seen

_CONTAINER = re.compile(rb"CONTAINER_ID=(container_\w+)")
_MASTER = "_000001"  # YARN's number for it
# Of YARN itself, around every container of everybody.
_NODE_MANAGER = ("default_container_executor", "launch_container.sh")


@attrs.frozen
class Memory:
    """In MiB. Pages that several processes share count in each as a whole (resident), or by shares (proportional)."""

    resident: float = 0.0
    proportional: float = 0.0

    @classmethod
    def of(cls, pids: Iterable[int]) -> Memory:
        """The sum of those that are there still."""
        rollups = [_rollup(pid) for pid in pids]
        return cls(
            sum(each.get("Rss", 0) for each in rollups) / 1024, sum(each.get("Pss", 0) for each in rollups) / 1024
        )

    def beyond(self, before: Memory) -> Memory:
        """What it is more than before."""
        return Memory(self.resident - before.resident, self.proportional - before.proportional)

    def shared_by(self, number: int) -> Memory:
        return Memory(self.resident / number, self.proportional / number)


@attrs.frozen
class JobMemory:
    """While its tasks run."""

    client: Memory
    master: Memory
    helpers: Memory  # of one task: what runs in its container beside the user process

    @classmethod
    def of(cls, client: set[int], processes: Iterable[Seen], tasks: int) -> JobMemory:
        known = {each.pid: each for each in processes if each.pid not in client}
        own = [each for each in known.values() if not any(name in each.words for name in _NODE_MANAGER)]
        master = [each.pid for each in own if _container(each, known).endswith(_MASTER)]
        helpers = [each.pid for each in own if each.pid not in master and not _is_of_user(each, known)]
        return cls(Memory.of(client), Memory.of(master), Memory.of(helpers).shared_by(tasks))


def _container(process: Seen, known: Mapping[int, Seen]) -> str:
    """Its own by its environment, or that of whoever has started it."""
    if found := _CONTAINER.search(process.environment):
        return found[1].decode()
    parent = known.get(process.parent)
    return _container(parent, known) if parent else ""


def _is_of_user(process: Seen, known: Mapping[int, Seen]) -> bool:
    if str(SCRIPT) in process.words:
        return True
    parent = known.get(process.parent)
    return parent is not None and str(SCRIPT) in parent.words


def _rollup(pid: int) -> dict[str, int]:
    """KiB by the kernel's names; empty once it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except (FileNotFoundError, ProcessLookupError):
        return {}
    return {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
